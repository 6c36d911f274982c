package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"golang.org/x/sync/errgroup"
)

// A task is one entry's work: a scenario on a route with an implementation, and how much of it. It is plain data, since
// virtual engines live in processes of their own.
type task struct {
	Scenario  sim.Scenario  `json:"scenario"`
	File      string        `json:"file"` // the scenario's, "" for one that comes with simrun
	Route     sim.Route     `json:"route"`
	Impl      string        `json:"impl"`
	Schedules int           `json:"schedules"`
	Seed      uint64        `json:"seed"`
	Budget    time.Duration `json:"budget"` // wall time for new schedules; 0: as many as Schedules says
	Strategy  string        `json:"strategy"`
	Past      []pastPlan    `json:"past"` // plans of earlier failures, tried first
	Out       string        `json:"out"`
	Program   string        `json:"program"` // how simrun was called, for the replay line
	Shrink    bool          `json:"shrink"`
	Keep      bool          `json:"keep"`  // every history stays
	Check     bool          `json:"check"` // run a share of the plans twice and compare digests
}

func (t task) String() string {
	return fmt.Sprintf("%s.%s.%s", fileName(t.Scenario.Name), t.Route, fileName(t.Impl))
}

// of is how many schedules there will be at most, 0 where a time is given instead.
func (t task) of() int {
	if t.Budget > 0 {
		return 0
	}
	return t.Schedules + len(t.Past)
}

// An executor carries out tasks, one at a time.
type executor interface {
	entry(ctx context.Context, t task, progress func(stage)) (*sim.Entry, error)
	replay(ctx context.Context, t replayTask, progress func(stage)) (replayed, error)
	close() error
}

// campaign carries out tasks over a pool of executors and gathers what they found, in the order of the tasks. What was found
// up to an interruption is returned with the interruption's cause.
func campaign(ctx context.Context, tasks []task, pool []executor, onEntry func(sim.Entry), w *watch) ([]sim.Entry, error) {
	free := make(chan executor, len(pool))
	for _, e := range pool {
		free <- e
	}
	results := make([]*sim.Entry, len(tasks))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(max(len(pool), 1))
	var mu sync.Mutex
	var fatal error
	for i, t := range tasks {
		group.Go(func() error {
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			x := <-free
			defer func() { free <- x }()
			w.at(t.String(), stage{Of: t.of()})
			r, err := x.entry(gctx, t, func(s stage) { w.at(t.String(), s) })
			w.finished(t.String())
			mu.Lock()
			defer mu.Unlock()
			if r != nil {
				results[i] = r
				onEntry(*r)
			}
			if err != nil && fatal == nil {
				fatal = err
			}
			return err
		})
	}
	_ = group.Wait() // its error is fatal, or the context's
	if cause := context.Cause(ctx); cause != nil {
		fatal = cause
	}
	var out []sim.Entry
	for _, r := range results {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out, fatal
}

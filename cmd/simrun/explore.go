package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
)

// exhaustive is the strategy that goes through every interleaving instead of drawing some.
const exhaustive = "exhaustive"

// firstDepth is the bound on choices that exploration begins with. It doubles whenever everything within it has been
// seen, so that early choices are not left for last: depth-first search alone would spend any budget on the latest ones.
const firstDepth = 4

// explore carries out the interleavings of one plan's faults until all are seen or the task has had enough. seen are plans
// that were carried out already.
func (j *job) explore(ctx context.Context, began time.Time, seen map[string]bool) {
	base := gen.Draw(gen.Random, j.Scenario, j.Seed, 0)
	found := &sim.Exploration{}
	j.result.Exploration = found
	done := 0
	for depth := firstDepth; ; depth *= 2 {
		x := gen.NewExplorer(base, depth)
		found.Depth = depth
		for x.Next() {
			if !j.more(began, done) || ctx.Err() != nil || j.failure != nil || j.enough() {
				found.Interleavings, found.Equivalent = x.Runs, x.Skipped+x.Asleep
				return
			}
			s := j.interleaving(ctx, x, done)
			switch {
			case ctx.Err() != nil:
				continue
			case x.Redundant():
				j.progress(stage{Done: j.result.Schedules, Of: j.of(), Doing: fmt.Sprintf("%s, and %d equivalent left out", plural(done, "interleaving"), x.Skipped+x.Asleep+1)})
				continue
			case seen[s.plan.Key()]:
				continue // of a smaller depth
			}
			seen[s.plan.Key()] = true
			j.gather(s)
			done++
			j.progress(stage{Done: j.result.Schedules, Of: j.of()})
		}
		found.Interleavings, found.Equivalent = x.Runs, x.Skipped+x.Asleep
		if err := x.Err(); err != nil && j.failure == nil && ctx.Err() == nil {
			j.failure = fmt.Errorf("explore %s: %w", j, err)
		}
		if j.failure != nil || ctx.Err() != nil {
			return
		}
		if found.Within, found.Complete = depth, !x.Bounded; found.Complete {
			return
		}
	}
}

// interleaving carries out the explorer's next run, without a file: its plan is known only afterwards. What is worth
// keeping is carried out again from the plan, which must give the same history.
func (j *job) interleaving(ctx context.Context, x *gen.Explorer, i int) (s schedule) {
	s.index, s.replicas = i, j.Scenario.Replicas
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	run := sim.Run{Scenario: j.Scenario, Plan: x.Plan(), Route: j.Route, Impl: j.impl, Seed: j.Seed, Schedule: i}
	run.Choose = func(next []sim.Step) int {
		k := x.Choose(next)
		if x.Redundant() {
			stop() // the rest has been seen
		}
		return k
	}
	s.hist, s.err = carryOut(ctx, j.engine, run, io.Discard)
	s.plan = x.Plan()
	if x.Redundant() || ctx.Err() != nil {
		return s
	}
	if s.err == nil {
		s.hist.Header.Plan = s.plan
		s.digest = s.hist.Digest()
		s.verdicts = invariants.Check(j.Scenario.Invariants, s.hist)
	}
	if s.plain() && i > 0 && !j.Keep {
		return s
	}
	again := j.schedule(ctx, s.plan, i, "")
	if s.err == nil && again.err == nil && again.digest != s.digest {
		again.err = &divergence{entry: j.String(), schedule: i, files: [2]string{again.file, "the run that chose"}, first: s.hist.FirstDifference(again.hist)}
	}
	return again
}

// exhaustivePossible says why a task cannot be explored, if it cannot.
func exhaustivePossible(engine string) error {
	if engine != "virtual" {
		return errors.New("--strategy exhaustive needs the virtual engine, where the order of statements is decided: leave --engine out")
	}
	return nil
}

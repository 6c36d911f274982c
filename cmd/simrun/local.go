package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
)

// A local carries out tasks with an engine of this process.
type local struct {
	engine sim.Engine
	lookup func(string, *sim.Scenario) (sim.Implementation, error)
	end    func() error // ends what the engine stands on
}

func (x *local) close() error { return errors.Join(x.engine.Close(), x.end()) }

// A job is one task under way.
type job struct {
	task
	engine sim.Engine
	impl   sim.Implementation
	out    *outDir

	result   *sim.Entry
	seen     map[sim.Metric]int
	digests  hash.Hash
	failures map[string]schedule // invariant -> the first schedule that violated it
	memo     map[string]map[string]bool
	failure  error // of the harness
	progress func(stage)
}

// selfCheckEvery is the share of plans that --selfcheck runs twice: one in so many, the first always.
const selfCheckEvery = 5

// A schedule is one plan's run and what the judges said.
type schedule struct {
	index    int
	plan     sim.Plan
	replicas int
	verdicts []sim.Verdict
	hist     *sim.History
	digest   string
	err      error
	file     string // the history, relative to the results folder
}

func (s schedule) violated(invariant string) bool {
	return slices.ContainsFunc(s.verdicts, func(v sim.Verdict) bool { return v.Invariant == invariant && v.Status == sim.StatusViolated })
}

// plain reports whether nothing about the schedule is worth keeping.
func (s schedule) plain() bool {
	return s.err == nil && !slices.ContainsFunc(s.verdicts, func(v sim.Verdict) bool { return v.Status != sim.StatusHeld })
}

func (x *local) begin(t task) (*job, error) {
	impl, err := x.lookup(t.Impl, &t.Scenario)
	if err != nil {
		return nil, err
	}
	expected := t.Scenario.ExpectFor(impl.Name, t.Route)
	return &job{
		task: t, engine: x.engine, impl: impl, out: &outDir{t.Out}, seen: map[sim.Metric]int{}, digests: sha256.New(), failures: map[string]schedule{}, memo: map[string]map[string]bool{},
		result: &sim.Entry{
			Name: t.Scenario.Name, Shows: t.Scenario.Shows, File: t.File, Route: t.Route, Impl: impl.Name, Engine: x.engine.Name(),
			Expected: append([]string{}, expected...), Require: map[string]sim.Count{}, Verdicts: []sim.EntryVerdict{},
			Counterexamples: []sim.CounterSummary{}, Histories: []string{},
		},
	}, nil
}

// entry runs the schedules of a task. An error ends the whole campaign; the entry is nil when nothing of it ran.
func (x *local) entry(ctx context.Context, t task, progress func(stage)) (*sim.Entry, error) {
	j, err := x.begin(t)
	if err != nil {
		return nil, err
	}
	j.progress = progress
	began := time.Now()
	known := map[string]bool{}
	for k, past := range t.Past {
		sc := j.Scenario
		sc.Replicas = past.Replicas
		if s := j.with(sc).schedule(ctx, past.Plan, -1-k, ""); ctx.Err() == nil {
			known[past.Plan.Key()] = known[past.Plan.Key()] || past.Replicas == j.Scenario.Replicas
			j.gather(s)
		} else {
			j.out.remove(s.file)
		}
		if j.failure != nil || j.enough() {
			break
		}
	}
	if t.Strategy == exhaustive {
		j.explore(ctx, began, known)
	}
	for i := 0; t.Strategy != exhaustive && j.more(began, i) && ctx.Err() == nil && j.failure == nil && !j.enough(); i++ {
		plan := gen.Draw(gen.Strategy(t.Strategy), t.Scenario, t.Seed, i)
		if known[plan.Key()] {
			continue // a schedule is a distinct plan's first run
		}
		known[plan.Key()] = true
		s := j.schedule(ctx, plan, i, "")
		if s.err == nil && t.Check && i%selfCheckEvery == 0 {
			s.err = j.selfCheck(ctx, s)
		}
		if s.err != nil && ctx.Err() != nil {
			j.out.remove(s.file)
			break // cut short: it says nothing
		}
		j.gather(s)
		progress(stage{Done: i + 1 + len(t.Past), Of: t.of()})
	}
	if j.result.Schedules == 0 {
		return nil, nil
	}
	j.conclude()
	if ctx.Err() == nil && j.failure == nil {
		j.counterexamples(ctx)
	}
	if cut := j.result.Status == sim.Passed || j.result.Status == sim.FailedEntry && len(j.failures) == 0; ctx.Err() != nil && cut {
		j.result.Status, j.result.Reason = sim.InconclusiveEntry, fmt.Sprintf("interrupted after %d of %s", j.result.Schedules, plural(t.Schedules, "schedule"))
	}
	j.result.WallSeconds = time.Since(began).Seconds()
	var env *sim.EnvironmentError
	if errors.As(j.failure, &env) || isHung(j.failure) {
		return j.result, j.failure // nothing more can be done here
	}
	return j.result, nil
}

func (j *job) more(began time.Time, i int) bool {
	if j.Budget > 0 {
		return i == 0 || time.Since(began) < j.Budget
	}
	return i < j.Schedules
}

// enough says that more schedules would tell nothing new: every expected violation was found, or one that nobody expected.
func (j *job) enough() bool {
	for _, name := range j.result.Expected {
		if _, found := j.failures[name]; !found {
			return false
		}
	}
	return len(j.failures) > 0
}

// schedule carries out one plan and judges it; tag keeps the file of a re-run apart.
func (j *job) schedule(ctx context.Context, plan sim.Plan, i int, tag string) (s schedule) {
	s.plan, s.index, s.replicas = plan, i, j.Scenario.Replicas
	name := fmt.Sprintf("%s.%d%s.jsonl", j.task, i, tag)
	file, err := j.out.createHistory(name)
	if err != nil {
		s.err = err
		return s
	}
	s.file = filepath.Join("histories", name)
	s.hist, s.err = carryOut(ctx, j.engine, sim.Run{Scenario: j.Scenario, Plan: plan, Route: j.Route, Impl: j.impl, Seed: j.Seed, Schedule: i}, file)
	if err := file.Close(); s.err == nil && err != nil {
		s.err = fmt.Errorf("write history: %w", err)
	}
	if s.err == nil {
		s.digest = s.hist.Digest()
		s.verdicts = invariants.Check(j.Scenario.Invariants, s.hist)
	}
	return s
}

// carryOut runs a plan and returns its history.
func carryOut(ctx context.Context, engine sim.Engine, run sim.Run, w io.Writer) (*sim.History, error) {
	buffered := bufio.NewWriter(w)
	var rec *sim.Recorder
	var err error
	if engine.Name() == "live" {
		rec, err = sim.NewRecorder(w, engine.Header(run)) // a crash of simrun must not lose what happened
	} else {
		rec, err = sim.NewRecorder(buffered, engine.Header(run)) // a virtual run can be had again
	}
	if err != nil {
		return nil, err
	}
	if err := engine.Run(ctx, run, rec); err != nil {
		return nil, errors.Join(err, buffered.Flush())
	}
	h, err := rec.Close()
	return h, errors.Join(err, buffered.Flush())
}

// selfCheck runs a plan a second time and compares the histories event by event.
func (j *job) selfCheck(ctx context.Context, s schedule) error {
	again := j.schedule(ctx, s.plan, s.index, ".again")
	if again.err != nil {
		return again.err
	}
	j.result.SelfChecked++
	if again.digest == s.digest {
		j.out.remove(again.file)
		return nil
	}
	return &divergence{entry: j.String(), schedule: s.index, files: [2]string{s.file, again.file}, first: s.hist.FirstDifference(again.hist)}
}

// A divergence says that one plan gave two histories in the virtual engine. It is a defect of the engine, or chance in
// the implementation that the engine does not control.
type divergence struct {
	entry    string
	schedule int
	files    [2]string
	first    string
}

func (d *divergence) Error() string {
	return fmt.Sprintf("self-check: schedule %d of %s gave two histories; first difference: %s (compare %s with %s)",
		d.schedule, d.entry, d.first, d.files[0], d.files[1])
}

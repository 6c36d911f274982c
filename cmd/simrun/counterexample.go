package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
)

// How often a minimal plan is carried out again, and how long shrinking may take. A virtual run takes milliseconds, a live
// one seconds.
const (
	reproduceVirtual = 20
	reproduceLive    = 3
	shrinkVirtual    = 25 * time.Second
	shrinkLive       = 45 * time.Second
)

// A live plan is smaller only if what it shows is shown often enough: in so many of so many runs.
const (
	shownLive = 2
	triedLive = 3
)

// counterexamples shrinks, confirms and saves the first violating schedule of every violated invariant.
func (j *job) counterexamples(ctx context.Context) {
	for _, v := range j.result.Verdicts {
		first, violated := j.failures[v.Invariant]
		expected := slices.Contains(j.result.Expected, v.Invariant)
		if !violated || len(j.result.Expected) > 0 && !expected {
			continue // collateral damage of a flaw that the scenario is not about needs no file of its own
		}
		ce := sim.Counterexample{
			V: sim.CounterexampleVersion, Scenario: j.Scenario, Plan: first.plan, Engine: j.engine.Name(), Route: j.Route, Impl: j.impl.Name,
			Seed: j.Seed, Schedule: first.index, Invariant: v.Invariant, Expected: expected, TimeScale: first.hist.Header.TimeScale,
		}
		ce.Scenario.Replicas = first.replicas
		if j.Shrink {
			j.progress(stage{Done: j.result.Schedules, Of: j.of(), Doing: "shrinking for " + v.Invariant})
			j.shrinkInto(ctx, &ce)
		}
		j.progress(stage{Done: j.result.Schedules, Of: j.of(), Doing: "running the smallest schedule for " + v.Invariant + " again"})
		sum := j.confirm(ctx, &ce, first)
		if err := j.save(&sum, ce); err != nil {
			j.result.Status, j.result.Reason = sim.ErrorEntry, err.Error()
			return
		}
		j.result.Counterexamples = append(j.result.Counterexamples, sum)
		if j.failure != nil {
			return // the engine is not to be trusted with the next one
		}
	}
}

// with is the job for another scenario, for re-runs whose results are not gathered.
func (j *job) with(s sim.Scenario) *job {
	k := *j
	k.Scenario = s
	return &k
}

// shrinkInto replaces ce.Plan, and the number of replicas, by the smallest that still violates the invariant.
func (j *job) shrinkInto(ctx context.Context, ce *sim.Counterexample) {
	limit := shrinkVirtual
	if j.engine.Name() == "live" {
		limit = shrinkLive
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fails := func(sc sim.Scenario) func(sim.Plan) bool {
		k := j.with(sc)
		return func(p sim.Plan) bool { return k.remembered(ctx, p, ce.Schedule)[ce.Invariant] }
	}
	if j.engine.Name() == "live" {
		ce.Plan.Delays, ce.Plan.Picks = nil, nil // they mean nothing there
		ce.Plan = gen.Reduce(ctx, j.Scenario, ce.Plan, func(p sim.Plan) bool {
			return often(ctx, shownLive, triedLive, func() (shown, done bool) {
				s := j.schedule(ctx, p, ce.Schedule, ".shrink")
				j.out.remove(s.file)
				return s.violated(ce.Invariant), s.err == nil
			})
		})
		return
	}
	if ce.Schedule < 0 || ce.Schedule == 0 && j.Scenario.Plan != nil && j.Strategy != exhaustive {
		return // a past failure, and a scenario's own plan, is minimal already, and no seed leads to it
	}
	if j.Strategy == exhaustive {
		ce.Plan = gen.Reduce(ctx, j.Scenario, ce.Plan, fails(j.Scenario))
	} else if got := gen.Shrink(ctx, gen.Strategy(j.Strategy), j.Scenario, j.Seed, ce.Schedule, fails(j.Scenario)); got.Found {
		ce.Plan = got.Plan
	}
	for n := 2; n < j.Scenario.Replicas && ctx.Err() == nil; n++ {
		fewer := j.Scenario
		fewer.Replicas = n
		if fails(fewer)(ce.Plan) || j.Strategy != exhaustive && j.drawAnew(ctx, ce, fewer, fails(fewer)) {
			ce.Scenario = fewer
			return
		}
	}
}

// drawnAnew is how many schedules with fewer replicas are tried where the smallest one needs all of them.
const drawnAnew = 4

// drawAnew looks for a schedule of a scenario with fewer replicas that fails, and that is as small otherwise: with one replica less
// another one leads, and a plan made for the one may miss the other.
func (j *job) drawAnew(ctx context.Context, ce *sim.Counterexample, fewer sim.Scenario, fails func(sim.Plan) bool) bool {
	by := gen.Strategy(j.Strategy)
	for i := range drawnAnew {
		if ctx.Err() != nil || !fails(gen.Draw(by, fewer, j.Seed, i)) {
			continue
		}
		got := gen.Shrink(ctx, by, fewer, j.Seed, i, fails)
		if got.Found && len(got.Plan.Faults) <= len(ce.Plan.Faults) {
			ce.Plan = got.Plan
			return true
		}
	}
	return false
}

// often says whether run shows a thing in k of n runs, and runs no more often than it takes to know. A run that was not done ends it.
func often(ctx context.Context, k, n int, run func() (shown, done bool)) bool {
	for shown, missed := 0, 0; missed <= n-k && ctx.Err() == nil; {
		is, done := run()
		switch {
		case !done:
			return false
		case is:
			shown++
		default:
			missed++
		}
		if shown >= k {
			return true
		}
	}
	return false
}

// remembered says which invariants a plan violates. Shrinking for a second invariant goes over many of the plans that the first one
// tried, so verdicts are kept.
func (j *job) remembered(ctx context.Context, p sim.Plan, index int) map[string]bool {
	key := fmt.Sprintf("%d %s", j.Scenario.Replicas, p.Key())
	if broken, known := j.memo[key]; known {
		return broken
	}
	s := j.schedule(ctx, p, index, ".shrink")
	j.out.remove(s.file)
	if s.err != nil {
		return nil // interrupted, or the plan cannot be carried out: nothing to remember
	}
	broken := map[string]bool{}
	for _, v := range s.verdicts {
		broken[v.Invariant] = v.Status == sim.StatusViolated
	}
	j.memo[key] = broken
	return broken
}

// confirm runs the minimal plan again and describes what it does. The first history that shows the violation is kept.
func (j *job) confirm(ctx context.Context, ce *sim.Counterexample, first schedule) sim.CounterSummary {
	again := j.with(ce.Scenario)
	n := reproduceVirtual
	if j.engine.Name() == "live" {
		n = reproduceLive
	}
	if !j.Shrink {
		n = 1 // whoever does not want to wait for the smallest does not want to wait for proof either
	}
	sum := sim.CounterSummary{Invariant: ce.Invariant, Replicas: ce.Scenario.Replicas, Faults: len(ce.Plan.Faults), Schedule: []string{}, AsFound: !j.Shrink}
	for _, f := range ce.Plan.Faults {
		sum.Schedule = append(sum.Schedule, f.String())
	}
	best, k, ran := first, 0, 0
	for ; ran < n && ctx.Err() == nil; ran++ {
		s := again.schedule(ctx, ce.Plan, ce.Schedule, fmt.Sprintf(".%s.minimal%d", ce.Invariant, ran))
		if s.err != nil {
			if ctx.Err() == nil {
				j.failure = fmt.Errorf("run the smallest schedule for %s again: %w", ce.Invariant, s.err)
				j.result.Status, j.result.Reason = sim.ErrorEntry, j.failure.Error()
			}
			j.out.remove(s.file)
			break
		}
		shows := s.violated(ce.Invariant)
		if shows {
			k++
		}
		if shows && best.file == first.file {
			best = s
		} else {
			j.out.remove(s.file)
		}
	}
	if ran > 0 {
		sum.Reproduced = fmt.Sprintf("%d/%d", k, ran)
	}
	sum.History, ce.Digest, ce.Text = best.file, best.digest, textOf(best, ce.Invariant)
	return sum
}

// textOf is the sentence of the first violation of an invariant.
func textOf(s schedule, invariant string) string {
	for _, v := range s.verdicts {
		if v.Invariant == invariant && len(v.Violations) > 0 {
			return v.Violations[0].Text
		}
	}
	return ""
}

func (j *job) save(sum *sim.CounterSummary, ce sim.Counterexample) error {
	ce.Scenario = scenarios.Resolve(ce.Scenario) // a later simrun may have other defaults
	b, err := json.MarshalIndent(ce, "", "  ")
	if err != nil {
		return fmt.Errorf("write the counterexample: %w", err)
	}
	sum.File = filepath.Join("counterexamples", j.String()+"."+ce.Invariant+".json")
	path := filepath.Join(j.out.dir, sum.File)
	if err := writeFile(path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the counterexample: %w", err)
	}
	sum.Replay = sim.ShellQuote(cmp.Or(j.Program, "simrun")) + " replay " + sim.ShellQuote(path)
	return nil
}

var scenarioName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// loadCounterexample reads a saved counterexample and checks that this simrun can carry it out.
func loadCounterexample(path string) (*sim.Counterexample, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, usagef("%s is no ordinary file; counterexamples lie in simrun-out/*/counterexamples/", path) // a pipe would keep us waiting for ever
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("there is no file %s; counterexamples of the last run lie in simrun-out/latest/counterexamples/", path)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("read the counterexample: %w", err)}
	}
	var ce sim.Counterexample
	// What is something else altogether, such as a result.json, is told by what it lacks and not by the first field that is strange.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, usagef("%s is not a counterexample: it holds no JSON object; expected a file from simrun-out/*/counterexamples/", path)
	}
	for _, needed := range []string{"v", "invariant", "scenario", "plan"} {
		if _, ok := fields[needed]; !ok {
			return nil, usagef("%s is not a counterexample: it has no %q; expected a file from simrun-out/*/counterexamples/", path, needed)
		}
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&ce); err != nil {
		return nil, usagef("%s cannot be read: %v; expected a file from simrun-out/*/counterexamples/", path, err)
	}
	switch {
	case ce.V != sim.CounterexampleVersion || ce.Plan.V != sim.PlanVersion:
		return nil, usagef("%s has format %d with plan format %d; this simrun reads %d and %d", path, ce.V, ce.Plan.V, sim.CounterexampleVersion, sim.PlanVersion)
	case !invariants.Known(ce.Invariant):
		return nil, usagef("%s names the invariant %q, which this simrun does not know%s", path, ce.Invariant, didYouMean(ce.Invariant, invariantNames()))
	case ce.Scenario.Replicas < 1 || ce.Scenario.Replicas > sim.MaxReplicas || ce.Plan.Horizon <= 0 || len(ce.Scenario.Invariants) == 0:
		return nil, usagef("%s is not a complete counterexample: replicas, horizon or invariants are missing or out of range", path)
	case !scenarioName.MatchString(ce.Scenario.Name):
		return nil, usagef("%s names its scenario %q, which is no scenario's name", path, ce.Scenario.Name)
	case ce.TimeScale < 0 || ce.TimeScale > 1:
		return nil, usagef("%s has a time_scale outside 0..1", path)
	case !slices.Contains(sim.Routes, ce.Route):
		return nil, usagef("%s names the route %q%s; known are %v", path, ce.Route, didYouMean(string(ce.Route), routeNames()), sim.Routes)
	}
	of := ce.Scenario
	of.Routes = sim.Routes // ce.Route is the one that counts
	if err := scenarios.CheckPlan(of, ce.Plan, scenarios.Invariants(invariantNames()...)); err != nil {
		return nil, usagef("%s cannot be carried out:\n%v", path, err)
	}
	return &ce, nil
}

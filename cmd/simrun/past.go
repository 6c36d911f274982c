package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
)

// maxPast is how many plans of past failures an entry tries before it draws new ones.
const maxPast = 10

// A pastPlan is a plan that broke something, with the number of replicas it did so with.
type pastPlan struct {
	Plan     sim.Plan `json:"plan"`
	Replicas int      `json:"replicas"`
}

// pastFailures are the distinct plans that broke this task in earlier runs below the same results folder, those of latest first and then the newest.
// They are tried first: what was broken an hour ago is the likeliest thing to be broken now. A file that cannot be read is passed over, since
// it is no input of this run. A task that is expected to fail is left to its seed, so that its figures mean something.
func pastFailures(root string, t task) (plans []pastPlan) {
	if len(t.Scenario.ExpectFor(t.Impl, t.Route)) > 0 {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "counterexamples", t.String()+".*.json"))
	if err != nil {
		return nil
	}
	slices.Sort(files) // by time, since the folder's name begins with it; the link latest is after them all
	slices.Reverse(files)
	known := map[string]bool{}
	for _, f := range files {
		ce, err := loadCounterexample(f)
		if err != nil || ce.Scenario.Name != t.Scenario.Name || ce.Route != t.Route || ce.Impl != t.Impl || known[ce.Plan.Key()] {
			continue
		}
		known[ce.Plan.Key()] = true
		if plans = append(plans, pastPlan{ce.Plan, ce.Scenario.Replicas}); len(plans) == maxPast {
			break
		}
	}
	return plans
}

// again is the tasks of what did not pass in <out>/latest, each with the scenario as it is now, and how many there were. Seed and engine are those of
// that run unless they are given.
func (f *runFlags) again(given func(flag string) bool) (tasks []task, of int, err error) {
	latest := filepath.Join(f.out, "latest")
	last, err := readResult(latest)
	if err != nil {
		return nil, 0, err
	}
	if !given("seed") {
		f.seed = last.Seed
	}
	for _, e := range last.Scenarios {
		if e.Status == sim.Passed {
			continue
		}
		if !given("engine") {
			f.engine = e.Engine
		}
		c, err := scenarioAgain(e)
		if err != nil {
			return nil, 0, err
		}
		g := *f
		g.routes, g.impls = []string{string(e.Route)}, []string{e.Impl}
		more, _, err := g.tasks([]choice{c}, true)
		if err != nil {
			return nil, 0, err
		}
		tasks = append(tasks, more...)
	}
	return tasks, len(last.Scenarios), nil
}

// scenarioAgain finds the scenario of an entry of an earlier run.
func scenarioAgain(e sim.Entry) (choice, error) {
	if e.File != "" {
		s, err := loadScenario(e.File)
		if err != nil {
			return choice{}, usageError{err}
		}
		if s.Name != e.Name {
			return choice{}, usagef("%s held the scenario %s in the last run and holds %s now; name the file instead of --last-failed", e.File, e.Name, s.Name)
		}
		return choice{*s, e.File}, nil
	}
	s, ok := scenarios.ByName(e.Name)
	if !ok {
		return choice{}, usageError{fmt.Errorf("the last run had a scenario %q, which this simrun does not have%s", e.Name, didYouMean(e.Name, scenarios.Names()))}
	}
	return choice{Scenario: s}, nil
}

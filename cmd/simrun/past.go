package main

import (
	"path/filepath"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// maxPast is how many plans of past failures an entry tries before it draws new ones.
const maxPast = 10

// pastFailures are the distinct plans that broke this task in earlier runs below the same results folder, the newest first. They are tried
// first: what was broken an hour ago is the likeliest thing to be broken now. A file that cannot be read is passed over, since
// it is no input of this run. A task that is expected to fail is left to its seed, so that its figures mean something.
func pastFailures(root string, t task) (plans []sim.Plan) {
	if len(t.Scenario.ExpectFor(t.Impl, t.Route)) > 0 {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "counterexamples", t.String()+".*.json"))
	if err != nil {
		return nil
	}
	slices.Sort(files) // by time: the folder's name begins with it
	slices.Reverse(files)
	known := map[string]bool{}
	for _, f := range files {
		ce, err := loadCounterexample(f)
		if err != nil || ce.Scenario.Name != t.Scenario.Name || ce.Route != t.Route || ce.Impl != t.Impl || known[ce.Plan.Key()] {
			continue
		}
		known[ce.Plan.Key()] = true
		if plans = append(plans, ce.Plan); len(plans) == maxPast {
			break
		}
	}
	return plans
}

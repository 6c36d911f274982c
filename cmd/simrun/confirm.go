package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// confirmBudget is the wall time that live runs of counterexamples may take in one run.
const confirmBudget = 90 * time.Second

// confirmLive carries out the counterexamples of virtual runs with processes on the wall clock, n times each, and notes k of n.
// A plan that only an exact interleaving breaks may well show 0 of n: that says how rare it is, not that it is wrong.
func (w *world) confirmLive(ctx context.Context, f runFlags, out *outDir, entries []sim.Entry, n int, watch *watch, say func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, confirmBudget)
	defer cancel()
	var x executor
	for i := range entries {
		for k := range entries[i].Counterexamples {
			ce, err := loadCounterexample(filepath.Join(out.dir, entries[i].Counterexamples[k].File))
			if err != nil {
				return err
			}
			if !liveCan(ce.Plan) || ctx.Err() != nil {
				continue
			}
			if x == nil {
				f.engine = "live"
				if x, err = w.executor(ctx, f, out, "live", len(w.pool)+1); err != nil {
					return err
				}
				w.pool = append(w.pool, x)
			}
			got, err := x.replay(ctx, replayTask{Counterexample: *ce, Times: n, Out: out.dir}, func(s stage) {
				s.Doing = fmt.Sprintf("confirming %s live, %d of %d", ce.Invariant, s.Done, n)
				watch.at(entries[i].Name, s)
			})
			watch.leave(entries[i].Name)
			if err != nil && ctx.Err() == nil {
				return err
			}
			if got.Ran == 0 {
				continue
			}
			out.remove(got.History)
			entries[i].Counterexamples[k].Live = fmt.Sprintf("%d/%d", got.Reproduced, got.Ran)
			say(fmt.Sprintf("%s, %s, %s: %s live %d/%d", entries[i].Name, entries[i].Route, entries[i].Impl, ce.Invariant, got.Reproduced, got.Ran))
		}
	}
	return nil
}

// liveCan says whether the live engine can do every fault of a plan.
func liveCan(p sim.Plan) bool {
	for _, f := range p.Faults {
		info, ok := sim.FaultByKind(f.Kind)
		if !ok || !info.Live || f.Before != nil || f.After != nil {
			return false
		}
	}
	return true
}

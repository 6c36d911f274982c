package virtual

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Faults are planned, wait for their instant or their statement, find their targets, are applied, and heal. What each
// kind does is in inject.go.

// A fault is one of the plan's faults on its way.
type fault struct {
	num     int
	f       sim.Fault
	state   faultState
	seen    int    // statements that matched its trigger
	heal    func() // ends it; nil: it is over at once
	later   bool   // it takes effect some time after it was ordered
	proved  bool   // and it has
	targets []*replica
}

type faultState int

const (
	faultPlanned  faultState = iota
	faultArmed               // waits for its statement
	faultSearches            // waits for somebody to hit
	faultActive              // applied, not healed
	faultOver
)

// targetWait is how long a fault waits for its target: for a leader when nobody leads.
const targetWait = sim.Duration(15 * time.Second)

func (w *world) planFaults(ctx context.Context) {
	w.ctx = ctx
	for i, f := range w.plan.Faults {
		x := &fault{num: i + 1, f: f}
		w.faults = append(w.faults, x)
		w.at(w.start.Add(f.At.D()), true, func() { w.due(x) })
	}
}

func (w *world) due(x *fault) {
	w.faultEvent(x, sim.OpPlanned, x.f.String(), "")
	if x.f.Before != nil || x.f.After != nil {
		x.state = faultArmed
		return
	}
	w.search(x)
	if x.state == faultSearches {
		w.after(targetWait, true, func() {
			if x.state == faultSearches {
				w.moot(x, fmt.Sprintf("nobody to hit within %s: there was no %s", targetWait, x.f.Target))
			}
		})
	}
}

// search applies a fault if its target is there.
func (w *world) search(x *fault) {
	x.state = faultSearches
	info, _ := sim.FaultByKind(x.f.Kind)
	targets := w.resolve(x.f.Target)
	if info.Targets && len(targets) == 0 {
		return
	}
	w.apply(x, targets, nil)
}

// wakeFaults is for when somebody begins or ceases to lead.
func (w *world) wakeFaults() {
	for _, x := range w.faults {
		if x.state == faultSearches {
			w.at(time.Now(), true, func() {
				if x.state == faultSearches {
					w.search(x)
				}
			})
		}
	}
}

// resolve finds whom a target means now.
func (w *world) resolve(t sim.Target) (out []*replica) {
	var leader, standby *replica
	for _, r := range w.reps {
		switch {
		case r.down:
		case r.leading > 0:
			if leader == nil || r.leading > leader.leading {
				leader = r
			}
		case standby == nil:
			standby = r
		}
		if !r.down && (t == sim.TargetAll || t.Replica() == r.num) {
			out = append(out, r)
		}
	}
	if t == sim.TargetLeader && leader != nil {
		return []*replica{leader}
	}
	if t == sim.TargetStandby && standby != nil {
		return []*replica{standby}
	}
	return out
}

// trigger applies faults that wait for this statement.
func (w *world) trigger(q *request, after bool) {
	for _, x := range w.faults {
		t := x.f.Before
		if after {
			t = x.f.After
		}
		if x.state != faultArmed || t == nil || !strings.Contains(q.info.lower, strings.ToLower(t.Pattern)) {
			continue
		}
		info, _ := sim.FaultByKind(x.f.Kind)
		if info.Targets && !slices.Contains(w.resolve(x.f.Target), q.gate.rep) {
			continue
		}
		if x.seen++; x.seen == max(1, t.Nth) {
			w.apply(x, []*replica{q.gate.rep}, q)
		}
	}
}

// apply carries a fault out. q is the statement that triggered it, nil at an instant.
func (w *world) apply(x *fault, targets []*replica, q *request) {
	inject := injectorOf(x.f.Kind)
	if inject == nil {
		w.over(x, sim.OpFailed, "the virtual engine cannot do this")
		return
	}
	x.state, x.targets = faultActive, targets
	res := inject(w, x, targets, q)
	switch {
	case res.moot != "":
		w.moot(x, res.moot)
		return
	case res.failed != "":
		w.over(x, sim.OpFailed, res.failed)
		return
	}
	if x.later = res.later; !x.later {
		w.faultEvent(x, sim.OpApplied, res.proof, "")
	}
	if x.heal = res.heal; x.heal == nil {
		x.state = faultOver
		return
	}
	if x.f.For > 0 && !res.heals {
		w.after(x.f.For, true, func() { w.healed(x) })
	}
}

// healed ends a fault.
func (w *world) healed(x *fault) {
	if x.state != faultActive {
		return
	}
	x.state = faultOver
	x.heal()
	w.faultEvent(x, sim.OpHealed, "", "")
}

func (w *world) moot(x *fault, reason string) { w.over(x, sim.OpMoot, reason) }

func (w *world) over(x *fault, op, reason string) {
	x.state = faultOver
	w.faultEvent(x, op, "", reason)
}

func (w *world) faultEvent(x *fault, op, text, reason string) {
	e := sim.Event{Kind: sim.EvFault, Op: op, Fault: x.num, Text: text, Reason: reason}
	for _, r := range x.targets {
		e.Targets = append(e.Targets, r.num)
	}
	w.record(e)
}

// finishing is the horizon: what has not come to pass will not, what is broken heals, and then the replicas stop.
func (w *world) finishing() {
	w.closing = true
	for _, x := range w.faults {
		switch x.state {
		case faultArmed:
			w.moot(x, fmt.Sprintf("the statement did not come: %d matched", x.seen))
		case faultSearches, faultPlanned:
			w.moot(x, "the run was over")
		case faultActive:
			if x.later && !x.proved {
				w.moot(x, "no task began any more")
				continue
			}
			switch x.f.Kind {
			case sim.Kill, sim.Stop, sim.Restart, sim.RollingDeploy: // what is down stays down
			default:
				w.healed(x)
			}
		}
	}
}

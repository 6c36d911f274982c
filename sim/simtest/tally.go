package simtest

import (
	"fmt"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A tally gathers what happened in the schedules of one route, none of which broke an invariant. It decides whether that
// means anything.
type tally struct {
	schedules int
	held      map[string]int    // schedules in which an invariant held
	notes     map[string]string // what should be known of how one-leader was judged
	unsure    map[string]string // why it was inconclusive, the first time
	faults    map[string]int    // by what became of them: applied, moot, failed
	spoilt    map[string]string // why a fault was moot or failed, the first time
	counts    map[sim.Metric]int
	connected bool   // some replica, at some time
	ended     string // the first replica that ended by itself
}

func newTally() *tally {
	return &tally{held: map[string]int{}, notes: map[string]string{}, unsure: map[string]string{}, faults: map[string]int{}, spoilt: map[string]string{}, counts: map[sim.Metric]int{}}
}

// add takes in schedule i.
func (t *tally) add(i int, h *sim.History, verdicts []sim.Verdict) {
	t.schedules++
	for _, v := range verdicts {
		switch v.Status {
		case sim.StatusHeld:
			if t.held[v.Invariant]++; v.Invariant == "one-leader" && v.Note != "" {
				first(t.notes, v.Invariant, v.Note)
			}
		case sim.StatusInconclusive:
			first(t.unsure, v.Invariant, fmt.Sprintf("%s (schedule %d)", v.Reason, i))
		}
	}
	for _, m := range sim.Metrics {
		t.counts[m] += h.Count(m)
	}
	for k, e := range h.Events {
		switch {
		case e.Kind == sim.EvStatement:
			t.connected = true
		case e.Kind == sim.EvFault:
			t.faults[e.Op]++
			first(t.spoilt, e.Op, fmt.Sprintf("%s: %s (schedule %d)", planned(h, e.Fault), e.Reason, i))
		case t.ended == "" && e.Kind == sim.EvDown && e.Fault == 0 && e.At < h.Header.Plan.Horizon:
			t.ended = fmt.Sprintf("%s %s at %s of schedule %d, before its context ended%s", e.Who(), e.Reason, e.At, i, lastWords(h.Events[:k], e))
		}
	}
}

// first keeps the first text under a name.
func first(m map[string]string, name, text string) {
	if _, there := m[name]; !there {
		m[name] = text
	}
}

// planned is the plan's fault n in words.
func planned(h *sim.History, n int) string {
	if fs := h.Header.Plan.Faults; n >= 1 && n <= len(fs) {
		return fs[n-1].String()
	}
	return fmt.Sprintf("fault %d", n)
}

// lastWords is the last statement of the replica that an event is about: an error in a history has no more than its code.
func lastWords(before []sim.Event, e sim.Event) string {
	for i := len(before) - 1; i >= 0; i-- {
		if b := before[i]; b.Kind == sim.EvStatement && b.Replica == e.Replica && b.Incarnation == e.Incarnation {
			return fmt.Sprintf("; its last statement was %s  ->  %s", b.SQL, b.Answer)
		}
	}
	return ""
}

// doubt says why the schedules show nothing, "" when they show that the scenario's invariants hold. The order is that of the command line.
func (t *tally) doubt(s sim.Scenario, route sim.Route, impl string) string {
	why, wayOut := t.reason(s, route, impl)
	if why == "" {
		return ""
	}
	text := fmt.Sprintf("inconclusive: on the route %s, in %s: %s\n", route, counted(t.schedules, "schedule"), why)
	if t.ended != "" {
		text += t.ended + "\n"
	}
	return text + wayOut + "\n"
}

func (t *tally) reason(s sim.Scenario, route sim.Route, impl string) (why, wayOut string) {
	if n := t.faults[sim.OpFailed]; n > 0 {
		return fmt.Sprintf("%s could not be carried out; the first, %s", counted(n, "fault"), t.spoilt[sim.OpFailed]), "Take the fault out of Faults."
	}
	var unjudged []string
	for _, name := range s.Invariants {
		if t.held[name] == 0 {
			unjudged = append(unjudged, fmt.Sprintf("%s could not be judged in any: %s", name, t.unsure[name]))
		}
	}
	if len(unjudged) > 0 && !t.connected && t.ended != "" {
		return strings.Join(unjudged, "\n"), "No replica ever reached the database: connect by the package sim/connect (connect.Connect, PoolConfig, DB), which dials in virtual time; env.DSN alone leads nowhere."
	}
	if len(unjudged) > 0 {
		return strings.Join(unjudged, "\n"), "Have the replicas do and report what is judged (env.Emit when leadership begins and ends, simtest.Effect in the transaction of each effect), or take it out of Invariants."
	}
	if n := t.faults[sim.OpMoot]; n > 0 && t.faults[sim.OpApplied] == 0 {
		return fmt.Sprintf("nothing was broken: %s came to nothing, and none took effect; the first, %s", counted(n, "planned fault"), t.spoilt[sim.OpMoot]),
			"Give Faults that find a target, such as a replica's number where none says that it leads, or an empty list (not nil) for none at all."
	}
	var missing []string
	for _, r := range s.RequireFor(impl, route) {
		if n := t.counts[r.What]; n < r.AtLeast {
			missing = append(missing, fmt.Sprintf("%s: %d, required %d", r.What, n, r.AtLeast))
		}
	}
	if len(missing) > 0 {
		return "not enough happened: " + strings.Join(missing, "; "), "Run more schedules (simtest.Schedules) or a longer Duration, or require less."
	}
	return "", ""
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

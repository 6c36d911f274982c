package reports

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/sim"
)

// An exhibit is a history that the page shows, with the violation that it is shown for, if any.
type exhibit struct {
	entry     *sim.Entry
	file      string
	h         *sim.History
	invariant string // "" for one that is shown because it passed
	expected  bool
	counter   *sim.CounterSummary
	violation *sim.Violation // in the words and by the events of this very history
}

// exhibits are the histories worth looking at, the most telling first: violations that nobody expected, those that were
// expected, and then whatever else was saved.
func exhibits(p Page) []exhibit {
	var bad, wanted, rest []exhibit
	for i := range p.Result.Scenarios {
		e := &p.Result.Scenarios[i]
		for _, v := range e.Verdicts {
			if v.Status != sim.StatusViolated {
				continue
			}
			x := exhibit{entry: e, invariant: v.Invariant, expected: isExpected(*e, v.Invariant)}
			if !x.find(p, v) {
				continue
			}
			x.judge(v)
			switch {
			case x.expected:
				wanted = append(wanted, x)
			case len(e.Expected) > 0 && e.Status == sim.Passed:
				rest = append(rest, x)
			default:
				bad = append(bad, x)
			}
		}
		for _, file := range e.Histories {
			if h := p.Histories[file]; h != nil {
				rest = append(rest, exhibit{entry: e, file: file, h: h})
			}
		}
	}
	// A failover is more to look at than a quiet run.
	slices.SortStableFunc(rest, func(a, b exhibit) int {
		return cmp.Compare(min(b.h.Count(sim.LeaderChanges), 1), min(a.h.Count(sim.LeaderChanges), 1))
	})
	var out []exhibit
	for _, x := range slices.Concat(bad, wanted, rest) {
		if !slices.ContainsFunc(out, func(o exhibit) bool { return o.file == x.file }) {
			out = append(out, x)
		}
	}
	return out
}

// find looks for a history that shows the violation: that of the counterexample, or of the schedule in which it was seen.
func (x *exhibit) find(p Page, v sim.EntryVerdict) bool {
	for i := range x.entry.Counterexamples {
		c := &x.entry.Counterexamples[i]
		if c.Invariant == v.Invariant {
			x.counter = c
			if x.file, x.h = c.History, p.Histories[c.History]; x.h != nil {
				return true
			}
		}
	}
	for _, file := range x.entry.Histories {
		if h := p.Histories[file]; h != nil && len(v.Violations) > 0 && h.Header.Schedule == v.Violations[0].Schedule {
			x.file, x.h = file, h
			return true
		}
	}
	return false
}

// judge asks the invariant again, about this history: the schedule in which the violation was seen first was another one,
// with other instants and other events. Where it says nothing, which a live run may do, the first sentence stands.
func (x *exhibit) judge(v sim.EntryVerdict) {
	for _, again := range invariants.Check([]string{x.invariant}, x.h) {
		if again.Status == sim.StatusViolated && len(again.Violations) > 0 {
			x.violation = &again.Violations[0]
			return
		}
	}
	if len(v.Violations) > 0 {
		first := v.Violations[0]
		x.violation = &sim.Violation{Text: first.Text, Cause: first.Cause, At: sim.Duration(first.AtSeconds * 1e9), Replicas: first.Replicas}
	}
}

func (x *exhibit) blamed() map[int]bool {
	out := map[int]bool{}
	if x.violation != nil {
		for _, seq := range x.violation.Events {
			out[seq] = true
		}
	}
	return out
}

// keep chooses n events of a long history: those that tell the story, then those nearest to the violation, statements last.
func (x *exhibit) keep(n int) []sim.Event {
	if len(x.h.Events) <= n {
		return x.h.Events
	}
	blamed, near := x.blamed(), sim.Duration(0)
	if x.violation != nil {
		near = x.violation.At
	}
	rank := func(e sim.Event) int {
		switch {
		case blamed[e.Seq]:
			return 0
		case key(e):
			return 1
		case e.Kind == sim.EvStatement:
			return 3
		}
		return 2
	}
	order := make([]int, len(x.h.Events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := x.h.Events[i], x.h.Events[j]
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare((a.At-near).D().Abs(), (b.At-near).D().Abs()))
	})
	order = order[:n]
	slices.Sort(order)
	out := make([]sim.Event, n)
	for i, j := range order {
		out[i] = x.h.Events[j]
	}
	return out
}

// schedule is the plan's faults in words; the counterexample's summary has the same, but not every history has one.
func (x *exhibit) schedule() []string {
	list := make([]string, 0, len(x.h.Header.Plan.Faults))
	for _, f := range x.h.Header.Plan.Faults {
		list = append(list, f.String())
	}
	return list
}

// scale says how the times of the schedule relate to those of the run.
func (x *exhibit) scale() string {
	if s := x.h.Header.TimeScale; s > 0 && s != 1 {
		return fmt.Sprintf("The times of the schedule are nominal; this run had them × %v.", s)
	}
	return ""
}

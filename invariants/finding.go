package invariants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A finding gathers what a judge sees; verdict draws the conclusion.
type finding struct {
	examined   int
	violations []sim.Violation
	unsure     []string // why what was examined cannot be decided
	nothing    string   // why there was nothing to examine
	notes      []string
	measures   []sim.Measure
}

func (f *finding) violated(v sim.Violation) { f.violations = append(f.violations, v) }

// doubt says why something cannot be decided; each reason once.
func (f *finding) doubt(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(f.unsure, s) {
		f.unsure = append(f.unsure, s)
	}
}

func (f *finding) note(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(f.notes, s) {
		f.notes = append(f.notes, s)
	}
}

// verdict is the only place in which a status is decided.
func (f *finding) verdict(name string, h *sim.History) sim.Verdict {
	v := sim.Verdict{Invariant: name, Examined: f.examined, Measures: f.measures, Violations: f.violations, Note: strings.Join(f.notes, "; ")}
	slices.SortStableFunc(v.Violations, func(a, b sim.Violation) int { return cmpDuration(a.At, b.At) })
	reasons := slices.Clone(f.unsure)
	if r := unfit(h); r != "" {
		reasons = append(reasons, r)
	}
	if f.examined == 0 {
		r := f.nothing
		if r == "" {
			r = "nothing to examine: the history holds no event that this invariant is about"
		}
		reasons = append(reasons, r)
	}
	switch {
	case len(f.violations) > 0:
		v.Status = sim.StatusViolated
	case len(reasons) > 0:
		v.Reason = strings.Join(reasons, "; ")
	default:
		v.Status = sim.StatusHeld
	}
	return v
}

// unfit says why a history can hold nothing, "" when it can. What is violated in it is violated all the same.
func unfit(h *sim.History) string {
	var first *sim.Event // by its number: the order in which the events came to be written means nothing
	for i, e := range h.Events {
		if e.Kind == sim.EvFault && e.Op == sim.OpFailed && (first == nil || e.Seq < first.Seq) {
			first = &h.Events[i]
		}
	}
	if first != nil {
		return fmt.Sprintf("the harness could not carry out fault %d: %s", first.Fault, orUnknown(first.Reason))
	}
	if !h.Complete {
		return "the history was cut short: its closing line is missing"
	}
	return ""
}

func orUnknown(s string) string {
	if s == "" {
		return "no reason is given"
	}
	return s
}

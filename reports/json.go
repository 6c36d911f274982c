package reports

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/seed-aafb3a99/simrun/sim"
)

// JSON writes result.json. Lists are never null, so that scripts can loop without asking.
func JSON(w io.Writer, r *sim.Result) error {
	c := *r
	c.Scenarios = make([]sim.Entry, len(r.Scenarios))
	for i, e := range r.Scenarios {
		e.Expected, e.Verdicts = orEmpty(e.Expected), append([]sim.EntryVerdict{}, e.Verdicts...)
		e.Counterexamples, e.Histories = append([]sim.CounterSummary{}, e.Counterexamples...), orEmpty(e.Histories)
		if e.Require == nil {
			e.Require = map[string]sim.Count{}
		}
		for _, m := range []*map[string]int{&e.Coverage.Faults, &e.Coverage.States, &e.Coverage.Statements} {
			if *m == nil {
				*m = map[string]int{}
			}
		}
		for j := range e.Verdicts {
			e.Verdicts[j].Violations = append([]sim.EntryViolation{}, e.Verdicts[j].Violations...)
			for k := range e.Verdicts[j].Violations {
				v := &e.Verdicts[j].Violations[k]
				v.Replicas = orEmpty(v.Replicas)
			}
		}
		for j := range e.Counterexamples {
			e.Counterexamples[j].Schedule = orEmpty(e.Counterexamples[j].Schedule)
		}
		c.Scenarios[i] = e
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(&c); err != nil {
		return fmt.Errorf("write result.json: %w", err)
	}
	return nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

package invariants

import (
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// noDuplicatePublish counts the committed effects of each unit, (row, schedule number), in the ledger. What clients were told
// does not matter: an effect whose answer was lost counts, one that was rolled back does not.
func noDuplicatePublish(w *world) (f finding) {
	type unit struct{ row, no int64 }
	first := map[unit]*effect{}
	extra := map[unit][]*effect{}
	var order []unit
	for _, e := range w.effects {
		u := unit{e.Row, e.Unit}
		if first[u] == nil {
			first[u] = e
			continue
		}
		if extra[u] == nil {
			order = append(order, u)
		}
		extra[u] = append(extra[u], e)
	}
	f.examined = len(w.effects)
	f.nothing = "nothing was published"
	// What the same publishers did to several rows is one violation.
	type group struct {
		v    sim.Violation
		rows []int64
	}
	groups := map[string]*group{}
	var names []string
	for _, u := range order {
		v := w.published(first[u], extra[u])
		name := fmt.Sprint(v.Replicas, v.Cause)
		if g := groups[name]; g != nil {
			g.rows = append(g.rows, u.row)
			continue
		}
		groups[name] = &group{v: v}
		names = append(names, name)
	}
	for _, name := range names {
		g := groups[name]
		g.v.Text += more(g.rows)
		f.violated(g.v)
	}
	return f
}

func (w *world) published(first *effect, again []*effect) sim.Violation {
	v := sim.Violation{At: again[0].At, Cause: w.causeOfDuplicate(first, again[0])}
	var words []string
	for _, e := range append([]*effect{first}, again...) {
		name := "a session without a name of ours"
		if e.known {
			name = e.who.String()
		}
		words = append(words, fmt.Sprintf("by %s at %s%s", name, sec(e.At), inTerm(e)))
		v.Replicas = replicas(append(v.Replicas, e.who.replica)...)
		v.Events = append(v.Events, e.Seq)
	}
	slices.Sort(v.Replicas)
	v.Text = fmt.Sprintf("row %d (unit %d) was published %s: %s", first.Row, first.Unit, times(len(words)), list(words))
	return v
}

func times(n int) string {
	if n == 2 {
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

func (w *world) causeOfDuplicate(first, again *effect) string {
	if first.job != nil && (first.job.end == nil || first.job.end.Outcome == sim.OutcomeUnknown) {
		return "The answer to the first COMMIT never came, and the row was published again. An unknown outcome is no failure: leave the row to the next list, and publish only what is still due, in one statement with the update of its status."
	}
	if first.by != nil && again.by != nil && first.who != again.who {
		if c := w.causeByStructure(first.by, again.by); c != "" {
			return c
		}
	}
	return "The row's status is read in one statement and written in another, so that two publishers both find it due. Update it on the condition that it is still scheduled under the same number, and publish only if that changed one row."
}

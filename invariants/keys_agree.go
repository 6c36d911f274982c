package invariants

import (
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// keysAgree: all replicas of a role compete for one key.
func keysAgree(w *world) (f finding) {
	f.nothing = "nobody tried to take a lock"
	type use struct {
		who   who
		event *sim.Event
	}
	first := map[string]map[int64]use{}
	var roles []string
	for i := range w.events {
		e := &w.events[i]
		if (e.Kind != sim.EvAttempt && e.Kind != sim.EvLead) || e.Key == 0 {
			continue
		}
		f.examined++
		if first[e.Role] == nil {
			first[e.Role] = map[int64]use{}
			roles = append(roles, e.Role)
		}
		if _, ok := first[e.Role][e.Key]; !ok {
			first[e.Role][e.Key] = use{whoOf(e), e}
		}
	}
	for _, role := range roles {
		if len(first[role]) < 2 {
			continue
		}
		var keys []int64
		for k := range first[role] {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b int64) int {
			ea, eb := first[role][a].event, first[role][b].event
			if c := cmpDuration(ea.At, eb.At); c != 0 {
				return c
			}
			return ea.Seq - eb.Seq
		})
		v := sim.Violation{Cause: causeWrongKey}
		var words []string
		for _, k := range keys {
			u := first[role][k]
			words = append(words, fmt.Sprintf("%s for key %d from %s on", u.who, k, sec(u.event.At)))
			v.At = max(v.At, u.event.At)
			v.Replicas = replicas(append(v.Replicas, u.who.replica)...)
			v.Events = append(v.Events, u.event.Seq)
		}
		v.Text = fmt.Sprintf("the replicas of one role%s compete for different keys: %s", roleWords(role), list(words))
		f.violated(v)
	}
	return f
}

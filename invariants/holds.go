package invariants

import "github.com/seed-aafb3a99/simrun/sim"

// Nobody and Unnamed are what the observer calls no holder, and one that has no name of ours.
const (
	nobody  = ""
	unnamed = "?"
)

// A hold is the time for which the observer saw one session, or nobody, hold a key.
type hold struct {
	session string
	since   *sim.Event
	until   *sim.Event // nil: to the end of the history
}

func (w *world) takeHeld(e *sim.Event) {
	hs := w.holds[e.Key]
	if n := len(hs); n > 0 {
		if hs[n-1].session == e.Session {
			return
		}
		hs[n-1].until = e
	}
	w.holds[e.Key] = append(hs, hold{session: e.Session, since: e})
}

// maybeHeld is when the key may have been held by a session that mine accepts; before the observer's first reading it may.
func (w *world) maybeHeld(key int64, mine func(session string) bool) spans {
	hs := w.holds[key]
	if len(hs) == 0 {
		return spans{{0, w.end}}
	}
	all := []span{{0, hs[0].since.Earliest()}}
	for _, h := range hs {
		if !mine(h.session) && h.session != unnamed {
			continue
		}
		s := span{h.since.Earliest(), w.end}
		if h.until != nil {
			s.to = h.until.Latest()
		}
		all = append(all, s)
	}
	return union(forward(all)...)
}

// surely is when the hold was certainly there.
func (h hold) surely(w *world) span {
	if h.until == nil {
		return span{h.since.Latest(), w.end}
	}
	return span{h.since.Latest(), h.until.Earliest()}
}

package invariants

import (
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// stranded judges a route on which a lock belongs to a backend: one that outlives its holder's belief lets nobody lead.
func (w *world) stranded() (f finding) {
	f.nothing = fmt.Sprintf("on %s no leadership ended before the run did, and no lock was left behind", w.h.Header.Route)
	f.note("on a route that cannot carry a session lock, only locks left behind are judged")
	allowed := w.iv.StopGrace + w.iv.BeatDeadline + w.iv.Retry + w.allow
	for _, l := range w.leaderships {
		if l.until() < w.stop {
			f.examined++
		}
	}
	for _, key := range w.keysHeld() {
		for _, s := range w.heldByAny(key).minus(w.believed(key)) {
			s.to = min(s.to, w.stop)
			asked := w.firstBusy(key, s)
			if asked == nil {
				continue
			}
			waited := s.to - s.from
			if !w.live {
				waited -= w.inFlight(s.from, s.to, whoOf(asked))
			}
			f.examined++
			if waited <= allowed {
				continue
			}
			if w.live && w.h.Stalled > w.allow {
				f.doubt("the host stalled for %s, longer than the allowance of %s", sec(w.h.Stalled), sec(w.allow))
				continue
			}
			f.violated(sim.Violation{At: s.from, Replicas: replicas(asked.Replica), Events: seqs(asked),
				Text: fmt.Sprintf("key %d stayed locked from %s to %s though nobody believed to lead, and %s was told that it is busy; %s is allowed",
					key, sec(s.from), sec(s.to), asked.Who(), sec(allowed)),
				Cause: "The lock was taken through a pooler in transaction or statement mode and stayed on the pooled backend when its client had gone; nobody can unlock it there, and it lasts as long as the backend does. Probe the session before taking the lock."})
		}
	}
	return f
}

func (w *world) keysHeld() (keys []int64) {
	for k := range w.holds {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// heldByAny is when the key was surely held, by whomever.
func (w *world) heldByAny(key int64) spans {
	var all []span
	for _, h := range w.holds[key] {
		if h.session == nobody {
			continue
		}
		s := h.surely(w)
		// One holder after the other: in between it was held as well.
		if h.until != nil && h.until.Session != nobody {
			s.to = h.until.Latest()
		}
		all = append(all, s)
	}
	return union(forward(all)...)
}

// believed is when anybody may have believed to lead by the key.
func (w *world) believed(key int64) spans {
	var all []span
	for _, l := range w.leaderships {
		if l.key == key {
			all = append(all, l.maybe...)
		}
	}
	return union(all...)
}

func (w *world) firstBusy(key int64, s span) *sim.Event {
	for _, a := range w.attempts {
		if a.end != nil && a.answer() == sim.Busy && (a.key == key || a.key == 0) && a.end.At >= s.from && a.end.At <= s.to {
			return a.end
		}
	}
	return nil
}

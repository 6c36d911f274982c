package invariants

import (
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// noResidue finds the lock in the hands of a session whose owner does not believe to lead, for longer than a grant may take to
// become a belief, an end to let the lock go, and the server to end a silent session. Where a lock belongs to a pooled backend,
// which changes its client's name at every turn, what counts is that nobody believes.
func noResidue(w *world) (f finding) {
	f.nothing = "nobody was ever seen to hold the lock"
	allowed := w.iv.StopGrace + w.iv.BeatDeadline + w.allow
	if ttl, on := w.ttl(); on {
		allowed = max(allowed, ttl+w.allow)
	}
	worst := sim.Measure{Name: "held without belief", Bound: allowed}
	for _, key := range w.keysHeld() {
		for _, h := range w.namedHolds(key) {
			f.examined++
			for _, s := range w.unowned(key, h) {
				d := s.to - s.from
				if !w.live {
					d -= 2 * w.delivery(h.who().replica)
				}
				worst.Value = max(worst.Value, d)
				if d > allowed {
					f.violated(w.residue(key, h, s, allowed))
				}
			}
		}
	}
	if worst.Value > 0 {
		f.measures = append(f.measures, worst)
	}
	return f
}

// namedHolds are the holds to judge; on a route without sessions of its own, one hold from free to free.
func (w *world) namedHolds(key int64) (hs []hold) {
	pooled := !w.h.Header.Route.Stable()
	for _, h := range w.holds[key] {
		if h.session == nobody {
			continue
		}
		if n := len(hs); pooled && n > 0 && hs[n-1].until != nil && hs[n-1].until.Session != nobody {
			hs[n-1].until = h.until
			continue
		}
		hs = append(hs, h)
	}
	return hs
}

// who is the life whose session holds, as far as its name says.
func (h hold) who() who {
	r, i, _, _ := sim.ParseSession(h.session)
	return who{r, i}
}

// unowned is the part of a hold in which its owner did not believe, less what the server cannot know of.
func (w *world) unowned(key int64, h hold) spans {
	var owned []span
	for _, l := range w.leaderships {
		anyone := !w.h.Header.Route.Stable() || h.session == unnamed
		if l.key == key && (anyone || l.who == h.who()) {
			owned = append(owned, l.maybe...)
		}
	}
	if w.silent {
		// What it believes it does not say; that the living believe is the least that it may claim.
		for _, l := range w.lives {
			if l.up == nil || l.who != h.who() && w.h.Header.Route.Stable() && h.session != unnamed {
				continue
			}
			_, dead := l.died(w)
			owned = append(owned, span{w.early(l.up), dead})
		}
	}
	if route := w.route(h.session); route.Stable() {
		// While the pooler has been reloaded under its clients, who leaves leaves the lock on the backend, whatever it does.
		owned = append(owned, w.unstablePath(route)...)
	}
	if _, on := w.ttl(); !on {
		// Without a TTL the server keeps the lock of a silent client for as long as it is silent.
		for _, fault := range w.faults {
			if fault.nature.silent && fault.hits(h.who().replica) {
				owned = append(owned, fault.span)
			}
		}
	}
	if w.live {
		// Between two samples the lock may have been let go and taken again, by an attempt of the same session.
		for _, a := range w.attempts {
			if a.session == h.session && a.begin != nil {
				owned = append(owned, span{a.begin.At, a.begin.At})
			}
		}
	}
	return spans{h.surely(w)}.within(0, w.stop).minus(union(forward(owned)...))
}

func (w *world) residue(key int64, h hold, s span, allowed sim.Duration) sim.Violation {
	name := "a session without a name of ours"
	if h.who() != (who{}) {
		name = "session " + h.session
	}
	whose := "its owner did not believe to lead"
	cause := "The session that took the lock was put back into a pool, or its client gave up waiting for the answer (a cancelled context), so that nobody knows of the lock any more. After anything but a clean answer, close the session that asked."
	if !w.h.Header.Route.Stable() {
		whose = "nobody believed to lead"
		cause = "The lock was taken through a pooler in transaction or statement mode and stayed on the pooled backend when its client had gone. Probe the session before taking the lock."
	} else if l := w.lives[h.who()]; l != nil && l.down != nil && s.to-max(s.from, l.down.At) > allowed {
		whose = "its owner was dead"
		cause = "The server has not noticed that the client is gone. Give the lease session a time to live on the server (idle_session_timeout)."
	}
	return sim.Violation{At: s.from, Replicas: replicas(h.who().replica), Events: slices.Concat(seqs(h.since), seqs(h.until)),
		Text:  fmt.Sprintf("key %d was held by %s from %s to %s while %s: for %s, where %s is allowed", key, name, sec(s.from), sec(s.to), whose, sec(s.to-s.from), sec(allowed)),
		Cause: cause}
}

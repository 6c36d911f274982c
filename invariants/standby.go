package invariants

import (
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A standby is a replica that could have taken the lock: healthy from one instant to another.
type standby struct {
	who
	from, until sim.Duration
}

// standbys are the replicas that were healthy when the lock became free, or became so: up, not paused, refused as busy on their
// present lease session or with an attempt on its way, and with no fault on their links, the pooler or the server. One that lost
// its session to the fault that took the lock as well is healthy when it has connected again and been probed, at the latest one
// retry interval after the server was back.
func (w *world) standbys(r release) (ss []*standby) {
	for _, l := range w.lives {
		if l.up == nil || w.late(l.up) > r.hi {
			continue
		}
		if died, _ := l.died(w); died <= r.hi {
			continue
		}
		if rep, inc, _, ok := sim.ParseSession(r.holder); ok && l.who == (who{rep, inc}) {
			continue
		}
		from, ok := w.ready(l, r)
		if !ok || !w.hasRoom(l, r.hi) {
			continue
		}
		if until := w.healthyUntil(l, from); until > from {
			ss = append(ss, &standby{who: l.who, from: from, until: until})
		}
	}
	slices.SortFunc(ss, func(a, b *standby) int {
		if c := cmpDuration(a.from, b.from); c != 0 {
			return c
		}
		return 100*(a.replica-b.replica) + a.incarnation - b.incarnation
	})
	return ss
}

// ready is the instant, not before the release, from which the replica waits for the lock on a session that works.
func (w *world) ready(l *life, r release) (from sim.Duration, ok bool) {
	last := w.lastAttempt(l.who, r)
	if last == nil {
		return 0, false
	}
	since := r.lo
	if last.end != nil {
		since = min(since, last.end.At)
	}
	for _, f := range w.inPlay(l.replica, since, r.hi) {
		if !f.nature.session {
			continue
		}
		if f.nature.reach != reachAll {
			return 0, false // hit by a fault of its own
		}
		return max(r.lo, f.span.to, min(w.reconnected(l.who, f.span.from), f.span.to+w.iv.Retry)), true
	}
	inFlight := last.end == nil || last.end.At >= r.lo
	if !inFlight && last.answer() != sim.Busy {
		return 0, false
	}
	if s := w.sessions[last.session]; s != nil && s.closed != nil && s.closed.At <= r.lo {
		return 0, false
	}
	return r.lo, true
}

// lastAttempt is the latest attempt of that life that was begun by the time of the release.
func (w *world) lastAttempt(id who, r release) (last *attempt) {
	for _, a := range w.attempts {
		if a.who != id || a.key != r.key && a.key != 0 {
			continue
		}
		if a.begin != nil && a.begin.At <= r.hi || a.begin == nil && a.end.At <= r.hi {
			last = a
		}
	}
	return last
}

// reconnected is when the replica had a probed session again after an instant: probed as stable or, where it does not probe,
// asked for the lock again. Never: after the end.
func (w *world) reconnected(id who, after sim.Duration) sim.Duration {
	for _, p := range w.probes {
		if p.who == id && p.end != nil && p.end.At >= after && p.end.Answer == sim.Stable {
			return p.end.At
		}
	}
	for _, a := range w.attempts {
		if a.who == id && a.begin != nil && a.begin.At >= after && !w.probed(id) {
			return a.begin.At
		}
	}
	return w.end + 1
}

func (w *world) probed(id who) bool {
	return slices.ContainsFunc(w.probes, func(p *probe) bool { return p.who == id })
}

// healthyUntil is the first instant from the given one on at which the replica dies, is paused, is hit by a fault, or is
// stopped with the run.
func (w *world) healthyUntil(l *life, from sim.Duration) sim.Duration {
	until, _ := l.died(w)
	for _, s := range l.asleep() {
		if s.to >= from {
			until = min(until, s.from)
		}
	}
	for _, f := range w.inPlay(l.replica, from, w.end) {
		if f.kind == sim.ConnectionsExhausted && w.connected(l.who, sim.UseEffect, from) {
			continue // it needs no new connection
		}
		// One that was over before it became ready is what it had to recover from.
		if f.span.to > from || f.span.from == from {
			until = min(until, f.span.from)
		}
	}
	return min(until, w.stop)
}

// connected reports whether a life has a session of that use open at an instant.
func (w *world) connected(id who, use string, t sim.Duration) bool {
	for _, s := range w.sessions {
		if s.who == id && s.use == use && s.openAt(t) {
			return true
		}
	}
	return false
}

func (s *session) openAt(t sim.Duration) bool {
	return s.opened != nil && s.opened.At <= t && (s.closed == nil || s.closed.At > t)
}

// hasRoom reports whether the pool has a server connection left for what the replica still has to open.
func (w *world) hasRoom(l *life, t sim.Duration) bool {
	if !w.h.Header.Route.Pooled() || w.connected(l.who, sim.UseEffect, t) {
		return true
	}
	size := w.h.Header.Scenario.Pool.Size
	if size == 0 {
		size = 20
	}
	open := 0
	for _, s := range w.sessions {
		if life := w.lives[s.who]; s.openAt(t) && life != nil {
			if died, _ := life.died(w); died > t {
				open++
			}
		}
	}
	return open < size
}

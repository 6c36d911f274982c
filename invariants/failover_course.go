package invariants

import (
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A release is the lock becoming free: the end of one holder's hold, in [lo, hi].
type release struct {
	key    int64
	holder string
	at     *sim.Event
	lo, hi sim.Duration
}

func (w *world) releases() (rs []release) {
	for key, hs := range w.holds {
		for _, h := range hs {
			if h.session == nobody || h.until == nil || h.until.At >= w.stop {
				continue
			}
			r := release{key: key, holder: h.session, at: h.until, lo: h.until.Earliest(), hi: h.until.Latest()}
			// While the server is down nobody can have the lock: it is free when connections are taken again.
			for _, f := range w.faults {
				if f.kind == sim.PostgresRestart && f.healed != nil && f.span.from <= r.hi && f.span.to >= r.lo {
					r.lo, r.hi = max(r.lo, w.early(f.healed)), max(r.hi, w.late(f.healed))
				}
			}
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b release) int {
		if c := cmpDuration(a.lo, b.lo); c != 0 {
			return c
		}
		return int(max(-1, min(1, a.key-b.key)))
	})
	return rs
}

type outcome int

const (
	hadNobody outcome = iota // no healthy standby, or the run ended before the bound
	wasVoid                  // a second fault came in between
	wasJudged
)

// A course is how a failover went.
type course struct {
	outcome           outcome
	standby           *standby
	done              *sim.Event // nil: nobody resumed work while the standby was healthy
	by                *leadership
	shortest, longest sim.Duration // the wait, less C in a virtual run
	spent             sim.Duration // the time that the winner spent on statements: C in a virtual run
}

// took says how long it took, as far as that is known.
func (c course) took() string {
	if c.done == nil {
		return "more than " + sec(c.shortest)
	}
	return sec(c.shortest)
}

func (w *world) judgeRelease(r release) (c course) {
	done, by := w.resumed(r)
	for _, s := range w.standbys(r) {
		next := course{outcome: wasJudged, standby: s, done: done, by: by}
		limit := min(s.until, w.stop)
		busy := []who{s.who}
		if done != nil && done.Latest() <= limit {
			limit = done.Latest()
			busy = []who{by.who}
			next.shortest, next.longest = done.Earliest()-max(r.hi, s.from), done.Latest()-max(r.lo, s.from)
		} else {
			next.done, next.by = nil, nil
			busy = append(busy, w.holdersSince(r, limit)...)
			next.shortest = limit - max(r.hi, s.from)
			next.longest = next.shortest
		}
		if w.interrupted(r, limit) {
			return course{outcome: wasVoid}
		}
		next.spent = w.inFlight(max(r.lo, s.from), limit, busy...)
		if !w.live {
			next.shortest, next.longest = max(0, next.shortest-next.spent), max(0, next.longest-next.spent)
		}
		if next.done == nil && next.shortest <= w.iv.Retry+w.allow {
			continue // it was not healthy, or not watched, for long enough
		}
		if c.outcome != wasJudged || next.shortest > c.shortest {
			c = next
		}
	}
	return c
}

// resumed is the end of the first tick under a new leadership whose due list was read. A foreign program that reports no ticks
// at all has resumed work when it leads.
func (w *world) resumed(r release) (done *sim.Event, by *leadership) {
	role := w.roleOf(r.key)
	if w.foreign() && len(w.ticks) == 0 {
		for _, l := range w.leaderships {
			if l.role == role && l.lead.At >= r.lo {
				return l.lead, l
			}
		}
		return nil, nil
	}
	for _, t := range w.ticks {
		if t.by == nil || t.by.role != role || t.by.lead.At < r.lo || t.listed == nil || t.end == nil {
			continue
		}
		if done == nil || t.end.At < done.At {
			done, by = t.end, t.by
		}
	}
	return done, by
}

func (w *world) roleOf(key int64) string {
	for _, l := range w.leaderships {
		if l.key == key {
			return l.role
		}
	}
	for _, a := range w.attempts {
		if a.key == key {
			return a.role
		}
	}
	return ""
}

// holdsSince are the named holds that began between the release and the limit.
func (w *world) holdsSince(r release, limit sim.Duration) (hs []hold) {
	for _, h := range w.holds[r.key] {
		if _, _, _, ok := sim.ParseSession(h.session); ok && h.since.Latest() >= r.lo && h.since.Earliest() <= limit {
			hs = append(hs, h)
		}
	}
	return hs
}

// holdersSince are the lives that came to hold the lock between the release and the limit.
func (w *world) holdersSince(r release, limit sim.Duration) (ids []who) {
	for _, h := range w.holdsSince(r, limit) {
		if rep, inc, _, _ := sim.ParseSession(h.session); !slices.Contains(ids, who{rep, inc}) {
			ids = append(ids, who{rep, inc})
		}
	}
	return ids
}

// interrupted reports whether one that had won the lock meanwhile was hit by a fault before anybody had resumed work. What cost
// the last holder its lock does not count against it when it comes back, nor does a fault that was over when the winner won.
func (w *world) interrupted(r release, limit sim.Duration) bool {
	last, _, _, _ := sim.ParseSession(r.holder)
	for _, h := range w.holdsSince(r, limit) {
		winner, _, _, _ := sim.ParseSession(h.session)
		won := max(r.hi, h.since.Earliest())
		for _, f := range w.inPlay(winner, won, limit) {
			if f.span.from > r.hi || winner != last && f.span.to > won {
				return true
			}
		}
	}
	return false
}

// inFlight is C of a virtual run: the time between from and to in which one of the lives had a statement in flight, or a task
// slowed down on purpose. A statement that waits for another session's lock counts only for the time it was on its way: a new
// leader that waits for the old one's transaction is late. In a live run, where C is the allowance, it is the time in which
// the life was waiting for an answer, as it reports it; the bump is not part of that.
func (w *world) inFlight(from, to sim.Duration, ids ...who) sim.Duration {
	var all []span
	for _, id := range ids {
		for _, e := range w.statements[id] {
			lasts := e.Lasts
			if len(e.BlockedBy) > 0 {
				lasts = min(lasts, w.delivery(id.replica))
			}
			all = append(all, span{e.At, e.At + lasts})
		}
		for _, f := range w.faults {
			if f.kind == sim.SlowTask && (len(f.targets) == 0 || slices.Contains(f.targets, id.replica)) {
				all = append(all, w.working(id).and(spans{f.span})...)
			}
		}
		if w.live {
			all = append(all, w.asking(id)...)
		}
	}
	return union(forward(all)...).within(from, to).total()
}

// asking is when a life was starting up, probing, asking for the lock, reading its due list or publishing.
func (w *world) asking(id who) spans {
	all := w.working(id)
	if l := w.lives[id]; l != nil && l.up != nil {
		all = append(all, span{l.up.At, l.first})
	}
	for _, p := range w.probes {
		if p.who == id && p.begin != nil && p.end != nil {
			all = append(all, span{p.begin.At, p.end.At})
		}
	}
	for _, a := range w.attempts {
		if a.who == id && a.begin != nil && a.end != nil {
			all = append(all, span{a.begin.At, a.end.At})
		}
	}
	for _, t := range w.ticks {
		if t.who != id {
			continue
		}
		listing := span{t.begin.At, w.end}
		for _, e := range []*sim.Event{t.end, t.listed} {
			if e != nil {
				listing.to = e.At
			}
		}
		all = append(all, listing)
	}
	return union(forward(all)...)
}

// working is when a life had an effect going on.
func (w *world) working(id who) spans {
	var all []span
	for _, j := range w.jobs {
		if j.who == id {
			s := span{j.begin.At, w.end}
			if j.end != nil {
				s.to = j.end.At
			}
			all = append(all, s)
		}
	}
	return union(forward(all)...)
}

package invariants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// The measures of failover: the second one, which includes the time in which nobody could know, is never part of the verdict.
const (
	failoverMeasure = "free to work"
	endToEndMeasure = "fault to work"
)

// failover judges each time the lock became free (semantics.md, 4): from then on, or from when a standby is healthy, until some
// replica has finished the first tick of a new leadership, no more than one retry interval passes, plus C. In a virtual run C is
// the time in which the winner had a statement in flight, so that what is compared is the time it chose to wait. In a live run C
// is the header's allowance, and where the intervals of the instants straddle the bound the verdict is inconclusive.
//
// On a route that cannot carry a session lock, what is judged is whether a lock was left behind that lets nobody lead.
func failover(w *world) (f finding) {
	if !w.h.Header.Route.Stable() {
		return w.stranded()
	}
	var void, alone int
	value, e2e := sim.Measure{Name: failoverMeasure, Bound: w.iv.Retry + w.allow}, sim.Measure{Name: endToEndMeasure}
	for _, r := range w.releases() {
		c := w.judgeRelease(r)
		switch c.outcome {
		case wasVoid:
			void++
			continue
		case hadNobody:
			alone++
			continue
		}
		f.examined++
		value.Value = max(value.Value, c.shortest)
		if d, b, ok := w.endToEnd(r, c); ok && d > e2e.Value {
			e2e.Value, e2e.Bound = d, b
		}
		stalled := w.live && w.h.Stalled > w.allow
		switch {
		case c.shortest > value.Bound && w.live && c.done != nil && c.shortest-c.spent <= value.Bound:
			f.doubt("the failover at %s took %s, but for %s of that %s was waiting for answers: it may be the machine that was slow", sec(r.at.At), sec(c.shortest), sec(c.spent), c.by.who)
		case c.shortest > value.Bound && stalled:
			f.doubt("the host stalled for %s, longer than the allowance of %s, so that a slow failover at %s proves nothing", sec(w.h.Stalled), sec(w.allow), sec(r.at.At))
		case c.shortest > value.Bound:
			f.violated(w.tooSlow(r, c))
		case c.longest > value.Bound:
			f.doubt("the failover at %s took between %s and %s, and the bound of %s lies between the two", sec(r.at.At), sec(c.shortest), sec(c.longest), sec(value.Bound))
		}
	}
	if f.examined > 0 {
		f.measures = append(f.measures, value)
	}
	if e2e.Value > 0 {
		f.measures = append(f.measures, e2e)
	}
	var words []string
	for _, c := range []struct {
		n    int
		what string
	}{{f.examined, "judged"}, {void, "void, since another fault came in between"}, {alone, "without a healthy standby"}} {
		if c.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	f.nothing = "the lock never became free while replicas ran"
	if len(words) > 0 {
		f.nothing = "no failover could be judged: " + strings.Join(words, ", ")
		f.note("%s: %s", plural(f.examined+void+alone, "failover", "failovers"), strings.Join(words, ", "))
	}
	return f
}

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
// the life reports that it was waiting for an answer; the bump is not part of that.
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

// asking is when a life was asking for the lock, reading its due list or publishing.
func (w *world) asking(id who) spans {
	all := w.working(id)
	for _, a := range w.attempts {
		if a.who == id && a.begin != nil && a.end != nil {
			all = append(all, span{a.begin.At, a.end.At})
		}
	}
	for _, t := range w.ticks {
		if t.who == id && t.listed != nil {
			all = append(all, span{t.begin.At, t.listed.At})
		}
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

// endToEnd is the time from the fault that cost the lock to resumed work, and its bound D + R + C.
func (w *world) endToEnd(r release, c course) (d, b sim.Duration, ok bool) {
	rep, _, _, named := sim.ParseSession(r.holder)
	if c.done == nil || !named {
		return 0, 0, false
	}
	var cause *fault
	for _, f := range w.inPlay(rep, 0, r.hi) {
		if f.nature.session || f.nature.silent || f.kind == sim.StepDown {
			cause = f
		}
	}
	if cause == nil {
		return 0, 0, false
	}
	b = w.iv.Retry + w.allow
	if !w.live {
		b += c.spent
	}
	switch {
	case cause.kind == sim.CutReply:
		b += w.iv.BeatDeadline
	case cause.nature.silent:
		ttl, on := w.ttl()
		if !on {
			return 0, 0, false // unprovable: without a TTL the server never frees the lock
		}
		b += ttl
	}
	return c.done.At - cause.applied.Earliest(), b, true
}

func (w *world) tooSlow(r release, c course) sim.Violation {
	v := sim.Violation{At: r.at.At, Replicas: replicas(c.standby.replica), Events: seqs(r.at, c.done), Cause: w.causeOfSlowFailover(r, c)}
	allowed := fmt.Sprintf("where the retry interval of %s is allowed", sec(w.iv.Retry))
	waited := c.shortest + c.spent
	if w.live {
		waited = c.shortest
		allowed += fmt.Sprintf(" and %s for the attempt itself", sec(w.allow))
	} else if c.spent > 0 {
		allowed += fmt.Sprintf(" beside %s of statements in flight", sec(c.spent))
	}
	free := fmt.Sprintf("key %d became free at %s and %s stood by, ready", r.key, sec(r.at.At), c.standby.who)
	if c.standby.from > r.hi {
		free += " from " + sec(c.standby.from) + " on"
	}
	if c.done == nil {
		v.Text = fmt.Sprintf("%s; nobody had resumed work %s later, %s", free, sec(waited), allowed)
		return v
	}
	v.Replicas = replicas(c.by.replica, c.standby.replica)
	v.Text = fmt.Sprintf("%s; %s had resumed work at %s: after %s, %s", free, c.by.who, sec(c.done.At), sec(waited), allowed)
	return v
}

func (w *world) causeOfSlowFailover(r release, c course) string {
	limit := c.standby.until
	if c.done != nil {
		limit = c.done.At
	}
	for _, id := range append(w.holdersSince(r, limit), c.standby.who) {
		for _, e := range w.statements[id] {
			if len(e.BlockedBy) > 0 && e.At >= r.lo && e.At <= limit {
				return "The new leader's statement waited for a transaction of another session. Do not lock the term's row while the server waits for the client: guard last, in one message with COMMIT."
			}
		}
	}
	var last *sim.Event
	for _, a := range w.attempts {
		if a.who != c.standby.who || a.begin == nil || a.begin.At > limit {
			continue
		}
		if last != nil && a.begin.At >= r.lo && a.begin.At-last.At > w.iv.Retry+w.allow {
			return "The standby waits longer than one retry interval from the start of one attempt to the start of the next: jitter that lengthens the wait, a backoff, or an interval counted from the end of the attempt."
		}
		last = a.begin
	}
	for _, l := range w.leaderships {
		if l.key == r.key && l.lead.At >= r.lo && l.lead.At <= r.hi+w.iv.Retry+w.allow {
			return "The new leader was elected in time, but did not begin to work at once: the first tick waits for its interval, or there is none."
		}
	}
	return "The standby tries too seldom, or gave up trying."
}

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

package invariants

import (
	"fmt"
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
		case c.shortest > value.Bound && w.live && c.shortest-c.spent <= value.Bound:
			f.doubt("the failover at %s took %s, but for %s of that the winner was waiting for answers: it may be the machine that was slow", sec(r.at.At), c.took(), sec(c.spent))
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

// endToEnd is the time from the fault that cost the lock, or from the server being back, to resumed work, and its bound D + R + C.
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
	b = w.iv.Retry + w.allow + max(0, c.standby.from-r.hi) // and to connect again, where the standby had to
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
	from := cause.applied.Earliest()
	if cause.nature.reach == reachAll {
		from = max(from, cause.span.to) // while the server or the pooler is away nobody can lead
	}
	return max(0, c.done.At-from), b, true
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

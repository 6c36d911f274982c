package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// leaderWorks judges what an elected leader does with its leadership: the first tick begins when it leads, and each later one
// within an interval of the beginning of the one before, or as soon as that one ends. Time in which the leader is paused or a
// fault is in play on its links, the pooler or the server is not examined.
func leaderWorks(w *world) (f finding) {
	f.nothing = "nobody led for long enough without a fault"
	if w.foreign() && len(w.ticks) == 0 {
		f.nothing = "it reports no ticks"
		return f
	}
	for _, l := range w.leaderships {
		w.worksFor(&f, l)
	}
	return f
}

// elected is what a leader did before its first tick.
const elected = "was elected"

func (w *world) worksFor(f *finding, l *leadership) {
	until := min(l.surelyUntil(), w.stop)
	since, allowed, what := l.lead, w.allow, elected
	for _, t := range append(w.ticksOf(l), nil) {
		if t != nil && t.begin.At > until {
			t = nil // it came when nothing was asked of it any more
		}
		next := until
		if t != nil {
			next = t.begin.At
		}
		w.gap(f, l, since, next, allowed, what, t)
		if t == nil {
			return
		}
		since, what = t.begin, "began a tick"
		if t.end == nil {
			return // it is at work still
		}
		allowed = max(w.iv.Tick, t.end.At-t.begin.At) + w.allow
	}
}

// gap examines the time between two ticks, or between election and first tick; t is nil when no tick ended it.
func (w *world) gap(f *finding, l *leadership, since *sim.Event, to, allowed sim.Duration, what string, t *tick) {
	from := since.At
	if len(w.inPlay(l.replica, from-w.allow, to)) > 0 || l.life.asleep().within(from, to).total() > 0 {
		return
	}
	waited := to - from
	if !w.live {
		waited = max(0, waited-w.inFlight(from, to, l.who))
	}
	if t != nil || waited > allowed {
		f.examined++
	}
	if waited <= allowed {
		return
	}
	if w.live && w.h.Stalled > w.allow {
		f.doubt("the host stalled for %s, longer than the allowance of %s, so that a late tick proves nothing", sec(w.h.Stalled), sec(w.allow))
		return
	}
	if w.live && waited-w.inFlight(from, to, l.who) <= allowed {
		f.doubt("%s was late for a tick at %s, but was waiting for answers before: it may be the machine that was slow", l.who, sec(to))
		return
	}
	then := fmt.Sprintf("had begun no further one by %s", sec(to))
	if what == elected {
		then = fmt.Sprintf("had begun no tick by %s", sec(to))
	}
	if t != nil {
		then = fmt.Sprintf("began the next at %s", sec(to))
		if what == elected {
			then = fmt.Sprintf("began its first tick at %s", sec(to))
		}
	}
	cause := "The work of a tick, or the wait for the next, is counted from the end of the last one, or its worker has died without anybody noticing."
	if what == elected {
		cause = "The worker waits for its interval before the first tick, or is started only by some later event, or never."
	}
	f.violated(sim.Violation{At: from, Replicas: replicas(l.replica), Events: seqs(since, t.beginning()), Cause: cause,
		Text: fmt.Sprintf("%s %s at %s and %s: after %s, where %s is allowed", l.who, what, sec(from), then, sec(waited), sec(allowed))})
}

func (t *tick) beginning() *sim.Event {
	if t == nil {
		return nil
	}
	return t.begin
}

func (w *world) ticksOf(l *leadership) (ts []*tick) {
	for _, t := range w.ticks {
		if t.by == l {
			ts = append(ts, t)
		}
	}
	return ts
}

// surelyUntil is the last instant at which the leadership certainly believed.
func (l *leadership) surelyUntil() sim.Duration {
	if n := len(l.sure); n > 0 {
		return l.sure[n-1].to
	}
	return l.lead.At
}

package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// noChurn judges every change of leader, the same replica included: the leadership before must have ended, or been overtaken,
// while a fault was in play on its process, its links, the pooler or the server, or within the time in which one is noticed.
// It is about leaders that lead until something happens; where each tick is an election of its own, every tick is a change.
func noChurn(w *world) (f finding) {
	f.nothing = "nobody ever led"
	window := w.trust() + w.allow
	for _, group := range w.byRole() {
		for i, l := range group {
			f.examined++
			if i+1 == len(group) {
				continue
			}
			next := group[i+1]
			at := min(l.until(), next.lead.At)
			if at >= w.stop || next.lead.At >= w.stop || w.hadCause(l, at, window) {
				continue
			}
			if w.live && w.h.Stalled > w.allow {
				f.doubt("the host stalled for %s, longer than the allowance of %s, so that a change of leader at %s proves nothing", sec(w.h.Stalled), sec(w.allow), sec(next.lead.At))
				continue
			}
			if w.live && w.unanswered(l, at) {
				f.doubt("%s gave up at %s since no heartbeat had been answered in time: it may be the machine that was slow", l.who, sec(at))
				continue
			}
			f.violated(churn(l, next, at, window))
		}
	}
	return f
}

// unanswered reports whether the leadership ended for want of a good heartbeat.
func (w *world) unanswered(l *leadership, at sim.Duration) bool {
	good := l.lead.At
	for _, b := range l.beats {
		good = b.At
	}
	return at-good >= w.iv.Beat+w.iv.BeatDeadline/2
}

// hadCause reports whether something had happened to the leader by the time its leadership ended.
func (w *world) hadCause(l *leadership, at, window sim.Duration) bool {
	return len(w.inPlay(l.replica, max(l.lead.At-w.allow, at-window), at+w.allow)) > 0
}

func churn(l, next *leadership, at, window sim.Duration) sim.Violation {
	how := fmt.Sprintf("%s stopped leading at %s", l.who, sec(at))
	switch {
	case l.over != nil && l.over.At <= at && l.over.Reason != "":
		how += " (" + l.over.Reason + ")"
	case l.over == nil || l.over.At > at:
		how = fmt.Sprintf("%s still led", l.who)
	}
	v := sim.Violation{At: next.lead.At, Replicas: replicas(l.replica, next.replica), Events: seqs(l.lead, l.over, next.lead),
		Text:  fmt.Sprintf("%s, %s began to lead at %s, and no fault had hit %s in the %s before", how, next.who, sec(next.lead.At), l.who, sec(window)),
		Cause: "Something other than a fault ends the leadership. Usual: the pool closes the lease session when it has lived or idled long enough, a timeout of the server or the pooler is shorter than the heartbeat interval, or the heartbeat's deadline is shorter than an ordinary answer takes."}
	return v
}

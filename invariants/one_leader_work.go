package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// ruleNoEffectWithout is rule 2: no effect by a replica with no open belief when it sent BEGIN, and none begun, or seen by the
// server for the first time, after its own unlock was answered.
func (w *world) ruleNoEffectWithout(f *finding) {
	type group struct {
		first *effect
		text  string
		cause string
		rows  []int64
	}
	var groups []*group
	for _, e := range w.effects {
		text, cause := w.withoutLeadership(f, e)
		if text == "" {
			continue
		}
		found := false
		for _, g := range groups {
			if g.first.who == e.who && g.first.by == e.by && g.cause == cause {
				g.rows = append(g.rows, e.Row)
				found = true
			}
		}
		if !found {
			groups = append(groups, &group{first: e, text: text, cause: cause})
		}
	}
	for _, g := range groups {
		v := sim.Violation{At: g.first.At, Replicas: replicas(g.first.who.replica), Events: seqs(g.first.Event), Cause: g.cause,
			Text: "no effect without leadership (rule 2): " + g.text + more(g.rows)}
		if g.first.job != nil {
			v.Events = append(seqs(g.first.job.begin), v.Events...)
		}
		f.violated(v)
	}
}

// withoutLeadership says what is wrong with an effect, "" when nothing is.
func (w *world) withoutLeadership(f *finding, e *effect) (text, cause string) {
	if !e.known {
		return "", "" // nobody's session: rule 1 judges what it wrote
	}
	if e.by == nil {
		return fmt.Sprintf("%s published row %d at %s without ever having led", e.who, e.Row, sec(e.At)), causeNoTerm
	}
	if u := e.by.undo; u != nil && u.end != nil && u.end.Answer == sim.Unlocked {
		if begun := e.begun(); begun > u.end.Latest()+w.allow {
			return fmt.Sprintf("%s published row %d at %s, after it had unlocked the key at %s", e.who, e.Row, sec(e.At), sec(u.end.At)), causeUnlockFirst
		}
	}
	if e.job == nil {
		return "", "" // when BEGIN was sent is not reported
	}
	begun := e.job.begin.At
	if e.by.maybe.contains(begun) {
		return "", ""
	}
	closed, ok := e.by.maybe.lastBefore(begun)
	if !ok {
		closed = e.by.lead.At
	}
	// A process that is stopped between its check of the time and BEGIN wakes up late; what counts is how long it ran since. (In a
	// virtual run what it did while paused comes to pass when it is continued.)
	if ran := e.by.life.ranFor(closed, begun); ran <= w.allow || w.excusedByStall(f, ran-w.allow) {
		return "", ""
	}
	why := "its trust had run out"
	if over := e.by.over; over != nil && over.At <= begun {
		why = "it had given up its leadership"
		closed = over.At
	}
	return fmt.Sprintf("%s began to publish row %d at %s, although %s at %s", e.who, e.Row, sec(begun), why, sec(closed)), causeTrust
}

// begun is the earliest instant at which the effect can have been begun, as far as anybody knows.
func (e *effect) begun() sim.Duration {
	if e.job != nil {
		return e.job.begin.Earliest()
	}
	return e.Earliest()
}

// ruleStepDown is rule 3: work ends before the unlock is sent; after a loss it ends within the grace.
func (w *world) ruleStepDown(f *finding) {
	for _, l := range w.leaderships {
		if v, bad := w.workAtUnlock(l); bad {
			f.violated(v)
		}
		if v, bad := w.workAfterLoss(f, l); bad {
			f.violated(v)
		}
	}
}

// workAtUnlock finds work of the leadership that was still going on when it sent its unlock.
func (w *world) workAtUnlock(l *leadership) (v sim.Violation, bad bool) {
	if l.undo == nil || l.undo.begin == nil {
		return v, false
	}
	sent := l.undo.begin
	text := ""
	var witness *sim.Event
	for _, j := range w.jobs {
		if j.by == l && before(j.begin, sent) && (j.end == nil || before(sent, j.end)) {
			text, witness = fmt.Sprintf("while it was still publishing row %d", j.begin.Row), j.begin
			break
		}
	}
	if text == "" && l.idle != nil && before(sent, l.idle) {
		text, witness = fmt.Sprintf("before its work had stopped at %s", sec(l.idle.At)), l.idle
	}
	if text == "" {
		return v, false
	}
	return sim.Violation{At: sent.At, Replicas: replicas(l.replica), Events: seqs(sent, witness), Cause: causeUnlockFirst,
		Text: fmt.Sprintf("order at step-down (rule 3): %s sent its unlock at %s %s", l.who, sec(sent.At), text)}, true
}

// workAfterLoss finds work that went on for longer than the grace after the leadership was over.
func (w *world) workAfterLoss(f *finding, l *leadership) (v sim.Violation, bad bool) {
	if l.over == nil {
		return v, false
	}
	last, witness, what := l.over.At, l.over, ""
	later := func(e *sim.Event, at sim.Duration, text string) {
		if at > last {
			last, witness, what = at, e, text
		}
	}
	if l.idle != nil {
		later(l.idle, l.idle.Earliest(), "was not idle until")
	}
	died, _ := l.life.died(w)
	for _, j := range w.jobs {
		if j.by != l || !before(j.begin, l.over) {
			continue
		}
		if j.end != nil {
			later(j.end, j.end.Earliest(), fmt.Sprintf("was still publishing row %d until", j.begin.Row))
		} else {
			later(j.begin, min(died, w.stop), fmt.Sprintf("was still publishing row %d until", j.begin.Row))
		}
	}
	ran := l.life.ranFor(l.over.At, last)
	if excess := ran - w.iv.StopGrace - w.allow; what == "" || excess <= 0 || w.excusedByStall(f, excess) {
		return v, false
	}
	return sim.Violation{At: last, Replicas: replicas(l.replica), Events: seqs(l.over, witness), Cause: causeSlowStop,
		Text: fmt.Sprintf("order at step-down (rule 3): %s gave up its leadership at %s and %s %s, which is longer than the grace of %s",
			l.who, sec(l.over.At), what, sec(last), sec(w.iv.StopGrace))}, true
}

// before is the order of two events of one process: its own, so that equal instants are told apart by the order of recording.
func before(a, b *sim.Event) bool { return a.At < b.At || a.At == b.At && a.Seq < b.Seq }

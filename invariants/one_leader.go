package invariants

import "github.com/seed-aafb3a99/simrun/sim"

// oneLeader judges the five rules of semantics.md, 5, per role:
//
//  1. fence: in commit order, no effect follows the beginning of a later leadership;
//  2. no effect is made without leadership;
//  3. work ends before the unlock is sent, and after a loss within the grace;
//  4. the beliefs of two replicas overlap by no more than the faults in play make unavoidable;
//  5. belief is backed: the key is held by the believer's own session.
//
// Not a violation: an effect of the old leader between the end of its session and the next bump.
func oneLeader(w *world) (f finding) {
	if n := w.nameless(); n > 0 && w.foreign() {
		f.note("%d %s committed in sessions whose application_name is no replica's, and can be held against a term only", n, plural(n, "effect was", "effects were"))
	}
	if w.silent {
		f.note("it reports no beliefs, so that it is judged by the fence alone (rule 1)")
		for _, e := range w.effects {
			if e.by != nil {
				f.examined++
			}
		}
		w.ruleFence(&f)
		f.nothing = "it reports no beliefs, and nothing it committed can be ascribed to a leader"
		return f
	}
	f.examined = len(w.leaderships) + len(w.effects)
	w.ruleFence(&f)
	w.ruleNoEffectWithout(&f)
	w.ruleStepDown(&f)
	w.ruleBeliefs(&f)
	w.ruleBacked(&f)
	if f.examined == 0 {
		w.nobodyLed(&f)
	}
	return f
}

// nameless counts the effects of sessions without a name of ours.
func (w *world) nameless() (n int) {
	for _, e := range w.effects {
		if !e.known {
			n++
		}
	}
	return n
}

// nobodyLed: on a path that cannot carry a lock, refusing it is the decision that is asked for; on one that can, a run without
// a leader shows nothing.
func (w *world) nobodyLed(f *finding) {
	f.nothing = "nobody ever led"
	if w.h.Header.Route.Stable() {
		return
	}
	for _, p := range w.probes {
		if p.end != nil && p.end.Answer == sim.Unstable {
			f.examined++
		}
	}
	if f.examined == 0 {
		f.nothing = "nobody ever led, and no probe refused the path either"
	}
}

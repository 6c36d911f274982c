package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// cleanStepDown judges every explicit unlock: work has ended before it is sent, and the answer is "unlocked". Another answer is
// excused by a fault that was in play on the session's way shortly before.
func cleanStepDown(w *world) (f finding) {
	f.nothing = "nobody unlocked the key"
	for _, u := range w.unlocks {
		if u.end == nil {
			continue // it died, or the run ended, before the answer
		}
		f.examined++
		if u.by != nil {
			if v, bad := w.workAtUnlock(u.by); bad {
				f.violated(v)
			}
		}
		if u.end.Answer == sim.Unlocked || len(w.inPlay(u.replica, u.at().At-w.trust()-w.allow, u.end.At)) > 0 {
			continue
		}
		told := u.end.Answer
		if told == "" {
			told = "nothing"
		}
		f.violated(sim.Violation{At: u.end.At, Replicas: replicas(u.replica), Events: seqs(u.begin, u.end), Cause: w.causeOfUnlock(u),
			Text: fmt.Sprintf("%s unlocked the key at %s and was told %q, with no fault in play", u.who, sec(u.end.At), told)})
	}
	return f
}

func (w *world) causeOfUnlock(u *unlock) string {
	if !w.route(u.session).Stable() {
		return "Behind a pooler in transaction or statement mode the unlock reached another backend than the one that holds the lock, which stays locked."
	}
	if u.end.Answer == sim.Failed {
		return "The unlock was not carried out, usually since the context it was given had been cancelled by the very request to stop. Unlock with a context of its own, and close the session when the answer is not true."
	}
	return "The unlock was sent on another session than the one that took the lock (a pool hands out any), or a second time. Only the session that took it can give it back: keep it pinned, and close it when the answer is not true."
}

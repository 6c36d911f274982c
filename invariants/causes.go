package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What usually causes a violation, in words for somebody who has to mend it.
const (
	causeShared = "A pooler in transaction or statement mode gave both replicas the same backend; a session lock belongs to the backend, so the second is told true as well. " +
		"Connect directly or in session mode, probe the session before trusting it, and refuse a key that the own backend already holds."
	causeNoTerm = "The replica works without having been elected. Usual: an error while taking the lock is taken for success, or a worker outlives the election it belonged to."
	causeTrust  = "The leader does not ask its own clock before it begins an effect. After a pause or a lost connection it goes on as if no time had passed; " +
		"count trust from the start of the last good heartbeat, and look at it before each effect."
	causeUnlockFirst = "The lock is released before the work under it has stopped. Cancel the work, wait for it, and unlock then."
	causeSlowStop    = "The work does not listen to the end of its term. Hand it a context that is cancelled with the term, and check it between steps."
	causeNoFence     = "Nothing in the transaction of the effect compares the term. No check before the transaction is late enough: " +
		"compare term and token in the transaction itself, locking the term's row, in one message with COMMIT."
	causeWrongKey = "The replicas compete for different keys, so that each has a lock of its own. Two builds, or two ways to compute the key, are the usual reason."
	causeNoLock   = "The replica leads although it was never told that it has the lock. Usual: an error, or an answer of the wrong type, is taken for success."
	causeNoHolder = "No session was ever seen to hold the key: something else let both in, such as a row that is read before it is written. Let one statement decide, or hold a lock."
)

// causeOfLate says what usually lies behind an effect that comes after a later leadership.
func (w *world) causeOfLate(e *effect, n newLeader) string {
	if e.by == nil {
		return causeNoFence
	}
	if n.of != nil {
		if c := w.causeByStructure(e.by, n.of); c != "" {
			return c
		}
	}
	if c := w.causeByFault(e.by, e.At); c != "" {
		return c + " " + causeNoFence
	}
	return causeNoFence
}

// causeOfTwo says what usually lies behind two believers.
func (w *world) causeOfTwo(first, second *leadership) string {
	if c := w.causeByStructure(first, second); c != "" {
		return c
	}
	if c := w.causeByFault(first, second.lead.At); c != "" {
		return c + " Watch the session between heartbeats, and let belief end by itself when no heartbeat was good for too long."
	}
	if len(w.heldByAny(first.key)) == 0 && len(w.heldByAny(second.key)) == 0 {
		return causeNoHolder
	}
	return "The first leader did not notice that its lock was gone: no heartbeat that asks for the lock itself, or a session that a pool closed or handed on."
}

func (w *world) causeOfUnbacked(l *leadership) string {
	if !w.wasGranted(l) {
		return causeNoLock
	}
	if !w.route(l.session).Stable() {
		return causeShared
	}
	if c := w.causeByFault(l, l.until()); c != "" {
		return c + " A heartbeat must ask for the backend and the lock, not just for an answer."
	}
	return "The lock went without the leader's noticing. Usual: the session went back to a pool that closed it or handed it on, the server ended it for being idle, or the unlock came before the belief ended."
}

// causeByStructure finds a cause that lies in how the two came to lead.
func (w *world) causeByStructure(first, second *leadership) string {
	switch {
	case first.key != second.key:
		return causeWrongKey
	case !w.wasGranted(second):
		return causeNoLock
	case !w.wasGranted(first):
		return causeNoLock
	case !w.route(second.session).Stable():
		return causeShared
	}
	return ""
}

// wasGranted reports whether the leadership followed an attempt that was answered acquired. Where no attempt is reported, it
// is taken to have.
func (w *world) wasGranted(l *leadership) bool {
	reported, granted := false, false
	for _, a := range w.attempts {
		if a.who != l.who || a.end == nil || a.end.At > l.lead.At || a.role != l.role && a.role != "" {
			continue
		}
		reported, granted = true, a.answer() == sim.Acquired
	}
	return granted || !reported
}

// causeByFault names what happened to the leader before.
func (w *world) causeByFault(l *leadership, by sim.Duration) string {
	words := map[sim.FaultKind]string{
		sim.Pause:            "%s was paused, and after it was continued it went on where it had been.",
		sim.TerminateBackend: "The server ended the session of %s, and with it the lock.",
		sim.Disconnect:       "The connections of %s were cut, and the server let its lock go.",
		sim.BlackHole:        "%s could not reach the server, and the server let its lock go.",
		sim.HalfOpen:         "The server lost sight of %s, and let its lock go.",
		sim.IdleTimeout:      "The server ended the idle session of %s, and with it the lock.",
		sim.PostgresRestart:  "The server was restarted, which ended the session of %s.",
		sim.PoolerRestart:    "The pooler was restarted, which ended the session of %s.",
		sim.PoolerReload:     "The pooler was reloaded into another mode under the session of %s; nobody is told of that.",
		sim.Recycle:          "The connection pool of %s closed the session that held the lock.",
		sim.CutReply:         "An answer to %s was lost.",
	}
	cause := ""
	for _, f := range w.inPlay(l.replica, l.from(), by) {
		// Of several the pause counts: it is what hid the others.
		if s, ok := words[f.kind]; ok && (cause == "" || f.kind == sim.Pause) {
			cause = fmt.Sprintf(s, l.who)
		}
	}
	return cause
}

package virtual

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Settling: after each step the engine waits until every statement in the server has answered or waits for another
// session, so that what comes next meets the same state in every run. PostgreSQL's isolationtester does the same.

const (
	// glance is how long a statement may take before the server is asked whether it waits for a lock, and shortGlance how
	// long where it has waited before.
	glance      = 300 * time.Microsecond
	shortGlance = 40 * time.Microsecond
	// calmAfter is how many statements in a row must not have waited for the next to be expected not to.
	calmAfter = 1000
	// maxGlance bounds the wait between two questions.
	maxGlance = 5 * time.Millisecond
	// deadlockTimeout is what the server is set to.
	deadlockTimeout = time.Millisecond
	// maturity is how long a statement must have waited before another step may begin: its own deadlock check has run
	// by then, so that in a later cycle the victim is the session that closes it, in every run.
	maturity = 5 * deadlockTimeout / 2
)

// settle waits for the statement of active (nil: of nobody in particular), and for those that it lets go on.
func (w *world) settle(active *gate) {
	may := active == nil // a session has ended
	if active != nil && active.flight != nil {
		was := active.tx
		may = mayRelease(active, active.flight)
		w.finishStatement(active)
		may = may || active.tx != was || active.link == nil
	}
	if may {
		w.waitsOld = true
	}
	for w.err == nil && may && (w.anyParked() || len(w.ghosts) > 0) {
		if q := w.successor(active); q != nil {
			if q.gate.tx == 'I' && q.info.locksOnly && q.ready == 1 {
				w.handedOver(active)
				return // it got what active let go of, and let go of nothing itself
			}
			active = nil
			continue
		}
		freed := w.freed()
		if len(freed) == 0 {
			return
		}
		// One commit may have set several free. They go on one after the other, in the order the plan picks. Who was not stopped goes on
		// already, and how many others are free is known when it is done.
		k := slices.IndexFunc(freed, func(g *gate) bool { _, held := w.frozen[g]; return !held })
		if k < 0 {
			k = w.pick(len(freed), func(i int) (*gate, *request) { return freed[i], freed[i].flight })
		}
		g := freed[k]
		_, again := w.frozen[g]
		w.goes(g)
		g.parked = 0
		if w.finishStatement(g); again && g.parked != 0 {
			w.stop([]*gate{g}) // it waits for another one that goes on in this step
		}
	}
}

// successor takes the answer of the one session that active's step can have set free, if there is one and it has come. That
// spares a question: a lock that passes from one session to the next is what worlds that wait for locks mostly do.
func (w *world) successor(active *gate) *request {
	if active == nil || len(w.ghosts) > 0 || w.run.Route.Pooled() || len(active.freeable) != 1 || w.run.Choose != nil || w.eng.askAll {
		return nil // a strategy that explores is told of every step
	}
	g := active.freeable[0]
	active.freeable = nil
	if g.parked == 0 || g.flight == nil {
		return nil
	}
	p, out := g.link.recv(g.flight.expects(), glance)
	if p == waiting {
		return nil
	}
	q := g.flight
	w.answer(g, p, out)
	return q
}

// handedOver notes that nobody waits for g any more, after it has let go of an advisory lock that another session got. Unless
// those who wait all wait for that very lock, it has to be asked.
func (w *world) handedOver(g *gate) {
	if g.link == nil || !g.stmts.keysKnown || len(g.stmts.keys) != 1 {
		return
	}
	for _, o := range w.gates {
		if o.parked != 0 && !(o.flight.info.locksOnly && o.stmts.keysKnown && slices.Equal(o.stmts.keys, g.stmts.keys)) {
			return
		}
	}
	pid := w.eng.pidOf(w.run.Route, g)
	for _, o := range w.gates {
		if o.parked != 0 {
			o.waitsFor = slices.DeleteFunc(o.waitsFor, func(p int) bool { return p == pid })
		}
	}
	w.waitsOld = false
}

// finishStatement waits until g's statement has been answered or waits for a lock.
func (w *world) finishStatement(g *gate) {
	began, look := time.Duration(0), glance
	if g.flight.info.waited {
		look = shortGlance
	}
	g.flight.info.waited = false
	if w.eng.calm++; w.eng.calm > calmAfter {
		if p, out := g.link.block(g.flight.expects()); p != waiting {
			w.answer(g, p, out)
			return
		}
	}
	for w.err == nil {
		p, out := g.link.recv(g.flight.expects(), look)
		if p != waiting {
			w.answer(g, p, out)
			return
		}
		if began == 0 {
			began = now()
		}
		if w.eng.running(w.run.Route, g) {
			continue // it wants the processor, not a lock
		}
		look = min(2*look, maxGlance)
		waits, err := w.waits()
		if err != nil {
			w.fail(err)
			return
		}
		me, blocked := waits[w.eng.waiterKey(w.run.Route, g)]
		if blocked && now()-began < maturity && w.mayCloseCycle(g, me.pid) {
			continue // if it does, it ends with an error soon; the cycle may have been torn while the server was asked about it
		}
		if blocked && !g.flight.mustEnd && (!waits.cycle(me) || now()-began > 50*maturity) {
			g.parked, g.serverPID = now(), me.pid
			w.waitFor(waits) // the others' blockers may have changed too
			g.flight.info.waited, w.eng.calm = true, 0
			if len(g.flight.blockedBy) == 0 {
				g.flight.blockedBy = w.names(me.by)
			}
			w.parkTimers(g)
			return
		}
		if now()-began > patience {
			w.fail(fmt.Errorf("the statement %q of %s neither answers nor waits for another session", g.flight.text, g.name))
		}
	}
}

// freed are the parked sessions that need not wait any more. Ghosts that go on are waited for here, since nobody will
// hear of their answer.
func (w *world) freed() (free []*gate) {
	began := now()
	for w.err == nil {
		waits, err := w.waits()
		if err != nil {
			w.fail(err)
			return nil
		}
		running, left := false, ghost{}
		w.ghosts = slices.DeleteFunc(w.ghosts, func(gh ghost) bool {
			if _, blocked := waits[w.eng.ghostKey(w.run.Route, gh)]; blocked && !gh.cancelled {
				return false
			}
			there, err := w.eng.exists(w.run.Route, gh.name, gh.pid)
			w.fail(err)
			if w.moved = w.moved || !there; there {
				running, left = true, gh
			}
			return !there
		})
		if running {
			if now()-began > patience {
				w.fail(fmt.Errorf("the session %s, whose client has gone, does not end: %s", left.name, w.eng.remains(w.run.Route, left.name)))
			}
			nap(100 * time.Microsecond)
			continue
		}
		for _, g := range w.sorted(w.gates) {
			if g.parked == 0 {
				continue
			}
			me, blocked := waits[w.eng.waiterKey(w.run.Route, g)]
			before := g.waitsFor
			g.waitsFor = me.by
			switch {
			case !blocked, g.flight.over, slices.ContainsFunc(me.by, func(p int) bool { return !slices.Contains(before, p) }):
				// It is free; or it was, and waits for the next: after its place in a pool for a lock, after its place in a row's queue for the
				// transaction. Where that closes a cycle, it will not wait long.
				free = append(free, g)
			case !g.flight.info.locksOnly:
				g.parked = now() // its deadlock check may have begun anew
			}
		}
		w.waitsOld = len(free) > 0
		return free
	}
	return nil
}

// anyParkedReads reports whether a statement that waits may read the clock when it goes on.
func (w *world) anyParkedReads() bool {
	return slices.ContainsFunc(w.gates, func(g *gate) bool { return g.parked != 0 && g.flight.info.clock })
}

func (w *world) anyParked() bool {
	return slices.ContainsFunc(w.gates, func(g *gate) bool { return g.parked != 0 })
}

// waitersAge lets the deadlock checks of those who wait run before a step that may close a cycle: one of a session that
// somebody waits for, and that may wait itself.
func (w *world) waitersAge(g *gate, q *request) {
	if !w.anyParked() || q.info.letsGo && !(w.eng.db.deferred && q.info.ends) || !w.waitedFor(g) {
		return
	}
	for _, o := range w.gates {
		if o.parked != 0 {
			if d := o.parked + maturity - now(); d > 0 {
				nap(d)
			}
		}
	}
	// The timers have fired by now; but on a busy machine who was woken by one may not have had the processor yet.
	for _, o := range w.gates {
		if o.parked == 0 || !w.eng.server.Owned() {
			continue
		}
		pid := itoa(w.eng.pidOf(w.run.Route, o))
		for began := now(); !atRest(pid) && now()-began < patience; {
			nap(50 * time.Microsecond)
		}
	}
}

// waitedFor reports whether somebody waits for g. Where that cannot be told, it does.
func (w *world) waitedFor(g *gate) bool {
	if w.run.Route.Pooled() || len(w.ghosts) > 0 {
		return true
	}
	w.refreshWaits()
	pid := w.eng.pidOf(w.run.Route, g)
	return slices.ContainsFunc(w.gates, func(o *gate) bool { return o.parked != 0 && slices.Contains(o.waitsFor, pid) })
}

// mayCloseCycle reports whether, as far as was known before g's statement, somebody waits for g.
func (w *world) mayCloseCycle(g *gate, pid int) bool {
	if w.run.Route.Pooled() || len(w.ghosts) > 0 {
		return w.anyParked()
	}
	return slices.ContainsFunc(w.gates, func(o *gate) bool { return o != g && o.parked != 0 && slices.Contains(o.waitsFor, pid) })
}

// refreshWaits asks who waits for whom, if that may have changed since it was last asked.
func (w *world) refreshWaits() {
	if !w.waitsOld && !w.eng.askAll || w.err != nil {
		return
	}
	waits, err := w.waits()
	if err != nil {
		w.fail(err)
		return
	}
	w.waitFor(waits)
}

// waitFor notes who waits for whom now.
func (w *world) waitFor(waits waits) {
	for _, o := range w.gates {
		if o.parked != 0 {
			o.waitsFor = waits[w.eng.waiterKey(w.run.Route, o)].by
		}
	}
	w.waitsOld = false
}

// freeableBy are the waiting sessions that may go on when g lets go of what it holds: those that wait for nobody else, and those that wait
// for these besides, since one that goes on may be done at once and let go of what it got.
func (w *world) freeableBy(g *gate) (free []*gate) {
	if w.run.Route.Pooled() || len(w.ghosts) > 0 { // it is not known who waits for whom
		for _, o := range w.gates {
			if o != g && o.parked != 0 {
				free = append(free, o)
			}
		}
		return free
	}
	w.refreshWaits()
	pass := []int{w.eng.pidOf(w.run.Route, g)}
	for more := true; more; {
		more = false
		for _, o := range w.gates {
			if o == g || o.parked == 0 || slices.Contains(free, o) || slices.ContainsFunc(o.waitsFor, func(p int) bool { return !slices.Contains(pass, p) }) {
				continue
			}
			free = append(free, o)
			if !o.flight.info.locksOnly || o.tx != 'I' { // a lock of the session's own is kept
				pass, more = append(pass, w.eng.pidOf(w.run.Route, o)), true
			}
		}
	}
	return free
}

// freeze stops the server processes of those who wait, where there are several that may go on when g lets go of what it holds, so that
// they can be let go on one after the other. They are let go on at the latest when the step is over; see thaw. Where a pooler gives every
// transaction another session, the one that waits must not be done before g is either: a COMMIT lets go of its locks before it answers,
// and who gives its session back last is the next one's.
func (w *world) freeze(g *gate) {
	if g.freeable = nil; !w.anyParked() {
		return
	}
	if g.freeable = w.freeableBy(g); len(g.freeable) > 1 || len(g.freeable) == 1 && !w.pinned() {
		w.stop(g.freeable)
	}
}

// stopped are the states of a process that does not run until it is let go on, or never again.
var stopped = []byte{'T', 'Z', 'X', 0}

// stop stops the server processes of sessions that wait. One that has gone, or waits for a server session of a full pool, has none.
func (w *world) stop(gs []*gate) {
	if !w.eng.server.Owned() {
		w.note("sessions that one commit sets free together race: their server processes cannot be stopped from here")
		return
	}
	if w.frozen == nil {
		w.frozen = map[*gate]int{}
	}
	for _, o := range gs {
		w.frozen[o] = w.eng.pidOf(w.run.Route, o)
	}
	for w.err == nil {
		for o, pid := range w.frozen {
			if !w.eng.signal(pid, syscall.SIGSTOP) {
				delete(w.frozen, o)
			}
		}
		for _, pid := range w.frozen { // a busy machine may not have told it yet
			for began := now(); !slices.Contains(stopped, processState(pid)) && now()-began < patience; {
				nap(20 * time.Microsecond)
			}
		}
		// A process that was stopped while it looked for a deadlock holds every lock on the table of locks. Then the
		// server does not answer, and it has to be let go on for a moment.
		free, err := w.eng.answers(20*time.Millisecond, w.letRun)
		if err != nil {
			w.fail(err)
		}
		if free {
			return
		}
		nap(maturity)
	}
}

// letRun lets every stopped server process go on.
func (w *world) letRun() {
	for _, pid := range w.frozen {
		w.eng.signal(pid, syscall.SIGCONT)
	}
}

// thaw ends what freeze began.
func (w *world) thaw() {
	w.letRun()
	clear(w.frozen)
}

// goes lets g's server process go on, if it was stopped.
func (w *world) goes(g *gate) {
	if pid, ok := w.frozen[g]; ok {
		w.eng.signal(pid, syscall.SIGCONT)
		delete(w.frozen, g)
	}
}

// mayRelease reports whether a request of g's may let another session go on: it may end a transaction, or let go of a
// lock of the session's own. A statement that is its own transaction only lets go of what it took itself.
func mayRelease(g *gate, q *request) bool {
	return q.info.releases || g.tx != 'I' || q.ready > 1
}

// names are the names of sessions by pid, sorted; a server process that is nobody's is left out.
func (w *world) names(pids []int) (out []string) {
	for _, pid := range pids {
		if n := w.nameOf(pid); n != "" {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (w *world) nameOf(pid int) string {
	if w.run.Route.Pooled() {
		if n := w.eng.appNames[pid]; isSession(n) {
			return n
		}
		return ""
	}
	for _, g := range w.gates {
		if g.link != nil && w.eng.pidOf(w.run.Route, g) == pid {
			return g.name
		}
	}
	for _, gh := range w.ghosts {
		if gh.pid == pid {
			return gh.name
		}
	}
	return ""
}

// waits says who waits for whom in the server: by pid and, where the engine does not know pids, by session name.
type waits map[string]waiter

type waiter struct {
	pid  int
	name string
	by   []int
}

// cycle reports whether m waits, over others, for itself.
func (ws waits) cycle(m waiter) bool {
	seen := map[int]bool{}
	todo := slices.Clone(m.by)
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		if p == m.pid {
			return true
		}
		if o, ok := ws[itoa(p)]; ok && !seen[p] {
			seen[p] = true
			todo = append(todo, o.by...)
		}
	}
	return false
}

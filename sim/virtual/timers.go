package virtual

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Timeouts that run inside the server run on real time. Where a session sets one, the engine reads it, sets the server's own
// out of reach, and does at the virtual instant what the server would have done: an idle session is ended by giving it
// one real millisecond, so that the message and its SQLSTATE are the server's own; a statement that waits is cancelled.
// Behind a pool that gives every transaction another session that is so within a transaction; what outlives it is only set out of reach.

type serverTimers struct {
	dirty     bool // the session may have set one
	statement time.Duration
	lock      time.Duration
	idle      time.Duration
	idleTx    time.Duration
	watch     *event
}

const (
	statementTimeout = "statement_timeout"
	lockTimeout      = "lock_timeout"
	idleTimeout      = "idle_session_timeout"
	idleTxTimeout    = "idle_in_transaction_session_timeout"
)

var timeouts = []string{statementTimeout, lockTimeout, idleTimeout, idleTxTimeout}

func (t *serverTimers) of(name string) *time.Duration {
	switch name {
	case statementTimeout:
		return &t.statement
	case lockTimeout:
		return &t.lock
	case idleTimeout:
		return &t.idle
	}
	return &t.idleTx
}

// unreachable is what the server's own timeouts are set to; it tells them from what the code under test sets.
const unreachable = 2147483647 // ms

func (s startup) hasTimers() bool {
	for i := 0; i+1 < len(s.params); i += 2 {
		if slices.Contains(timeouts, s.params[i]) || s.params[i] == "options" {
			return true
		}
	}
	return false
}

// takeTimers takes the timeouts over that the session has set.
func (w *world) takeTimers(g *gate) {
	switch {
	case !w.keeps(g):
		w.leaveTimers(g)
		return
	case g.timers.dirty && g.tx != 'E':
		set := "SET "
		if g.tx == 'T' {
			set = "SET LOCAL "
		}
		found, err := w.outOfReach(g, set)
		if err != nil {
			w.fail(fmt.Errorf("take over the timeouts of %s: %w", g.name, err))
			return
		}
		for name, d := range found {
			*g.timers.of(name) = d
		}
		g.timers.dirty = g.tx == 'T' // what was set in a transaction may end with it
	}
	w.watchIdle(g)
}

// keeps reports whether g's next statement runs in the same server session as its last one.
func (w *world) keeps(g *gate) bool { return w.pinned() || g.tx != 'I' }

// outOfReach reads the timeouts of g's server session that simrun did not set, and sets them out of the server's reach.
func (w *world) outOfReach(g *gate, set string) (found map[string]time.Duration, err error) {
	rows, err := g.link.query("SELECT n, (extract(epoch FROM pg_catalog.current_setting(n)::interval) * 1000)::bigint FROM unnest(ARRAY['" +
		statementTimeout + "', '" + lockTimeout + "', '" + idleTxTimeout + "', '" + idleTimeout + "']) n")
	if err != nil {
		return nil, err
	}
	found = map[string]time.Duration{}
	for _, r := range rows {
		ms, _ := strconv.ParseInt(r[1], 10, 64)
		if ms == unreachable {
			continue
		}
		found[r[0]] = time.Duration(ms) * time.Millisecond
		if ms == 0 {
			continue
		}
		if _, err := g.link.query(set + r[0] + " = " + itoa(unreachable)); err != nil {
			return found, err
		}
	}
	return found, nil
}

// leaveTimers is for when g gives its server session back to a pool: what it set for its transaction has ended, and what it set for the
// session will be somebody else's. The real timer must not run out, on a busy machine, where the virtual one would not.
func (w *world) leaveTimers(g *gate) {
	dirty := g.timers.dirty
	g.timers = serverTimers{watch: g.timers.watch}
	if !dirty || w.run.Scenario.Pool.RoundRobin {
		return
	}
	if free, err := w.eng.pool.free(); err != nil || free == 0 {
		w.fail(err) // somebody has it already
		return
	}
	// The pool hands out first what came back last.
	found, err := w.outOfReach(g, "SET ")
	if err != nil {
		w.fail(fmt.Errorf("take over the timeouts that %s left in the pool: %w", g.name, err))
	}
	for _, d := range found {
		if d > 0 {
			w.note("a timeout that was set for a session of a pool that gives every transaction another one is not carried out in virtual time")
			break
		}
	}
}

// watchIdle has a session that stays silent ended in time.
func (w *world) watchIdle(g *gate) {
	if g.timers.watch != nil || g.timers.idle == 0 && g.timers.idleTx == 0 || g.link == nil {
		return
	}
	limit, name := g.idleLimit()
	if limit == 0 {
		return
	}
	g.timers.watch = w.at(g.idleAt.Add(limit), false, func() {
		g.timers.watch = nil
		if g.link == nil || !w.keeps(g) {
			return
		}
		if g.flight != nil || g.copying {
			return // its answer begins a new watch
		}
		if limit, name = g.idleLimit(); limit > 0 && time.Since(g.idleAt) >= limit {
			w.expire(g, name)
			return
		}
		w.watchIdle(g)
	})
}

func (g *gate) idleLimit() (time.Duration, string) {
	if g.tx == 'I' {
		return g.timers.idle, idleTimeout
	}
	return g.timers.idleTx, idleTxTimeout
}

// expire has the server end a session that was silent for too long. It reports whether there was one.
func (w *world) expire(g *gate, setting string) bool {
	if !w.keeps(g) {
		return w.terminate(g) // the server session that it had last; the client is not told, nor does it hear what the server says
	}
	w.record(sim.Event{Kind: sim.EvNote, Replica: g.rep.num, Incarnation: g.rep.inc, Session: g.name, Text: "the server ends the session: " + setting})
	if g.tx == 'E' {
		return w.terminate(g)
	}
	w.freeze(g)
	set := "SET "
	if g.tx == 'T' {
		set = "SET LOCAL "
	}
	b, err := g.link.roundTrip(message('Q', set+setting+" = 1"), 1)
	if err != nil && !errors.Is(err, errServerGone) {
		w.fail(fmt.Errorf("end the silent session of %s: %w", g.name, err))
		return false
	}
	if !endsSession(b) {
		b = nil
	}
	w.farewell(g, b)
	return true
}

// farewell waits for the server's last words on g's link and sends them on.
func (w *world) farewell(g *gate, b []byte) {
	for began := now(); ; {
		g.link.readable(time.Millisecond)
		more, over := g.link.idle()
		more, _ = withoutMarks(more, "")
		if b = append(b, more...); over {
			break
		}
		if now()-began > patience {
			w.fail(fmt.Errorf("the server does not end the session of %s", g.name))
			return
		}
	}
	w.sessionOver(g)
	w.push(g, b, io.EOF)
}

// terminate has the server end g's session by pg_terminate_backend. It reports whether there was one.
func (w *world) terminate(g *gate) bool {
	pid := w.eng.pidOf(w.run.Route, g)
	if pid == 0 && w.held.name == g.name {
		pid = w.held.pid // behind a pooler another client has used the server session since
	}
	if pid == 0 {
		return false
	}
	w.freeze(g)
	rows, err := w.eng.ask("terminate", itoa(pid))
	if err != nil {
		w.fail(err)
		return false
	}
	if len(rows) != 1 || rows[0][0] != "t" {
		return false
	}
	if !w.pinned() && g.tx == 'I' && g.flight == nil { // an idle client has no server session: only the lock goes
		w.fail(w.eng.awaitProcess(pid))
		w.moved = true
		_, err := w.eng.pool.show("SHOW VERSION") // answered after the pooler has noticed
		w.fail(err)
		return true
	}
	if q := g.flight; q != nil { // it waited for a lock: its answer is the last word
		w.goes(g)
		q.mustEnd = true
		g.parked = 0
		w.finishStatement(g)
		return true
	}
	w.farewell(g, nil)
	return true
}

// parkTimers has a statement that waits cancelled in time.
func (w *world) parkTimers(g *gate) {
	if w.waitsForPool(g) {
		return // the server's timer begins when the statement does
	}
	limit, why := g.timers.statement, timeoutError{"57014", "canceling statement due to statement timeout"}
	if l := g.timers.lock; l > 0 && (limit == 0 || l < limit) {
		limit, why = l, timeoutError{"55P03", "canceling statement due to lock timeout"}
	}
	if limit == 0 {
		return
	}
	q := g.flight
	w.after(sim.Duration(limit), false, func() {
		if g.flight == q && !w.waitsForPool(g) {
			q.timedOut = &why
			w.interrupt(g)
			w.observe()
		}
	})
}

// A timeoutError is what the server says when its own timer cancels a statement: postgres.c, ProcessInterrupts.
type timeoutError struct{ code, text string }

// in puts it in place of what the server says of a statement that somebody cancels.
func (t timeoutError) in(out []byte) (b []byte) {
	for {
		kind, body, rest, ok := nextMessage(out, false)
		if !ok {
			return append(b, out...)
		}
		if kind == 'E' && field(body, 'C') == "57014" {
			var fields []byte
			for len(body) > 1 {
				value, more := cstr(body[1:])
				switch body[0] {
				case 'C':
					value = t.code
				case 'M':
					value = t.text
				}
				fields = append(append(append(fields, body[0]), value...), 0)
				body = more
			}
			b = append(b, rawMessage('E', append(fields, 0))...)
		} else {
			b = append(b, out[:len(out)-len(rest)]...)
		}
		out = rest
	}
}

// interrupt cancels the statement of g that waits, and takes its answer. It reports whether there was one in the server.
func (w *world) interrupt(g *gate) bool {
	if g.flight == nil || w.waitsForPool(g) {
		return false
	}
	w.freeze(g)
	if _, err := w.eng.ask("cancel", itoa(w.eng.pidOf(w.run.Route, g))); err != nil {
		w.fail(err)
		return false
	}
	w.mustAnswer(g)
	return true
}

// waitsForPool reports whether g's statement waits in the pooler, for a server session. Nobody can cancel it there: PgBouncer takes no
// notice of a cancel request for a client without a server session.
func (w *world) waitsForPool(g *gate) bool {
	return g.parked != 0 && g.serverPID == 0
}

// mustAnswer waits for the answer to a statement that has been cancelled, and for what it sets free.
func (w *world) mustAnswer(g *gate) {
	w.goes(g)
	g.flight.mustEnd = true
	g.parked = 0
	w.finishStatement(g)
	w.settle(nil)
}

// cancel carries out a cancel request.
func (w *world) cancel(q *request) {
	_, body, _, ok := nextMessage(q.data, true)
	if !ok || len(body) < 12 {
		return
	}
	secret := beUint32(body[8:])
	for _, g := range w.sorted(w.gates) {
		if g.secret == secret && g.link != nil && g.flight != nil && !w.waitsForPool(g) {
			w.freeze(g)
			w.fail(w.eng.cancelRequest(w.run.Route, g.link.hello))
			w.mustAnswer(g)
			return // a session that waits for its client does not notice being cancelled
		}
	}
	for i, gh := range w.ghosts { // pgx also cancels what was cut; a pooler knows the client no more
		if gh.secret == secret && !w.run.Route.Pooled() {
			w.fail(w.eng.cancelRequest(w.run.Route, gh.link.hello))
			w.ghosts[i].cancelled = true
			w.settle(nil)
			return
		}
	}
}

func itoa[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

package virtual

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What is carried out at an instant: arrivals at the server and at replicas.

var errReset error = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

func (w *world) exec(e *event) {
	w.stirred = w.stirred || e.kind != evDeliver
	switch e.kind {
	case evAct:
		e.act()
	case evDeliver:
		w.deliver(e)
	case evArrive:
		w.arriveAt(e)
	}
	w.settleStopped()
	w.settleEnded()
	w.thaw()
	w.observe()
}

// settleStopped takes notice of the sessions and the statements that a statement has ended, before the next step.
func (w *world) settleStopped() {
	if !w.stops {
		return
	}
	w.stops = false
	for _, g := range w.sorted(w.gates) {
		// It was told while its process was stopped.
		if pid, ok := w.frozen[g]; ok && g.parked != 0 && signalled(pid, syscall.SIGTERM, syscall.SIGINT) {
			w.freeze(g)
			w.goes(g)
			w.mustAnswer(g)
		}
	}
	w.stirred, w.ended = true, true
	w.awaitStopped()
	w.sweep()
}

// deliver hands the replica what has come for it.
func (w *world) deliver(e *event) {
	g, r := e.gate, e.gate.rep
	switch {
	case g.hold:
		w.lost(e)
		return
	case r.holes > 0 || r.paused > 0:
		r.heldDown = append(r.heldDown, e)
		return
	}
	if q := e.req; q != nil {
		if q.dialled != nil {
			w.connect(e)
			return
		}
		w.statement(q, "")
	}
	if len(e.data) > 0 && (e.req == nil || !e.req.told) {
		g.deliver(e.data)
	}
	if e.end != nil {
		g.sever(e.end)
	}
}

// together takes out of the events those of the others that dialled alike, of the same kind and instant, and gives them back with e.
func (w *world) together(e *event) []*event {
	all := []*event{e}
	if a := e.gate.alike; a != nil {
		w.events = slices.DeleteFunc(w.events, func(o *event) bool {
			same := o.kind == e.kind && o.gate.alike == a && o.req != nil && o.req.kind == sendDial && o.at.Equal(e.at)
			if same {
				all = append(all, o)
			}
			return same
		})
	}
	return all
}

// connect tells who dialled, and those who dialled alike, how it went.
func (w *world) connect(e *event) {
	for _, o := range w.together(e) {
		o.req.dialled <- o.end
		if o.end != nil {
			w.forget(o.gate)
		}
	}
}

// called has the server take a call, or refuse it. Those who dialled alike are answered together: where no message takes any time one of
// them would otherwise have said who it is before the other had been heard.
func (w *world) called(e *event) {
	for _, o := range w.together(e) {
		answer := &event{req: o.req}
		if w.refuses(o.gate.rep) {
			answer.end = syscall.ECONNREFUSED
		}
		w.reply(o.gate, o.req.delay, answer)
	}
}

// arriveAt has the server do what has come for it.
func (w *world) arriveAt(e *event) {
	g, q := e.gate, e.req
	switch {
	case g.hold:
		g.shut = g.shut || q.kind == sendClose
		w.lost(e)
		return
	case g.rep.holes > 0:
		g.rep.heldUp = append(g.rep.heldUp, e)
		return
	}
	switch q.kind {
	case sendDial:
		w.called(e)
	case sendStartup:
		w.open(g, q)
	case sendCancel:
		w.cancel(q)
		w.reply(g, q.delay, &event{end: io.EOF})
	case sendGoodbye:
		w.hang(g, nil)
		w.reply(g, q.delay, &event{end: io.EOF})
	case sendClose:
		w.hang(g, net.ErrClosed)
		w.forget(g)
	case sendRequest:
		switch {
		case g.link == nil:
			w.statement(q, "not received: the session is over") // a reset has met it
		case g.flight != nil:
			g.queue = append(g.queue, q)
		default:
			w.perform(g, q)
		}
	}
}

// perform has the server execute a request, and waits until it has answered or waits for a lock.
func (w *world) perform(g *gate, q *request) {
	q.text, q.info = g.stmts.request(q.data)
	q.arrived = true
	if w.trigger(q, false); g.link == nil {
		w.statement(q, "not received: the connection was cut")
		return
	}
	if q.info.wall {
		w.note("the statement " + q.info.text + " reads a clock that does not follow virtual time (CURRENT_TIMESTAMP and its kin)")
	}
	if q.info.path {
		w.note("the statement " + q.info.text + " may change search_path, on which the database's virtual clock rests")
	}
	w.steps++
	q.step = w.steps
	if t := time.Now(); !t.Equal(w.here.at) {
		w.here.at, w.here.steps = t, 0
	}
	if w.here.steps++; w.here.steps > maxStepsAtOnce {
		w.fail(&BusyError{Replica: g.rep.num, Statement: q.text})
		return
	}
	w.eng.stats.Statements++
	w.waitersAge(g, q)
	if q.cancelled || g.rep.cancelNext > 0 || mayRelease(g, q) {
		w.freeze(g)
	} else {
		g.freeable = nil
	}
	if w.cancelledAtOnce(g, q) {
		w.settle(nil) // its transaction has failed
		return
	}
	data := q.data
	if q.info.clock || w.eng.askAll || w.anyParkedReads() {
		if first, n := w.setClock(g); n > 0 {
			q.before = n
			data = append(first, data...)
		}
	}
	g.flight = q
	if err := g.link.send(data); err != nil {
		w.answer(g, gone, g.link.drain())
		return
	}
	w.settle(g)
}

// answer takes the server's answer to g's request in flight and sends it on its way.
func (w *world) answer(g *gate, p progress, out []byte) {
	q := g.flight
	g.flight, g.parked = nil, 0
	out, _ = withoutMarks(out, "") // behind a pooler another session's LISTEN may be on this server session
	if q.before > 0 {
		out = w.withoutFirst(g, q.before, out)
	}
	if q.timedOut != nil {
		out = q.timedOut.in(out)
	}
	q.out, q.over = out, true
	q.said = g.stmts.answer(out)
	was := g.tx
	if s := txStatus(out); s != 0 {
		g.tx = s
	}
	g.idleAt = time.Now()
	g.copying = beginsCopy(out)
	if w.held.name == g.name && (was != g.tx || q.info.releases) {
		w.moved = true // a lock of its transaction's
	}
	if was == 'I' && g.tx != 'I' {
		g.txBegan, g.txTold = g.idleAt, false
	}
	w.aftermath(g, q, out)
	if p == gone || endsSession(out) {
		w.sessionOver(g)
		w.reply(g, q.delay, &event{req: q, data: out, end: io.EOF})
		w.unqueue(g)
		return
	}
	w.trigger(q, true)
	if g.rep.cutNext > 0 && q.cut == nil {
		g.rep.cutNext--
		q.cut = errReset
	}
	if q.cut != nil && g.link != nil {
		q.said += " (answer lost)"
		w.statement(q, "")
		w.hang(g, q.cut)
		return
	}
	if g.link == nil {
		w.statement(q, "answer lost")
		return
	}
	w.reply(g, q.delay, &event{req: q, data: out})
	w.unqueue(g)
}

// aftermath looks at what an answered request may have changed on the server.
func (w *world) aftermath(g *gate, q *request, out []byte) {
	if q.info.holds {
		g.mayHold = true
		w.moved = w.moved || w.eng.askAll || !w.heldByOther(g, q) && g.stmts.mayLock(w.run.Impl.Role.Key)
	}
	if q.info.writes {
		g.wrote = true
	}
	if g.wrote && (g.tx == 'I' || g.link == nil || endsSession(out)) {
		g.wrote = false
		w.readLedger()
	}
	hidden := q.info.writes || q.info.calls // a trigger or a function may do more than the text says
	if q.info.notifies || hidden && w.eng.db.notifies {
		g.notifies = true
	}
	if q.info.stops || hidden && w.eng.db.stops {
		w.stops = true
		w.awaitStopped()
	}
	if q.info.listens {
		g.listens, g.marked = true, false
	}
	if q.info.timers {
		g.timers.dirty = true
	}
	w.touched(g, q)
	if g.link == nil || endsSession(out) || g.copying {
		return
	}
	w.takeTimers(g)
	if g.tx == 'I' {
		w.mark(g)
		if g.notifies {
			g.notifies = false
			w.awaitNotifications(g)
		}
	}
}

// endsSession reports whether an answer holds a FATAL error.
func endsSession(out []byte) bool {
	for b := out; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return false
		}
		if b = rest; t == 'E' && fatal(body) {
			return true
		}
	}
}

// unqueue lets the requests that came behind another arrive.
func (w *world) unqueue(g *gate) {
	var es []*event
	for _, q := range g.queue {
		w.order++
		es = append(es, &event{at: time.Now(), order: w.order, kind: evArrive, gate: g, req: q})
	}
	g.queue = nil
	w.events = append(es, w.events...)
}

// statement records a step, once: when its answer is delivered, or when it is known that none will be.
func (w *world) statement(q *request, instead string) {
	if q.recorded || q.kind != sendRequest && q.kind != sendStartup {
		return
	}
	q.recorded = true
	e := sim.Event{
		At: sim.Duration(q.sent.Sub(w.start)), Source: sim.FromEngine, Kind: sim.EvStatement,
		Replica: q.gate.rep.num, Incarnation: q.gate.rep.inc, Session: q.gate.name, Use: q.gate.use,
		SQL: q.text, Answer: q.said, N: q.step, BlockedBy: q.blockedBy, Lasts: sim.Duration(time.Since(q.sent)),
	}
	if e.SQL == "" && q.kind == sendRequest {
		e.SQL, _ = q.gate.stmts.request(q.data)
	}
	if instead != "" {
		if e.Answer != "" {
			e.Answer += " ("
			instead += ")"
		}
		e.Answer += instead
	}
	w.rec.Add(e)
}

// lost is what becomes of something under way when the way is gone.
func (w *world) lost(e *event) {
	if q := e.req; q != nil && q.dialled == nil {
		if q.arrived {
			w.statement(q, "answer lost")
		} else {
			w.statement(q, "lost on the way")
		}
	}
}

// hang ends g's session, tells the replica why (nil: not yet), and drops what is under way. It returns when the server
// has let go of everything the session held; a statement that waits for a lock is left behind as a ghost, since the
// server does not look at the client's socket then.
func (w *world) hang(g *gate, why error) {
	dropped := func(e *event) bool {
		if e.gate != g || why == nil && e.kind == evDeliver || e.kind == evArrive && e.req.kind == sendClose {
			return false
		}
		if e.kind == evAct {
			return false
		}
		if e.req != nil && e.req.dialled != nil {
			e.req.dialled <- cause(why)
			w.forget(g)
		}
		w.lost(e)
		return true
	}
	w.events = slices.DeleteFunc(w.events, dropped)
	g.rep.heldUp = slices.DeleteFunc(g.rep.heldUp, dropped)
	g.rep.heldDown = slices.DeleteFunc(g.rep.heldDown, dropped)
	g.rep.outbox = slices.DeleteFunc(g.rep.outbox, func(q *request) bool {
		if q.gate != g || q.kind == sendClose || q.kind == sendDial {
			return false
		}
		w.statement(q, "lost on the way")
		return true
	})
	for _, q := range g.queue {
		w.statement(q, "lost on the way")
	}
	g.queue = nil
	if why != nil {
		g.sever(why)
		w.react()
	}
	if g.link != nil {
		w.freeze(g)
		w.endSession(g)
		w.settle(nil)
	}
}

// react lets the replicas do what an event makes them do, before the next event of the same instant: of two goroutines that are woken
// together nobody knows which runs first.
func (w *world) react() {
	working := w.eng.working.Swap(false) // who spins now is found out
	w.eng.beat.Add(1)
	synctest.Wait()
	w.eng.working.Store(working)
}

// cause is the errno in an error of ours.
func cause(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return syscall.ECONNRESET
}

func (w *world) forget(g *gate) {
	w.gates = slices.DeleteFunc(w.gates, func(o *gate) bool { return o == g })
}

// heard takes a replica's report into the history.
func (w *world) heard(r report) {
	switch rep := r.rep; {
	case rep.dead:
	case rep.paused > 0:
		rep.deferred = append(rep.deferred, r.ev)
	default:
		w.believe(rep, r.ev)
		w.rec.Add(r.ev)
		if r.ev.Kind == sim.EvLead || r.ev.Kind == sim.EvEnd {
			w.wakeFaults()
		}
	}
}

func (w *world) believe(r *replica, e sim.Event) {
	switch e.Kind {
	case sim.EvLead:
		w.leads++
		r.leading = w.leads
	case sim.EvEnd:
		r.leading = 0
	}
}

// left records that a replica's function has returned.
func (w *world) left(r *replica) {
	r.down = true
	if r.dead {
		return
	}
	if r.paused > 0 {
		r.down = false // it is stopped: it returns when it goes on
		return
	}
	e := sim.Event{Kind: sim.EvDown, Replica: r.num, Incarnation: r.inc, Fault: r.stopFault, Reason: "returned"}
	if r.failed != nil && !w.ending {
		e.Reason = "returned an error: " + plain(r.failed)
		var p *PanicError
		if errors.As(r.failed, &p) {
			e.Reason = "panic"
			w.record(sim.Event{Kind: sim.EvNote, Replica: r.num, Incarnation: r.inc, Text: p.Error()})
		}
	}
	r.leading = 0
	w.record(e)
	if r.onReturn != nil {
		r.onReturn()
		r.onReturn = nil
	}
}

// cancelledAtOnce has the server cancel a statement that was to be cancelled as it begins. What runs in its place is a
// sleep, so that the error and the state it leaves are the server's own. It is cancelled once, when the server is at it, and not by
// way of the pooler: that opens a connection for each request, and one that comes when all is over may spoil another.
func (w *world) cancelledAtOnce(g *gate, q *request) bool {
	if !q.cancelled && g.rep.cancelNext == 0 || q.ready != 1 || g.copying {
		return false
	}
	if !q.cancelled {
		g.rep.cancelNext--
	}
	g.flight = q
	w.asleep++
	sleep := fmt.Sprintf("SELECT pg_catalog.pg_sleep(3600) /* simrun %d */", w.asleep)
	if err := g.link.send(message('Q', sleep)); err != nil {
		w.answer(g, gone, g.link.drain())
		return true
	}
	for began, told := now(), false; w.err == nil; {
		if !told {
			rows, err := w.eng.ask("asleep", sleep)
			if err == nil && len(rows) == 1 {
				told = true
				_, err = w.eng.ask("cancel", rows[0][0])
			}
			if err != nil {
				w.fail(err)
				return true
			}
		}
		if p, out := g.link.recv(1, time.Millisecond); p != waiting {
			w.answer(g, p, withoutRows(out))
			return true
		}
		if now()-began > patience {
			w.fail(errors.New("a statement cannot be cancelled"))
		}
	}
	return true
}

// withoutRows takes the description of the sleep's result out of the answer.
func withoutRows(b []byte) (out []byte) {
	for {
		t, _, rest, ok := nextMessage(b, false)
		if !ok {
			return out
		}
		if t != 'T' {
			out = append(out, b[:len(b)-len(rest)]...)
		}
		b = rest
	}
}

// withoutFirst cuts off the answers to what the engine sent before the request.
func (w *world) withoutFirst(g *gate, n int, out []byte) []byte {
	for b := out; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return out // the session ended before
		}
		switch b = rest; {
		case t == 'E' && !fatal(body):
			w.fail(fmt.Errorf("set the database's clock in the session %s: %w", g.name, &serverError{field(body, 'C'), field(body, 'M')}))
		case t == 'Z':
			if n--; n == 0 {
				return rest
			}
		}
	}
}

// expects is how many ReadyForQuery will come.
func (q *request) expects() int { return q.ready + q.before }

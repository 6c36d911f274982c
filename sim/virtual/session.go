package virtual

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Sessions: how they begin, and how the engine makes sure that they are over.
//
// Starting a server process costs fifty times what a statement costs. On the direct route a session that is idle when it
// ends is therefore reset (ROLLBACK, DISCARD ALL) instead of closed, which frees the same locks, listeners and settings
// at the same instant, and its process serves a later run: two sessions of a history do not share a pid, unless there are very many.

// open begins a session on the server.
func (w *world) open(g *gate, q *request) {
	_, body, _, _ := nextMessage(q.data, true)
	s := parseStartup(body).with("user", w.eng.server.User()).with("database", w.eng.db.name)
	g.adopt(s.get("application_name"))
	q.text, q.info, q.arrived = "connect", &sqlInfo{}, true
	w.steps++
	q.step = w.steps
	if w.refuses(g.rep) {
		q.said = "refused"
		w.reply(g, q.delay, &event{req: q, end: errReset})
		return
	}
	l, err := w.eng.session(w.run.Route, s, g.name, w.crowded > 0)
	if err != nil {
		w.fail(fmt.Errorf("open a session for %s: %w", g.name, err))
		return
	}
	if l.hello.failed != "" {
		q.said = "FATAL " + l.hello.failed
		l.close()
		w.reply(g, q.delay, &event{req: q, data: l.hello.raw, end: io.EOF})
		return
	}
	g.link, g.tx, g.idleAt = l, 'I', time.Now()
	w.eng.secrets++
	g.secret = w.eng.secrets
	q.said = "session"
	if s.hasTimers() {
		g.timers.dirty = true
		w.takeTimers(g)
	}
	w.reply(g, q.delay, &event{req: q, data: l.hello.as(g.name, g.secret)})
}

// endSession lets go of g's session on the server and waits until everything it held is free.
func (w *world) endSession(g *gate) {
	l, busy := g.link, g.flight
	held := g.mayHold || g.tx != 'I' || w.run.Route.Pooled() || busy != nil
	if busy != nil {
		w.statement(busy, "not answered: the session was cut while the statement waited")
	}
	w.goes(g)
	g.link, g.flight, g.parked, g.listens, g.marked = nil, nil, 0, false, false
	w.moved = w.moved || held
	if busy == nil && w.eng.reset(w.run.Route, l) {
		return
	}
	gh := ghost{name: g.name, pid: l.hello.pid, secret: g.secret}
	if busy != nil {
		gh.link = &link{fd: -1, hello: l.hello}
	}
	l.close()
	if busy != nil {
		w.ghosts = append(w.ghosts, gh)
		return
	}
	w.fail(w.eng.awaitEnd(w.run.Route, g.name, l.hello.pid))
}

// sessionOver notes that the server has ended g's session by itself.
func (w *world) sessionOver(g *gate) {
	l := g.link
	if l == nil {
		return
	}
	g.link, g.listens, g.marked = nil, false, false
	w.moved, w.ended = true, true
	l.close()
	w.fail(w.eng.awaitEnd(w.run.Route, g.name, l.hello.pid))
}

// settleEnded lets those go on who waited for a session that has ended, whatever ended it: at this instant, and not when somebody sends the
// next statement.
func (w *world) settleEnded() {
	if w.ended {
		w.ended = false
		w.settle(nil)
		w.observe()
	}
}

// session opens a session on a route, or hands out a warm one. A crowded server has to be asked.
func (e *Engine) session(route sim.Route, s startup, name string, crowded bool) (*link, error) {
	if !route.Pooled() && !crowded {
		key := s.key()
		if len(e.cooling) >= maxWarm {
			e.warm = append(e.warm, e.cooling[0]) // a pid comes again after so many others, as it may in life
			e.cooling = slices.Delete(e.cooling, 0, 1)
		}
		if i := slices.IndexFunc(e.warm, func(l *link) bool { return l.key == key }); i >= 0 {
			l := e.warm[i]
			e.warm = slices.Delete(e.warm, i, i+1)
			if _, err := l.roundTrip(message('Q', "SET application_name='"+name+"'"), 1); err == nil {
				return l, nil
			}
			l.close() // its server has been restarted meanwhile
		}
	}
	first := name
	if !route.Pooled() {
		first = warmName // what DISCARD ALL goes back to
	}
	addr, err := e.address(route)
	if err != nil {
		return nil, err
	}
	l, err := e.openLink(addr, s, first)
	if err != nil || l.hello.failed != "" {
		return l, err
	}
	if e.hopWait != nil {
		if err := e.hopWait.adopt(l); err != nil {
			l.close()
			return nil, err
		}
	}
	if first == name {
		return l, nil
	}
	_, err = l.roundTrip(message('Q', "SET application_name='"+name+"'"), 1)
	return l, err
}

// warmName is what a session kept for later is called.
const warmName = "simrun/warm"

// maxWarm bounds the server processes that are kept.
const maxWarm = 40

// reset ends a session but keeps its process for a later run. It reports whether that could be done.
func (e *Engine) reset(route sim.Route, l *link) bool {
	if route.Pooled() || len(e.warm)+len(e.cooling) > maxWarm || len(l.buf) > 0 {
		return false
	}
	out, err := l.roundTrip(append(message('Q', "ROLLBACK"), message('Q', "DISCARD ALL")...), 2)
	if err != nil || answerFailed(out) {
		return false
	}
	l.drain()
	e.cooling = append(e.cooling, l)
	return true
}

func answerFailed(out []byte) bool {
	for b := out; ; {
		t, _, rest, ok := nextMessage(b, false)
		if !ok {
			return false
		}
		if b = rest; t == 'E' {
			return true
		}
	}
}

// reuse makes the processes of the last run available to the next.
func (e *Engine) reuse() {
	for _, l := range e.cooling {
		if _, over := l.idle(); over {
			l.close()
			continue
		}
		e.warm = append(e.warm, l)
	}
	e.cooling = nil
}

func (e *Engine) closeWarm() {
	for _, l := range slices.Concat(e.warm, e.cooling) {
		l.close()
	}
	e.warm, e.cooling = nil, nil
}

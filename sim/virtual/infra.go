package virtual

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Faults of what stands behind the replicas: the server and the pooler. They take real time, outside the bubble; for
// the replicas they take none.

// refuses reports whether nobody listens where r would connect.
func (w *world) refuses(*replica) bool { return w.down > 0 }

// postgresRestart restarts the server. For the replicas it is down for the fault's For: connections are refused.
func postgresRestart(w *world, x *fault, _ []*replica, _ *request) outcome {
	if !w.eng.server.Owned() {
		return outcome{failed: "a given server is not ours to restart"}
	}
	w.eng.closeWarm()
	var err error
	w.eng.outside.do(func() {
		w.eng.closeOwner()
		err = w.eng.server.Restart(context.Background(), "immediate")
	})
	if err != nil {
		w.fail(err)
		return outcome{failed: "the server did not come back"}
	}
	w.clockSet, w.moved = time.Time{}, true
	if w.run.Route.Pooled() {
		if _, err := w.eng.pool.show("SHOW VERSION"); err != nil { // it has read by then that its servers have gone
			w.fail(err)
		}
	}
	n := w.fallen(!w.run.Route.Pooled())
	w.ghosts = nil
	return outcome{proof: "restarted as after a crash; " + counted(n, "session") + " ended", heal: w.downtime(x)}
}

// downtime has connections refused until the fault heals.
func (w *world) downtime(x *fault) func() {
	if x.f.For == 0 {
		return nil
	}
	w.down++
	return func() { w.down-- }
}

// fallen takes leave of the sessions whose peer has gone, and returns how many there were. Where every one is known to be
// over, it waits until it has heard of it.
func (w *world) fallen(every bool) (n int) {
	for _, g := range w.sorted(w.gates) {
		if g.link == nil {
			continue
		}
		g.link.readable(20 * time.Millisecond)
		if q := g.flight; q != nil {
			p, out := g.link.recv(q.expects(), 50*time.Millisecond)
			for began := now(); p == waiting && every && now()-began < patience; {
				p, out = g.link.recv(q.expects(), time.Millisecond)
			}
			if p != waiting {
				n++
				w.answer(g, p, out)
			}
			continue
		}
		b, over := g.link.idle()
		for began := now(); !over && every && now()-began < patience; {
			g.link.readable(time.Millisecond)
			var more []byte
			more, over = g.link.idle()
			b = append(b, more...)
		}
		b, _ = withoutMarks(b, "")
		switch {
		case over:
			n++
			w.sessionOver(g)
			w.push(g, b, io.EOF)
		case len(b) > 0:
			w.push(g, b, nil)
		}
	}
	return n
}

func poolerRestart(w *world, x *fault, _ []*replica, _ *request) outcome {
	p := w.eng.pool
	if p == nil {
		return outcome{moot: "there is no pooler on the route"}
	}
	var err error
	w.eng.outside.do(func() {
		if err = p.p.Kill(); err == nil {
			err = p.p.Restart(context.Background())
		}
	})
	if err != nil {
		w.fail(err)
		return outcome{failed: "the pooler did not come back"}
	}
	if p.console != nil {
		p.console.close()
		p.console = nil
	}
	w.moved = true
	n := w.fallen(true)
	// What the pooler left in the server ends when the server notices, which it does at once but for statements that wait.
	for began := now(); now()-began < patience; nap(200 * time.Microsecond) {
		rows, err := w.eng.ask("sessions")
		if err != nil {
			w.fail(err)
			break
		}
		left := 0
		for _, r := range rows {
			if isSession(r[2]) && pidsBlocked(r[1]) == 0 {
				left++
			}
		}
		if left == 0 {
			break
		}
	}
	return outcome{proof: "killed and started again; " + counted(n, "client session") + " ended", heal: w.downtime(x)}
}

func pidsBlocked(text string) int { return len(pids(text)) }

// poolerReload changes the pooler's mode from session to transaction while clients are connected, and back.
func poolerReload(w *world, _ *fault, _ []*replica, _ *request) outcome {
	p := w.eng.pool
	if p == nil {
		return outcome{moot: "there is no pooler on the route"}
	}
	if p.opts.Mode != "session" {
		return outcome{moot: "the pooler is not in session mode"}
	}
	set := func(mode string) error {
		o := p.opts
		o.Mode = mode
		p.dirty = true
		var err error
		w.eng.outside.do(func() { err = p.p.Reload(context.Background(), o) })
		return err
	}
	if err := set("transaction"); err != nil {
		w.fail(err)
		return outcome{failed: "the pooler was not reloaded"}
	}
	w.unpinned, w.mixed = true, true
	return outcome{proof: "SHOW CONFIG says pool_mode = transaction", heal: func() {
		w.fail(set("session"))
		w.unpinned = false
		for _, g := range w.gates {
			g.marked = false // its server session is another one from now on
		}
	}}
}

// noiseEvery is how often other clients of the pooler run something.
const noiseEvery = sim.Duration(time.Second)

// poolerNoise is other clients of the same pool: two transactions that overlap, so that the server sessions change places.
func poolerNoise(w *world, _ *fault, _ []*replica, _ *request) outcome {
	if w.eng.pool == nil {
		return outcome{moot: "there is no pooler on the route"}
	}
	var links []*link
	for i := range 2 {
		s := startup{head: []byte{0, 3, 0, 0}, params: []string{"user", w.eng.server.User(), "database", w.eng.db.name}}
		l, err := w.eng.openLink(w.eng.pool.address(), s, fmt.Sprintf("simrun noise %d", i+1))
		if err != nil || l.hello.failed != "" {
			return outcome{moot: "the pool has no room for other clients"}
		}
		links = append(links, l)
	}
	on, rounds := true, 0
	var turn func()
	turn = func() {
		if !on || w.err != nil {
			return
		}
		if rounds == 0 || !w.pinned() {
			if free, err := w.eng.pool.free(); err != nil || free < len(links) {
				w.fail(err)
				w.after(noiseEvery, false, turn) // nobody else gets a session of a full pool
				return
			}
		}
		if rounds++; w.run.Route == sim.PgBouncerStatement {
			for _, l := range links {
				_, err := l.query("SELECT 1")
				w.fail(err)
			}
		} else {
			for _, sql := range []string{"BEGIN", "COMMIT"} {
				for _, l := range links {
					_, err := l.query(sql)
					w.fail(err)
				}
			}
		}
		w.settle(nil)
		w.after(noiseEvery, false, turn)
	}
	leave := func() {
		on = false
		for i, l := range links {
			l.close()
			w.fail(w.eng.awaitEnd(w.run.Route, fmt.Sprintf("simrun noise %d", i+1), 0))
		}
	}
	if turn(); rounds == 0 {
		leave()
		return outcome{moot: "the pool has no room for other clients"}
	}
	return outcome{proof: "two other clients use the pool every " + noiseEvery.String(), heal: leave}
}

// connectionsExhausted takes every connection the server has left for ordinary roles.
func connectionsExhausted(w *world, _ *fault, _ []*replica, _ *request) outcome {
	if !w.eng.server.Owned() {
		return outcome{moot: "the server is a given one: its other users need their connections"}
	}
	if w.run.Route.Pooled() {
		return outcome{moot: "behind a pooler the pool's size is the limit"}
	}
	s := startup{head: []byte{0, 3, 0, 0}, params: []string{"user", w.eng.server.User(), "database", w.eng.db.name}}
	var links []*link
	code := ""
	for code == "" && len(links) < 1000 {
		l, err := w.eng.openLink(w.eng.direct(), s, "simrun crowd")
		if err != nil {
			w.fail(err)
			return outcome{failed: "connections could not be opened"}
		}
		if code = l.hello.failed; code != "" {
			l.close()
			break
		}
		links = append(links, l)
	}
	w.crowded++
	return outcome{proof: "one more connection is refused with SQLSTATE " + code, heal: func() {
		w.crowded--
		for _, l := range links {
			l.close()
		}
		for _, l := range links {
			w.fail(w.eng.awaitProcess(l.hello.pid))
		}
	}}
}

package virtual

import (
	"bytes"
	"io"
	"slices"
	"time"
)

// Messages that nobody asked for: notifications, the FATAL before the server closes, parameters that change. A replica
// must get them at a decided instant, so the engine waits for them where they can come about.
//
// That a notification has come is easily seen. That none will come is known by a mark: a session that listens is made to
// listen to a channel of the engine's own as well, and after a step that may have notified, the engine notifies that
// channel. Notifications reach a session in the order of their commits, so what has not come before the mark never will.

// markChannel is the engine's own channel. Its notifications are kept from the replicas.
const markChannel = "simrun_mark"

// mark has g's session listen to the mark, if it listens at all. Behind a pooler that gives every transaction another
// session this would be another session's doing; see awaitNotifications.
func (w *world) mark(g *gate) {
	if !g.listens || g.marked || !w.pinned() {
		return
	}
	g.marked = true
	if _, err := g.link.query("LISTEN " + markChannel); err != nil {
		w.fail(err)
	}
}

// pinned reports whether every client has a server session to itself.
func (w *world) pinned() bool { return w.run.Route.Stable() && !w.unpinned }

// awaitNotifications waits until every notification that the step of g's session sent has come where it goes, and sends
// it on to the replicas.
func (w *world) awaitNotifications(from *gate) {
	if w.mixed || !w.pinned() {
		defer w.awaitQuiet()
	}
	if !w.pinned() {
		return
	}
	var to []*gate
	for _, g := range w.sorted(w.gates) {
		if g.link != nil && g.marked {
			to = append(to, g)
		}
	}
	if len(to) == 0 {
		return
	}
	w.marks++
	text := itoa(w.marks)
	if _, err := w.eng.ctl.query("NOTIFY " + markChannel + ", '" + text + "'"); err != nil {
		w.fail(err)
		return
	}
	for _, g := range to {
		if g.flight == nil && g.tx == 'I' && !g.copying { // in a transaction they come with its end
			w.gather(g, text)
		}
	}
}

// gather takes what comes on g's link up to the mark.
func (w *world) gather(g *gate, text string) {
	began := now()
	var got []byte
	for {
		g.link.readable(time.Millisecond)
		b, over := g.link.idle()
		rest, seen := withoutMarks(b, text)
		got = append(got, rest...)
		if seen || over || now()-began > patience {
			w.unasked(g, got, over)
			if !seen && !over {
				w.note("a notification did not arrive at " + g.name + " in time")
			}
			return
		}
	}
}

// withoutMarks takes the engine's notifications out, and says whether the one with this text was among them.
func withoutMarks(b []byte, text string) (rest []byte, seen bool) {
	if !bytes.Contains(b, []byte(markChannel)) {
		return b, false
	}
	for len(b) > 0 {
		t, body, more, ok := nextMessage(b, false)
		if !ok {
			return append(rest, b...), seen
		}
		if t == 'A' && len(body) > 4 {
			channel, payload := cstr(body[4:])
			if channel == markChannel {
				p, _ := cstr(payload)
				seen = seen || p == text
				b = more
				continue
			}
		}
		rest = append(rest, b[:len(b)-len(more)]...)
		b = more
	}
	return rest, seen
}

// push sends a message nobody asked for on its way to the replica. It takes the time the next answer would.
func (w *world) push(g *gate, b []byte, end error) {
	n := g.rep.num - 1
	w.reply(g, wrap(wrap(w.plan.Delays, n), w.sent[n]), &event{data: b, end: end})
}

// sweep looks, before virtual time passes, for what came on idle connections without the engine expecting it. Nothing comes
// unless something was done.
func (w *world) sweep() {
	if !w.stirred {
		return
	}
	w.stirred = false
	var fds []pollfd
	var gs []*gate
	for _, g := range w.gates {
		if g.link != nil && g.flight == nil {
			fds = append(fds, pollfd{fd: int32(g.link.fd), events: pollin})
			gs = append(gs, g)
		}
	}
	if len(fds) == 0 || poll(fds, 0) == 0 {
		return
	}
	var ready []*gate
	for i, p := range fds {
		if p.revents != 0 {
			ready = append(ready, gs[i])
		}
	}
	slices.SortFunc(ready, byGate)
	for _, g := range ready {
		b, over := g.link.idle()
		b, _ = withoutMarks(b, "")
		w.unasked(g, b, over)
	}
}

// unasked sends on what came on g's link. After the server's last word its end is waited for: the process may not have had the time to
// close the connection.
func (w *world) unasked(g *gate, b []byte, over bool) {
	switch {
	case over:
		w.sessionOver(g)
		w.push(g, b, io.EOF)
	case endsSession(b):
		w.farewell(g, b)
	case len(b) > 0:
		w.push(g, b, nil)
	}
}

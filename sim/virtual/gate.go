package virtual

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A gate is the replica's end of a connection, inside the bubble. Write posts whole requests to the stepper and does not
// wait. Read waits on a sync.Cond, which synctest counts as durably blocked. Deadlines are timers of the bubble.
type gate struct {
	w   *world
	rep *replica

	mu     sync.Mutex // never held while blocked
	cond   sync.Cond
	wbuf   []byte
	rbuf   []byte
	rerr   error // what Read says when rbuf is empty and the connection is over
	closed bool
	began  bool // the startup message has been seen
	status byte // I, T or E: what the replica has last been told
	rd, wd deadline

	// Only the stepper touches the rest.
	ord       int    // its place among the replica's connections
	alike     *alike // those that were dialled together
	name      string // the session's application_name; until then conn/N
	use       string
	secret    uint32
	link      *link
	shut      bool      // the replica has closed it, and nobody else knows
	hold      bool      // half-open: the peer is unreachable, whatever is sent either way is lost
	lastUp    time.Time // both ways are first in, first out
	lastDown  time.Time
	flight    *request   // the request the server has not answered yet
	queue     []*request // requests that arrived behind it
	stmts     statements
	tx        byte          // I, T or E
	txBegan   time.Time     // when its transaction began
	txTold    bool          // the session has been told so
	copying   bool          // the server waits for the rows of a COPY
	wrote     bool          // its transaction may have written
	mayHold   bool          // it may hold advisory locks
	notifies  bool          // it has a notification to send when its transaction ends
	idleAt    time.Time     // since when the server has waited for it
	listens   bool          // it may be sent notifications
	marked    bool          // it listens to the engine's marks too
	serverPID int           // where its statement waits
	waitsFor  []int         // server processes that it waits for, when last asked
	footprint footprint     // what its transaction and the channels it hears may touch; kept for strategies that explore
	hears     footprint     // the channels
	freeable  []*gate       // who waits for nobody but this session, before its present step
	timers    serverTimers  // timeouts the engine keeps for the server
	parked    time.Duration // real time at which its statement was seen to wait
}

type deadline struct {
	at time.Time
	t  *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(at time.Time, wake func()) {
	if d.t != nil {
		d.t.Stop()
		d.t = nil
	}
	// For one that has passed there is no timer: the caller wakes whoever waits. Go runs such a timer at once on the goroutine's thread, and its
	// race detector (1.26) crashes when two threads do so together.
	if d.at = at; !at.IsZero() && time.Now().Before(at) {
		d.t = time.AfterFunc(time.Until(at), wake)
	}
}

func newGate(r *replica) *gate {
	g := &gate{w: r.w, rep: r, tx: 'I', status: 'I'}
	g.cond.L = &g.mu
	return g
}

func (g *gate) Read(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for yielded := false; ; {
		switch {
		case g.closed:
			return 0, net.ErrClosed
		case g.rd.passed() && !yielded:
			g.mu.Unlock()
			giveWay()
			g.mu.Lock()
			yielded = true
			continue
		case g.rd.passed():
			return 0, os.ErrDeadlineExceeded
		case len(g.rbuf) > 0:
			n := copy(p, g.rbuf)
			g.rbuf = g.rbuf[n:]
			return n, nil
		case g.rerr != nil:
			return 0, g.rerr
		}
		g.cond.Wait()
	}
}

// giveWay lets those go first whom a timer of the same instant has woken too: Go fires equal timers in an order that it draws by lot. pgxpool
// (5.13) pings with a deadline of its own that equals its caller's, and if the ping is the first to end it dials once more.
//
// It returns when no other goroutine of the process runs or could (on one processor that takes no asking), or when that takes too long, for there may be some that never rest. To wait
// until the bubble is durably blocked will not do here: somebody may want a mutex that is held across this Read, as database/sql does.
func giveWay() {
	if runtime.GOMAXPROCS(0) == 1 { // each yield lets all go on who can; those who are woken need a few
		for range 16 {
			runtime.Gosched()
		}
		return
	}
	s := []metrics.Sample{{Name: "/sched/goroutines/running:goroutines"}, {Name: "/sched/goroutines/runnable:goroutines"}}
	for looks, began := 0, now(); now()-began < 50*time.Millisecond; looks++ {
		runtime.Gosched()
		if metrics.Read(s); s[0].Value.Uint64() <= 1 && s[1].Value.Uint64() == 0 {
			return
		}
		if looks > 20 {
			nap(50 * time.Microsecond) // another's thread may be waiting for this processor
		}
	}
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return 0, net.ErrClosed
	case g.wd.passed():
		return 0, os.ErrDeadlineExceeded
	case g.rerr == io.EOF:
		return len(p), nil // a first write after the peer's FIN succeeds
	case g.rerr != nil:
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	g.wbuf = append(g.wbuf, p...)
	if !g.began {
		g.begin()
		return len(p), nil
	}
	if complete, ready, goodbye := requestEnd(g.wbuf); complete {
		k := sendRequest
		if goodbye {
			k = sendGoodbye
		}
		if endsCopy(g.wbuf) && calledBy("pgconn.(*PgConn).CopyFrom") {
			// pgx reads in one goroutine while it sends rows, with a mutex that its caller wants as soon as all is sent; and who waits for a
			// mutex stops virtual time. So that goroutine gets something to read: what it knows already.
			g.rbuf = append(g.rbuf, parameterStatus("integer_datetimes", "on")...)
			g.cond.Broadcast()
		}
		q := &request{kind: k, ready: ready}
		if k == sendRequest && g.wbuf[0] == 'C' && calledBy("sql.(*driverStmt).Close") {
			// database/sql closes prepared statements under the mutex of its whole pool, or of a connection, and who waits for a mutex stops virtual
			// time. So it is told at once what the server will answer: a Close cannot fail.
			q.told = true
			g.rbuf = append(append(g.rbuf, rawMessage('3', nil)...), rawMessage('Z', []byte{g.status})...)
			g.cond.Broadcast()
		}
		g.post(q)
	}
	return len(p), nil
}

// begin looks at the first message of a connection.
func (g *gate) begin() {
	_, body, _, ok := nextMessage(g.wbuf, true)
	if !ok || len(body) < 4 {
		return
	}
	switch binary.BigEndian.Uint32(body) {
	case codeCancel:
		g.post(&request{kind: sendCancel})
	case codeSSL, codeGSS: // not offered: encryption would hide where a request ends
		g.wbuf, g.rbuf = nil, append(g.rbuf, 'N')
		g.cond.Broadcast()
	default:
		g.began = true
		g.post(&request{kind: sendStartup, ready: 1})
	}
}

func (g *gate) post(q *request) {
	q.gate, q.data, q.sent = g, g.wbuf, time.Now()
	g.wbuf = nil
	g.w.post(q)
}

// Close sends what has been written and ends the connection.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return net.ErrClosed
	}
	g.closed = true
	g.rd.set(time.Time{}, nil)
	g.wd.set(time.Time{}, nil)
	g.cond.Broadcast()
	g.post(&request{kind: sendClose})
	return nil
}

// deliver and sever are the stepper's way in.
func (g *gate) deliver(b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := txStatus(b); s != 0 {
		g.status = s
	}
	g.rbuf = append(g.rbuf, b...)
	g.cond.Broadcast()
}

func (g *gate) sever(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rerr == nil {
		g.rerr = err
	}
	g.cond.Broadcast()
}

func (g *gate) setDeadline(d *deadline, t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return net.ErrClosed
	}
	d.set(t, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.cond.Broadcast()
	})
	g.cond.Broadcast()
	return nil
}

func (g *gate) SetDeadline(t time.Time) error {
	if err := g.setDeadline(&g.wd, t); err != nil {
		return err
	}
	return g.setDeadline(&g.rd, t)
}
func (g *gate) SetReadDeadline(t time.Time) error  { return g.setDeadline(&g.rd, t) }
func (g *gate) SetWriteDeadline(t time.Time) error { return g.setDeadline(&g.wd, t) }
func (g *gate) LocalAddr() net.Addr                { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (g *gate) RemoteAddr() net.Addr               { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5432} }

// dial takes the delays of one request and its answer, and gives up with its context: pgx dials once more to cancel a
// statement, often into the very hole that made it cancel.
func (r *replica) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	g := newGate(r)
	by := r.asking()
	q := &request{kind: sendDial, gate: g, dialled: make(chan error, 1), by: &by, sent: time.Now()}
	r.w.post(q)
	select {
	case err := <-q.dialled:
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		return g, nil
	case <-ctx.Done():
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		r.w.post(&request{kind: sendClose, gate: g, sent: time.Now()})
		return nil, ctx.Err()
	}
}

// calledBy reports whether a function of this name is among the callers.
func calledBy(name string) bool {
	var pcs [32]uintptr
	for frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])]); ; {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

// Connections that several goroutines dial at one instant from the same place are alike until each sends its first message: a context that ends
// has pgx dial once for every statement that it cancels, in whatever order the runtime likes. Until then they have one delay and arrive
// together, and then each gets its place by what it says.
type alike struct {
	begun bool
	delay int // which of the plan's delays
}

// introduced gives connections that were dialled alike their places, by their first messages.
func (w *world) introduced(in []*request) {
	groups := map[*alike][]*request{}
	for _, q := range in {
		if q.gate.alike != nil && (q.kind == sendCancel || q.kind == sendStartup) {
			groups[q.gate.alike] = append(groups[q.gate.alike], q)
		}
	}
	for _, qs := range groups { // each for itself: their order does not matter
		slices.SortFunc(qs, func(a, b *request) int { return cmp.Compare(a.gate.ord, b.gate.ord) })
		var places []int
		says := map[*request]string{}
		for _, q := range qs {
			places = append(places, q.gate.ord)
			says[q] = w.firstWords(q)
		}
		slices.SortStableFunc(qs, func(a, b *request) int { return cmp.Compare(says[a], says[b]) })
		for i, q := range qs {
			q.gate.ord, q.gate.alike = places[i], nil
		}
	}
}

// firstWords are what tells a connection's first message from others: whom it cancels, or the name of its session.
func (w *world) firstWords(q *request) string {
	_, body, _, _ := nextMessage(q.data, true)
	if q.kind == sendStartup {
		return parseStartup(body).get("application_name")
	}
	if len(body) < 12 {
		return ""
	}
	secret := beUint32(body[8:])
	for _, g := range w.gates {
		if g.secret == secret {
			return g.name
		}
	}
	for _, gh := range w.ghosts {
		if gh.secret == secret {
			return gh.name
		}
	}
	return ""
}

// byGate orders gates by replica, incarnation and the order in which they dialled.
func byGate(a, b *gate) int {
	if a == b {
		return 0
	}
	return cmp.Or(cmp.Compare(a.rep.num, b.rep.num), cmp.Compare(a.rep.inc, b.rep.inc), cmp.Compare(a.ord, b.ord))
}

func (w *world) sorted(gs []*gate) []*gate {
	gs = slices.Clone(gs)
	slices.SortStableFunc(gs, byGate)
	return gs
}

// adopt takes the session's name and use from its application_name when that is one of this replica and not taken;
// otherwise it makes a name up, so that each session can be told from every other.
func (g *gate) adopt(name string) {
	r, inc, use, ok := sim.ParseSession(name)
	if ok && r == g.rep.num && inc == g.rep.inc && !g.rep.names[name] {
		g.name, g.use = name, use
	} else {
		g.rep.foreign++
		g.use = "conn"
		g.name = sim.SessionName(g.rep.num, g.rep.inc, g.use, g.rep.foreign)
	}
	g.rep.names[g.name] = true
}

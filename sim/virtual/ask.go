package virtual

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What the engine asks the server about sessions.

func beUint32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

// waits asks which of the statements in the server wait for a lock, and for whom.
func (w *world) waits() (waits, error) {
	if w.run.Route.Pooled() {
		return w.eng.pooledWaits()
	}
	list := "{"
	for _, g := range w.gates {
		if g.link != nil && g.flight != nil {
			list += itoa(g.link.hello.pid) + ","
		}
	}
	for _, gh := range w.ghosts {
		list += itoa(gh.pid) + ","
	}
	rows, err := w.eng.ask("waits", strings.TrimSuffix(list, ",")+"}")
	if err != nil {
		return nil, err
	}
	return w.eng.waitsOf(rows), nil
}

// waitsOf reads who waits for whom. Nobody waits for the engine's own sessions for longer than their statements take, though one that asks who
// waits is itself what CREATE INDEX CONCURRENTLY waits for at that moment.
func (e *Engine) waitsOf(rows [][]string) waits {
	ws := waits{}
	for _, r := range rows {
		m := waiter{name: r[2], by: slices.DeleteFunc(pids(r[1]), e.isOwn)}
		if m.pid, _ = strconv.Atoi(r[0]); len(m.by) == 0 {
			continue
		}
		ws[r[0]] = m
		if m.name != "" {
			ws[m.name] = m
		}
	}
	return ws
}

// isOwn reports whether a server process works for the engine itself.
func (e *Engine) isOwn(pid int) bool {
	return pid == e.ctl.hello.pid || e.db.owner != nil && uint32(pid) == e.db.owner.PgConn().PID()
}

// pids reads an array such as {12,34}.
func pids(text string) (out []int) {
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(f); err == nil && n > 0 {
			out = append(out, n)
		}
	}
	return out
}

// waiterKey is under what a session is found in waits.
func (e *Engine) waiterKey(route sim.Route, g *gate) string {
	if route.Pooled() {
		return g.name
	}
	return itoa(g.link.hello.pid)
}

func (e *Engine) ghostKey(route sim.Route, gh ghost) string {
	if route.Pooled() {
		return gh.name
	}
	return itoa(gh.pid)
}

// pidOf is the server process of g's session; behind a pooler, of the statement that waits.
func (e *Engine) pidOf(route sim.Route, g *gate) int {
	switch {
	case g.link == nil:
		return 0
	case route.Pooled():
		return e.pooledPID(g)
	}
	return g.link.hello.pid
}

// exists reports whether a session is still there.
func (e *Engine) exists(route sim.Route, name string, pid int) (bool, error) {
	switch {
	case route.Pooled():
		return e.pooledExists(name)
	case e.server.Owned():
		return syscall.Kill(pid, 0) != syscall.ESRCH, nil
	}
	rows, err := e.ask("sessions")
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		if r[0] == itoa(pid) {
			return true, nil
		}
	}
	return false, nil
}

// awaitEnd waits until a session has gone, and with it all that it held.
func (e *Engine) awaitEnd(route sim.Route, name string, pid int) error {
	for began := now(); ; nap(100 * time.Microsecond) {
		there, err := e.exists(route, name, pid)
		if err != nil || !there {
			return err
		}
		if now()-began > patience {
			return fmt.Errorf("the server does not end the session %s, whose connection is closed: %s", name, e.remains(route, name))
		}
	}
}

// remains says what there is of a session that has just been found to be there.
func (e *Engine) remains(route sim.Route, name string) string {
	if !route.Pooled() {
		return "its process is there"
	}
	why, err := e.pooledRemains(name)
	if err != nil {
		return err.Error()
	}
	return why
}

// awaitProcess waits until a server process has gone.
func (e *Engine) awaitProcess(pid int) error {
	for began := now(); ; nap(100 * time.Microsecond) {
		there, err := e.exists(sim.Direct, "", pid)
		if err != nil || !there {
			return err
		}
		if now()-began > patience {
			return fmt.Errorf("a server process does not end")
		}
	}
}

// running reports whether the server process of g's session is known to want the processor. Asking the kernel costs less
// than asking the server.
func (e *Engine) running(route sim.Route, g *gate) bool {
	if route.Pooled() || !e.server.Owned() || g.link == nil {
		return false
	}
	s := processState(g.link.hello.pid)
	return s == 'R' || s == 'D'
}

// processState is the letter of /proc/PID/stat, 0 when it cannot be read.
func processState(pid int) byte {
	fd, err := syscall.Open("/proc/"+itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer syscall.Close(fd)
	var b [256]byte
	n, err := syscall.Read(fd, b[:])
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold anything; nothing behind it holds a parenthesis.
	if i := bytes.LastIndexByte(b[:n], ')'); i >= 0 && i+2 < n {
		return b[i+2]
	}
	return 0
}

// signal sends a signal to a server process of our own.
func (e *Engine) signal(pid int, sig syscall.Signal) bool {
	return e.server.Owned() && pid > 0 && syscall.Kill(pid, sig) == nil
}

// cancelRequest sends a cancel request with the true secret. The server closes the connection after it has sent the
// signal.
func (e *Engine) cancelRequest(route sim.Route, h hello) error {
	addr, err := e.address(route)
	if err != nil {
		return err
	}
	l, err := dialLink(addr)
	if err != nil {
		return err
	}
	defer l.close()
	b := binary.BigEndian.AppendUint32(nil, 16)
	b = binary.BigEndian.AppendUint32(b, codeCancel)
	b = binary.BigEndian.AppendUint32(b, uint32(h.pid))
	b = binary.BigEndian.AppendUint32(b, h.secret)
	if err := l.send(b); err != nil {
		return err
	}
	for began := now(); now()-began < patience; {
		if p, _ := l.recv(1, 10*time.Millisecond); p == gone {
			return nil
		}
	}
	return nil
}

package virtual

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// setClock makes the database's clock show the present instant when g's next statement runs, and tells g's transaction,
// if it has been open for a while, when it began: now() is the beginning of the transaction. Where g keeps its server
// session these are function calls of the engine's own that go there together with the request, which are returned; their
// n answers are cut off again. Elsewhere the control connection does it.
//
// A FunctionCall message is neither parsed nor planned, and unlike a query it leaves the session's unnamed statement alone.
func (w *world) setClock(g *gate) (first []byte, n int) {
	if g.tx == 'T' && !g.txTold && !g.copying && !g.txBegan.Equal(time.Now()) {
		g.txTold = true
		first, n = append(first, functionCall(oidSetConfig, []byte("simclock.began"), []byte(itoa(w.reading(g.txBegan))), []byte{1})...), n+1
	}
	if t := time.Now(); !t.Equal(w.clockSet) {
		w.clockSet = t
		if w.clockAt = w.reading(t); !w.pinned() || g.tx == 'E' || g.copying {
			w.fail(w.eng.tellTime(w.clockAt))
		} else {
			sequence := binary.BigEndian.AppendUint32(nil, w.eng.db.clock)
			first, n = append(first, functionCall(oidSetval, sequence, binary.BigEndian.AppendUint64(nil, uint64(w.clockAt)))...), n+1
		}
	}
	if n == 0 || w.pinned() {
		return first, n
	}
	if out, err := g.link.roundTrip(first, n); err != nil || answerFailed(out) { // in a transaction even a pooler leaves it its server session
		w.fail(fmt.Errorf("tell the transaction of %s when it began: %w", g.name, errors.Join(err, serverErrorIn(out))))
	}
	return nil, 0
}

// Functions of pg_proc.dat, whose numbers do not change.
const (
	oidSetval    = 1576 // setval(regclass, bigint)
	oidSetConfig = 2078 // set_config(text, text, boolean)
)

// reading is what the database's clock shows at an instant. Two instants within a microsecond get two readings, so that
// each reading means one instant.
func (w *world) reading(t time.Time) int64 {
	micros := t.UnixMicro()
	for {
		o, ok := w.instants[micros]
		if !ok {
			w.instants[micros] = t
			return micros
		}
		if o.Equal(t) {
			return micros
		}
		micros++
	}
}

// A holder is who holds the role's key on the server.
type holder struct {
	pid  int
	name string
}

// observe records who holds the role's key, if that may have changed and has.
func (w *world) observe() {
	if !w.moved || w.err != nil {
		return
	}
	w.moved = false
	key := w.run.Impl.Role.Key
	rows, err := w.eng.ask("holder", strconv.FormatInt(key, 10))
	if err != nil {
		w.fail(err)
		return
	}
	var h holder
	for _, r := range rows { // several, where they share it
		pid, _ := strconv.Atoi(r[0])
		if pid == w.held.pid {
			return // behind a pooler the server session's name changes with its users; who took the lock does not
		}
		if name := w.nameOfHolder(pid, r[1]); h.pid == 0 || name < h.name {
			h = holder{pid, name}
		}
	}
	if h == w.held {
		return
	}
	w.held = h
	w.record(sim.Event{Kind: sim.EvHeld, Source: sim.FromObserver, Role: w.run.Impl.Role.Name, Key: key, Session: h.name})
}

// heldByOther reports whether somebody else holds the role's key, so that nothing g's session does can change that. Locks
// may be shared, and behind some poolers sessions share theirs; then it is asked.
func (w *world) heldByOther(g *gate, q *request) bool {
	return w.held.pid != 0 && w.held.name != g.name && w.pinned() && !q.info.shares
}

// nameOfHolder is the session that took the lock, "?" when it is none of ours.
func (w *world) nameOfHolder(pid int, app string) string {
	if isSession(app) {
		return app
	}
	if n := w.nameOf(pid); n != "" {
		return n // it has changed its application_name itself
	}
	return "?"
}

func isSession(name string) bool {
	_, _, _, ok := sim.ParseSession(name)
	return ok
}

// now is the replica's clock. In the bubble times have no monotonic part, so a clock that is put forward also stretches
// what is measured with it; code that must not be fooled by that measures with time.Now.
func (r *replica) now() time.Time { return time.Now().Add(time.Duration(r.skew.Load())) }

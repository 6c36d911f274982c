package virtual

import (
	"strconv"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// The ledger is read as it grows, after each transaction that may have written to it, so that a commit stands in the
// history where it happened: between the statement's arrival and its answer. What was missed, such as the commit of a
// session whose client had gone, is read at the end.

// readLedger records what has been committed since it was last read.
func (w *world) readLedger() {
	rows, err := w.eng.ask("ledger", itoa(w.ledgerAt))
	if err != nil {
		w.fail(err)
		return
	}
	for _, r := range rows {
		w.ledgerRows++
		w.ledgerAt, _ = strconv.ParseInt(r[8], 10, 64) // not the number of rows: after a crash the sequence skips some
		n := func(i int) int64 {
			v, _ := strconv.ParseInt(r[i], 10, 64) // NULL is 0
			return v
		}
		e := sim.Event{
			Source: sim.FromLedger, Kind: sim.EventKind(r[0]), Op: sim.OpCommit, Session: r[1], Role: r[2], Key: n(3), Row: n(4), Unit: n(5), Term: n(6),
			Token: r[7], Commit: int64(w.ledgerRows),
		}
		e.Replica, e.Incarnation, _, _ = sim.ParseSession(e.Session)
		w.record(e)
	}
}

// addLedger records what the end of the run found: events whose At is microseconds since 1970 by the database's clock.
func (w *world) addLedger(events []sim.Event) {
	for _, e := range events {
		micros := e.At.D().Microseconds()
		t, ok := w.instants[micros]
		if !ok {
			t = time.UnixMicro(micros)
		}
		e.At = sim.Duration(t.Sub(w.start))
		w.rec.Add(e)
	}
}

// A replica in Go, with pgx. It works in the very session that holds the lock: without the lock there is no session to work in.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// start is what this program needs of the first line on standard input.
var start struct {
	Replica, Incarnation int
	Role                 struct{ Key int64 }
	DSN                  string
	Seconds              struct {
		Retry, Tick, TTL float64
		BeatDeadline     float64 `json:"beat_deadline"`
	}
}

var (
	reports  = os.NewFile(3, "reports")
	stopped  = make(chan struct{})    // closed on the order to stop, and when simrun has gone
	stepDown = make(chan struct{}, 1) // holds an order to step down
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	if err := json.Unmarshal(in.Bytes(), &start); err != nil {
		log.Fatal("the start line: ", err)
	}
	fmt.Fprintln(reports, `{"hello":1}`)
	go func() {
		defer close(stopped)
		for in.Scan() {
			var o struct{ Order string }
			if json.Unmarshal(in.Bytes(), &o) == nil && o.Order == "stop" {
				return
			}
			select {
			case stepDown <- struct{}{}:
			default:
			}
		}
	}()
	for n := 1; ; n++ {
		if err := compete(fmt.Sprintf("r%d/%d/lease/%d", start.Replica, start.Incarnation, n)); err != nil && err != errStop {
			log.Print(err)
		}
		if wait(start.Seconds.Retry) == errStop {
			return
		}
	}
}

var errStop, errStepDown = errors.New("stop"), errors.New("step down")

// wait returns early, and says why, on an order.
func wait(s float64) error {
	select {
	case <-stopped:
		return errStop
	case <-stepDown:
		return errStepDown
	case <-time.After(seconds(s)):
		return nil
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// report writes an event with the instant at which it happened. It is not buffered: a kill loses nothing.
func report(event string, a ...any) {
	fmt.Fprintf(reports, `{"unix_ns":%d,%s}`+"\n", time.Now().UnixNano(), fmt.Sprintf(event, a...))
}

// A session is one connection: to compete on, to lead on and to work on.
type session struct {
	name string
	conn *pgx.Conn
}

// ask runs a statement that yields a row. It gives up after a while: who gets no answer may have lost the lock long ago.
func (s session) ask(sql string, args []any, into ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), seconds(start.Seconds.BeatDeadline))
	defer cancel()
	return s.conn.QueryRow(ctx, sql, args...).Scan(into...)
}

// compete opens a session, waits for the lock in it, and leads for as long as it lasts.
func compete(name string) error {
	cfg, err := pgx.ParseConfig(start.DSN)
	if err != nil {
		return errors.New("the address cannot be read") // pgx's own error shows it
	}
	cfg.RuntimeParams["application_name"] = name     // by it the judges know whose session it is
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // no prepared statements, which a pooler may lose
	cfg.ConnectTimeout = seconds(start.Seconds.BeatDeadline)
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer conn.PgConn().Conn().Close() // at once, whatever state it is in: with the session goes the lock
	s := session{name, conn}
	if ttl := start.Seconds.TTL; ttl > 0 { // so that the server does not keep the lock for a client that is cut off
		var ignored string
		if err := s.ask("SELECT set_config('idle_session_timeout', $1, false)", []any{fmt.Sprintf("%.0f", ttl*1000)}, &ignored); err != nil {
			return err
		}
	}
	if err := s.acquire(); err != nil {
		return err
	}
	report(`"kind":"lead","session":%q`, name)
	for err == nil {
		if err = s.work(); err == nil {
			err = wait(start.Seconds.Tick)
		}
	}
	report(`"kind":"end","reason":"a lost session, or an order"`)
	report(`"kind":"idle"`)
	if err != errStop && err != errStepDown {
		return err
	}
	return s.release()
}

// acquire returns when the session holds the lock.
func (s session) acquire() error {
	for {
		report(`"kind":"attempt","op":"begin","session":%q`, s.name)
		var got bool
		err := s.ask("SELECT pg_try_advisory_lock($1)", []any{start.Role.Key}, &got)
		answer := map[bool]string{true: "acquired", false: "busy"}[got]
		if err != nil {
			answer = "error"
		}
		report(`"kind":"attempt","op":"end","answer":%q,"session":%q`, answer, s.name)
		if got || err != nil {
			return err
		}
		if err := wait(start.Seconds.Retry); err == errStop {
			return err
		}
	}
}

func (s session) release() error {
	report(`"kind":"unlock","op":"begin","session":%q`, s.name)
	var held bool
	err := s.ask("SELECT pg_advisory_unlock($1)", []any{start.Role.Key}, &held)
	answer := map[bool]string{true: "unlocked", false: "not held"}[held]
	if err != nil {
		answer = "error"
	}
	report(`"kind":"unlock","op":"end","answer":%q,"session":%q`, answer, s.name)
	return err
}

const (
	nextSQL = `SELECT id, schedule_no FROM data_rows WHERE status = 'scheduled' AND scheduled_publish_at <= now()
		ORDER BY scheduled_publish_at, id LIMIT 1`

	// Publishing a row is a line in the ledger, in the same transaction.
	publishSQL = `WITH published AS (UPDATE data_rows SET status = 'published' WHERE id = $1 AND status = 'scheduled' RETURNING *)
		INSERT INTO simrun.ledger (kind, role, key, row_id, unit) SELECT 'effect', 'publish', $2, id, schedule_no FROM published RETURNING 1`
)

// work publishes what is due.
func (s session) work() error {
	for {
		var row, unit int64
		switch err := s.ask(nextSQL, nil, &row, &unit); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		report(`"kind":"effect","op":"begin","row":%d,"unit":%d,"session":%q`, row, unit, s.name)
		var one int
		err := s.ask(publishSQL, []any{row, start.Role.Key}, &one)
		outcome := "done"
		if err != nil {
			outcome = "unknown" // the answer may have been lost, and not the commit
		}
		report(`"kind":"effect","op":"end","outcome":%q,"row":%d,"unit":%d,"session":%q`, outcome, row, unit, s.name)
		if err != nil {
			return err
		}
	}
}

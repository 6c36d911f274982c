// Package steps is the seam between the reference and its deliberately wrong twins: each decision and statement of a lease that a twin gets
// wrong is a field, so that a twin is the reference with one field replaced. Production code uses Reference.
package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

// Lease holds the steps of a lease.
type Lease struct {
	// Probe says whether the session may be trusted with a lock; nil trusts every session and reports nothing.
	Probe func(ctx context.Context, s *session.Session, second func(context.Context) (*session.Session, error), channel string, wait time.Duration) (answer, reason string, err error)
	// Acquire asks for the lock.
	Acquire func(s *session.Session, key int64) (answer string, err error)
	// Won decides whether the answer makes a leader.
	Won func(answer string, err error) bool
	// Bump begins a term; nil leads without one.
	Bump func(s *session.Session, key, token int64, holder string) (int64, error)
	// Trust is until when a heartbeat that began at start may be relied on; zero is for ever.
	Trust func(start time.Time, interval, deadline time.Duration) time.Time
	// Blind leads without looking at the session: no pending read, no heartbeat.
	Blind bool
	// Heed says whether a reason to end the term is taken notice of.
	Heed func(reason string) bool
	// Beat is the heartbeat's statement.
	Beat func(ctx context.Context, s *session.Session, id session.ID) (reason string, err error)
	// Deadline is how long a heartbeat may take, given what is configured; 0 is without end.
	Deadline func(configured time.Duration) time.Duration
	// Echo says whether each heartbeat repeats the probe's notification.
	Echo bool
	// Retry is when the next attempt is due, after one that lasted from start to end; u is drawn from [0,1).
	Retry func(start, end time.Time, interval time.Duration, jitter, u float64) time.Time
	// StepDown gives the lock up on request: stop stops the work and waits for it, unlock unlocks and closes the session.
	StepDown func(stop, unlock func())
	// Unlock gives the lock back.
	Unlock func(s *session.Session, key int64) (answer string, err error)
	// Discard gets rid of a session that cannot be trusted any more.
	Discard func(s *session.Session, reason string)

	Tx Tx
}

// Tx holds the steps of a fenced transaction.
type Tx struct {
	// Trusted says whether a term that has ended or is no longer trusted is noticed before a transaction and before its commit.
	Trusted bool
	// Enter, when set, runs right after BEGIN; an error refuses the transaction.
	Enter func(ctx context.Context, tx pgx.Tx, id session.ID) error
	// Seal is the statement that goes to the server together with COMMIT; "" is COMMIT alone.
	Seal func(id session.ID) string
}

// Reference is the lease as it should be.
func Reference() Lease {
	return Lease{
		Probe:   session.Probe,
		Acquire: session.Acquire,
		Won:     func(answer string, err error) bool { return err == nil && answer == session.Acquired },
		Bump:    session.Bump,
		Trust: func(start time.Time, interval, deadline time.Duration) time.Time {
			return start.Add(interval + deadline)
		},
		Heed:     func(string) bool { return true },
		Beat:     session.Beat,
		Deadline: func(configured time.Duration) time.Duration { return configured },
		Echo:     true,
		Retry: func(start, _ time.Time, interval time.Duration, jitter, u float64) time.Time {
			return start.Add(interval - time.Duration(jitter*u*float64(interval)))
		},
		StepDown: func(stop, unlock func()) {
			stop()
			unlock()
		},
		Unlock:  session.Unlock,
		Discard: (*session.Session).Discard,
		Tx:      Tx{Trusted: true, Seal: Guard},
	}
}

// Guard is the guard of a term as a statement: it fails with SQLSTATE LT001 when the term is over. Together with
// COMMIT it makes one message: the term's row is never locked while the server waits for the client.
func Guard(id session.ID) string {
	return fmt.Sprintf("select lock_guard(%d, %d, %d)", id.Key, id.Term, id.Token)
}

// Publish holds the steps of the publish scheduler; a unit is a row's id and its schedule number.
type Publish struct {
	// Ready returns when the first tick may begin.
	Ready func(ctx context.Context, tick time.Duration) error
	// Heed says whether a pass stops for anything: the end of the term, or a deadline.
	Heed bool
	// Claim publishes the unit's row, as far as its status goes; false when there is nothing to do any more.
	Claim func(ctx context.Context, tx pgx.Tx, id, scheduleNo int64) (bool, error)
	// Blame decides whether a failure is the task's own, given whether it is.
	Blame func(task bool) bool
	// Cancel takes a unit's schedule back.
	Cancel func(ctx context.Context, tx pgx.Tx, id, scheduleNo int64) error
}

package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Answers to an attempt and to an unlock.
const (
	Acquired = "acquired"
	Busy     = "busy"
	Shared   = "shared"
	Moved    = "moved"
	Unlocked = "unlocked"
	NotHeld  = "not held"
	Failed   = "error"
)

// own is true of the row of pg_locks that says that this backend holds key $1. The split into two halves is exact for
// every 64-bit number. The database needs no check: pid is that of this very backend.
const own = `locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1
	AND classid = (($1::bigint >> 32) & 4294967295)::oid AND objid = ($1::bigint & 4294967295)::oid`

const (
	// CASE runs its branches in order, since the lock function is volatile. Written as WHERE .. AND .., the order would be the planner's.
	acquireSQL = `SELECT CASE WHEN pg_backend_pid() <> $2::int THEN 'moved'
	WHEN EXISTS (SELECT FROM pg_locks WHERE ` + own + `) THEN 'shared'
	WHEN pg_try_advisory_lock($1::bigint) THEN 'acquired' ELSE 'busy' END`

	bumpSQL = `INSERT INTO lock_terms AS t SELECT $1::bigint, 1, $3::bigint, $4::text, pg_backend_pid(), clock_timestamp()
	WHERE pg_backend_pid() = $2::int AND EXISTS (SELECT FROM pg_locks WHERE ` + own + `)
	ON CONFLICT (key) DO UPDATE SET term = t.term + 1, token = excluded.token, holder = excluded.holder, pid = excluded.pid, since = excluded.since
	RETURNING term`

	beatSQL = `SELECT pg_backend_pid() = $2::int, EXISTS (SELECT FROM pg_locks WHERE ` + own + `),
	EXISTS (SELECT FROM lock_terms WHERE key = $1::bigint AND term = $3::bigint AND token = $4::bigint)`

	// Behind a transaction pooler an unlock may reach the backend of another client, and free its lock.
	unlockSQL = `SELECT CASE WHEN pg_backend_pid() <> $2::int THEN 'moved'
	WHEN pg_advisory_unlock($1::bigint) THEN 'unlocked' ELSE 'not held' END`
)

// ID is what an effect of a term is compared with. The token is a random number: after a failover to a replica that
// lags, the database may count the same term number a second time.
type ID struct{ Key, Term, Token int64 }

// Acquire asks for the lock, and refuses it when this backend holds it already: for a client behind a pooler that means that the
// backend is shared with whoever took it. Only after Busy may the session be used for another attempt.
func Acquire(s *Session, key int64) (answer string, err error) {
	err = s.Do("ask for the lock", func(ctx context.Context) error {
		return s.Row(ctx, acquireSQL, key, s.PID).Scan(&answer)
	})
	if err != nil {
		return Failed, err
	}
	return answer, nil
}

// ErrNotHeld is Bump's answer when the session does not hold the lock after all.
var ErrNotHeld = errors.New("the session does not hold the lock")

// Bump begins a new term and returns its number. It is alone in its transaction, and nobody may believe to lead before it
// has answered. It waits for effects of the former term that are being committed.
func Bump(s *Session, key, token int64, holder string) (term int64, err error) {
	err = s.Do("begin a term", func(ctx context.Context) error {
		return s.Row(ctx, bumpSQL, key, s.PID, token, holder).Scan(&term)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("begin a term: %w", ErrNotHeld)
	}
	return term, err
}

// Reasons of a lost beat.
const (
	ReasonMoved     = "another backend answers on the lease connection"
	ReasonLockGone  = "the lock is gone"
	ReasonTermOver  = "another term has begun"
	ReasonBeatError = "the heartbeat failed"
)

// Beat checks that the same backend answers, that it holds the lock, and that the term is the current one. reason is ""
// when all is well. It has no deadline of its own: when there is no answer in time, work must stop before the socket is
// closed, and that is the caller's business.
func Beat(ctx context.Context, s *Session, id ID) (reason string, err error) {
	var same, held, current bool
	err = s.Row(ctx, beatSQL, id.Key, s.PID, id.Term, id.Token).Scan(&same, &held, &current)
	switch {
	case err != nil:
		return ReasonBeatError, fmt.Errorf("heartbeat: %w", err)
	case !same:
		return ReasonMoved, nil
	case !held:
		return ReasonLockGone, nil
	case !current:
		return ReasonTermOver, nil
	}
	return "", nil
}

// Unlock gives the lock back. After any other answer than Unlocked the session must be closed, which gives it back for certain.
func Unlock(s *Session, key int64) (answer string, err error) {
	err = s.Do("unlock", func(ctx context.Context) error {
		return s.Row(ctx, unlockSQL, key, s.PID).Scan(&answer)
	})
	if err != nil {
		return Failed, err
	}
	return answer, nil
}

package lockimpl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
)

// ErrUnknownCommit is in the chain of an error of a transaction whose COMMIT was sent and not answered: it may or may
// not have happened. Look again before doing it again.
var ErrUnknownCommit = errors.New("it is not known whether the transaction was committed")

// A Beginner begins transactions: *pgx.Conn, *pgxpool.Conn and *pgxpool.Pool are some.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// begin is explicit: a role may have another isolation level as its default.
const begin = "begin isolation level read committed"

// rollbackLimit bounds the goodbye to a transaction whose own context has no end, or a later one.
const rollbackLimit = 5 * time.Second

// Tx runs fn in a transaction that commits only if the term is still the current one: once a later term has begun,
// nothing of this one commits. fn does its work with tx and returns; whatever it returns an error for is rolled back.
//
// The guard goes to the server in one message with COMMIT, after the work. Taken at the beginning, it would keep the next leader
// from beginning its term for as long as this process is paused, or simply has enough to do.
//
// The error is fn's own, or wraps ErrTermOver (nothing was done), ErrUnknownCommit (perhaps it was), or says why the
// transaction could not be begun or was refused at its end (nothing was done).
func (t *Term) Tx(ctx context.Context, db Beginner, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if t.steps.Trusted {
		if err := t.Err(); err != nil {
			return err
		}
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin, CommitQuery: t.commitQuery()})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if enter := t.steps.Enter; enter != nil {
		if err := enter(ctx, tx, t.id); err != nil {
			rollback(ctx, tx)
			return t.refused("guard", err)
		}
	}
	if err := fn(ctx, tx); err != nil {
		rollback(ctx, tx)
		return err
	}
	if t.steps.Trusted {
		if err := t.stale(); err != nil {
			rollback(ctx, tx)
			return err
		}
	}
	if err := ctx.Err(); err != nil { // not sent, so not unknown
		rollback(ctx, tx)
		return fmt.Errorf("commit: %w", err)
	}
	return t.commit(ctx, tx)
}

// Guard takes the guard in a transaction that is not run by Tx. It must be the last statement before COMMIT, with no
// time lost in between: it keeps the next term from beginning.
func (t *Term) Guard(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, steps.Guard(t.id)); err != nil {
		return t.refused("guard", err)
	}
	return nil
}

func (t *Term) commitQuery() string {
	if t.steps.Seal == nil {
		return "commit"
	}
	return t.steps.Seal(t.id) + "; commit"
}

// commit decides what became of the transaction.
func (t *Term) commit(ctx context.Context, tx pgx.Tx) error {
	err := tx.Commit(ctx)
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil // the tag was COMMIT
	case errors.Is(err, pgx.ErrTxCommitRollback):
		// A statement had failed and fn made light of it; the server answers such a COMMIT with ROLLBACK and no error.
		return fmt.Errorf("commit: %w", err)
	case errors.As(err, &pg) && !fatal(pg):
		// The server refused and said so, and pgx has closed the connection. (A FATAL may come after the commit has been written.)
		return t.refused("commit", err)
	}
	// Whatever else pgx says, also that it was safe to retry: the message had gone out.
	return fmt.Errorf("commit: %w: %w", ErrUnknownCommit, err)
}

// refused names the refusal, and tells the lease when it was the guard's.
func (t *Term) refused(what string, err error) error {
	if SQLState(err) == TermOverCode || errors.Is(err, ErrTermOver) {
		t.over()
		return fmt.Errorf("%s: term %d: %w", what, t.id.Term, ErrTermOver)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// rollback never outlives ctx: whoever has ended it waits for this goroutine, with a lock in its hand. pgx closes the connection when
// ctx has ended, without waiting for anybody, and the server rolls back when it sees that.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(ctx, rollbackLimit)
	defer cancel()
	_ = tx.Rollback(ctx)
}

func fatal(e *pgconn.PgError) bool {
	s := e.SeverityUnlocalized
	if s == "" {
		s = e.Severity
	}
	return s != "ERROR"
}

// SQLState is the SQLSTATE in err's chain, or "".
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

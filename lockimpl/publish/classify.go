package publish

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-aafb3a99/simrun/lockimpl"
)

// A Failure is a class of failures.
type Failure int

// The classes.
const (
	// InfrastructureFailure says nothing about the task: the unit is left for the next tick.
	InfrastructureFailure Failure = iota
	// TaskFailure is the task's own: it would fail again, so the unit is cancelled.
	TaskFailure
	// TermOver ends the tick.
	TermOver
)

func (f Failure) String() string {
	return [...]string{"infrastructure", "task-failure", "term-over"}[f]
}

// taskError marks what the task's callback returned.
type taskError struct{ err error }

func (e *taskError) Error() string { return e.err.Error() }
func (e *taskError) Unwrap() error { return e.err }

// Classify decides what an error of a unit's transaction means. It goes by SQLSTATE and type, never by text.
func Classify(err error) Failure {
	var pg *pgconn.PgError
	var task *taskError
	var network net.Error
	switch {
	case errors.Is(err, lockimpl.ErrTermOver):
		return TermOver
	case errors.Is(err, lockimpl.ErrUnknownCommit), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return InfrastructureFailure
	case errors.As(err, &pg):
		if pg.Code == lockimpl.TermOverCode {
			return TermOver
		}
		// Of the transaction's own statements only COMMIT can be refused for what the task did (a deferred constraint).
		mine := errors.As(err, &task) || strings.HasPrefix(pg.Code, "23")
		if mine && taskState(pg.Code) {
			return TaskFailure
		}
		return InfrastructureFailure
	case errors.Is(err, pgx.ErrTxCommitRollback): // the task made light of an error of its statement
		return TaskFailure
	case errors.As(err, &network):
		return InfrastructureFailure
	case errors.As(err, &task):
		return TaskFailure
	}
	return InfrastructureFailure
}

// taskState is true of SQLSTATEs that a statement earns by what it asks for: bad data (22), a broken constraint (23), bad SQL or
// no right (42), an exception of a trigger or function.
func taskState(code string) bool {
	return code == "P0001" || strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "42")
}

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

// Classify decides what an error of a unit's transaction means; lost says that its connection is of no use any more. It goes
// by SQLSTATE and type, never by text.
func Classify(err error, lost bool) Failure {
	var pg *pgconn.PgError
	var task *taskError
	var network net.Error
	switch {
	case errors.Is(err, lockimpl.ErrTermOver):
		return TermOver
	case errors.Is(err, lockimpl.ErrUnknownCommit), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return InfrastructureFailure
	case errors.As(err, &pg):
		// Of the transaction's own statements only COMMIT can be refused for what the task did (a deferred constraint).
		mine := errors.As(err, &task) || strings.HasPrefix(pg.Code, "23")
		switch {
		case pg.Code == lockimpl.TermOverCode:
			return TermOver
		case mine && taskState(pg.Code), pg.Code == inFailedTransaction:
			return TaskFailure
		}
		return InfrastructureFailure
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return TaskFailure // like inFailedTransaction
	case lost, errors.As(err, &network):
		return InfrastructureFailure
	case errors.As(err, &task):
		return TaskFailure
	}
	return InfrastructureFailure
}

// inFailedTransaction is what our own statement is told after the task has made light of an error of its own.
const inFailedTransaction = "25P02"

// taskState is true of SQLSTATEs that a statement earns by what it asks for: bad data (22), a broken constraint (23), bad SQL or
// no right (42), an exception of a trigger or function. One of class 42 is no such thing: the driver's name for a prepared
// statement was there already, because a pooler has handed out another server connection.
func taskState(code string) bool {
	if code == "42P05" {
		return false
	}
	return code == "P0001" || strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "42")
}

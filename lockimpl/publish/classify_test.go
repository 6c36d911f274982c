package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/lockimpl"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("x: %w", &pgconn.PgError{Code: code, Severity: "ERROR"}) }
	task := func(err error) error { return &taskError{err} }
	for _, c := range []struct {
		err  error
		want Failure
	}{
		{lockimpl.ErrTermOver, TermOver},
		{state("LT001"), TermOver},
		{task(state("LT001")), TermOver},

		{task(errors.New("no such template")), TaskFailure},
		{task(state("22012")), TaskFailure},
		{task(state("23505")), TaskFailure},
		{task(state("42P01")), TaskFailure},
		{task(state("P0001")), TaskFailure},
		{state("23503"), TaskFailure}, // a deferred constraint, at COMMIT
		{pgx.ErrTxCommitRollback, TaskFailure},
		{state("25P02"), TaskFailure},

		{state("42P01"), InfrastructureFailure}, // our own statement: the schema is not there
		{state("22P02"), InfrastructureFailure},
		{lockimpl.ErrUnknownCommit, InfrastructureFailure},
		{task(context.Canceled), InfrastructureFailure},
		{task(context.DeadlineExceeded), InfrastructureFailure},
		{task(state("08006")), InfrastructureFailure},
		{task(state("40001")), InfrastructureFailure},
		{task(state("40P01")), InfrastructureFailure},
		{task(state("53300")), InfrastructureFailure},
		{task(state("55P03")), InfrastructureFailure},
		{task(state("57014")), InfrastructureFailure},
		{task(state("57P01")), InfrastructureFailure},
		{task(state("25006")), InfrastructureFailure},
		{task(state("42P05")), InfrastructureFailure}, // a pooler's doing
		{task(state("26000")), InfrastructureFailure}, // and so is this
		{task(state("XX000")), InfrastructureFailure},
		{task(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}), InfrastructureFailure},
		{errors.New("begin: conn closed"), InfrastructureFailure},
	} {
		require.Equal(t, c.want, Classify(c.err, false), "%v", c.err)
	}
	// A driver's errors are many; that the connection is gone says it all.
	require.Equal(t, InfrastructureFailure, Classify(task(io.ErrUnexpectedEOF), true))
	require.Equal(t, TaskFailure, Classify(task(state("23505")), true))
}

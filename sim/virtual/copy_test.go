package virtual

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// pgx sends the rows of a COPY in one goroutine and reads in another, with a mutex between them.
func TestCopyFrom(t *testing.T) {
	e := newEngine(t)
	type result struct {
		copied, refused int64
		err, broken     error
		there           int
	}
	for i, route := range []sim.Route{sim.Direct, sim.PgBouncerSession, sim.PgBouncerTransaction, sim.Direct, sim.PgBouncerSession} {
		var got result
		// Of a write that takes longer than 15 ms pgx thinks that it may wait for a reader.
		run := world1(1, sim.Plan{Horizon: 30 * sec, Delays: [][]sim.Delay{{{Req: 5 * ms, Resp: 7 * ms}, {Req: sim.Duration(i) * 20 * ms, Resp: 9 * ms}}}}, script(func(ctx context.Context, env *sim.Env) error {
			got = result{}
			c, err := dial(ctx, env, "work")
			if err != nil {
				return err
			}
			defer c.Close(context.WithoutCancel(ctx))
			rows := func(n int) pgx.CopyFromSource {
				return pgx.CopyFromSlice(n, func(i int) ([]any, error) { return []any{i, fmt.Sprint("row ", i)}, nil })
			}
			if _, err := c.Exec(ctx, "SET idle_session_timeout = '20s'; LISTEN c"); err != nil { // what makes the engine speak to the session
				return err
			}
			before := time.Now()
			got.copied, err = c.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"id", "t"}, rows(5000))
			if err != nil || time.Since(before) == 0 {
				return fmt.Errorf("copy: %w, %s", err, time.Since(before))
			}
			got.refused, got.err = c.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"id", "t"}, rows(1)) // the key is there
			_, got.broken = c.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"id", "t"}, pgx.CopyFromFunc(func() ([]any, error) { return nil, errors.New("no more") }))
			return c.QueryRow(ctx, "SELECT count(*) FROM copied").Scan(&got.there)
		}, "CREATE TABLE copied (id int PRIMARY KEY, t text, at timestamptz DEFAULT now())"))
		run.Route = route
		twice(t, e, run)
		require.EqualValues(t, 5000, got.copied, route)
		var refused *pgconn.PgError
		require.ErrorAs(t, got.err, &refused, route)
		require.Equal(t, "23505", refused.Code)
		require.Error(t, got.broken, route)
		require.Equal(t, 5000, got.there, route)
	}
}

// A loop of statements that take no time and has no pause would never end; it is told, and the engine lives on.
func TestBusyLoop(t *testing.T) {
	e := newEngine(t)
	_, err := carry(t, e, world1(1, sim.Plan{Horizon: 30 * sec, Delays: [][]sim.Delay{{{}}}}, script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		for err == nil && ctx.Err() == nil {
			_, err = c.Exec(ctx, "SELECT 1")
		}
		return err
	}, "")))
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, 1, busy.Replica)
	require.Contains(t, busy.Statement, "SELECT 1")
	_, err = carry(t, e, world1(2, sim.Plan{Horizon: 30 * sec}, leaseImpl()))
	require.NoError(t, err)
}

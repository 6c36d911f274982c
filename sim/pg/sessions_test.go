package pg_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim/pg"
)

func TestTerminateSession(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, name := database(t)
	_, other := database(t)
	victim, twin := connect(t, s, name, "r1/1/lease/1"), connect(t, s, name, "r1/1/lease/1")
	neighbour, elsewhere := connect(t, s, name, "r1/1/lease/2"), connect(t, s, other, "r1/1/lease/1")
	exec(t, victim, "SELECT pg_advisory_lock(5)")

	all, err := s.Sessions(ctx, name)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, "r1/1/lease/1", all[0].AppName)
	require.Equal(t, victim.PgConn().PID(), all[0].PID)
	require.Equal(t, "idle", all[0].State)

	gone, err := s.TerminateSession(ctx, name, "r1/1/lease/1")
	require.NoError(t, err)
	require.True(t, gone)
	// Proved: the lock is free in the very next statement.
	require.True(t, value[bool](t, neighbour, "SELECT pg_try_advisory_lock(5)"))
	require.Equal(t, "57P01", code(victim.Ping(ctx)))
	require.Equal(t, "57P01", code(twin.Ping(ctx)))
	require.NoError(t, neighbour.Ping(ctx))
	require.NoError(t, elsewhere.Ping(ctx))

	gone, err = s.TerminateSession(ctx, name, "r1/1/lease/1")
	require.NoError(t, err)
	require.False(t, gone, "there was none")
}

func TestTerminateSessionTouchesOnlyOurs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, name := database(t)
	unnamed := connect(t, s, name, "")
	for _, where := range [][2]string{{name, ""}, {"postgres", "simrun admin"}, {"simrun_not_ours", "x"}} {
		_, err := s.TerminateSession(ctx, where[0], where[1])
		require.Error(t, err)
	}
	require.NoError(t, unnamed.Ping(ctx))
}

func TestHolders(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, name := database(t)
	_, other := database(t)
	control, err := s.Connect(ctx, "postgres", "observer")
	require.NoError(t, err)
	defer control.Close(ctx)
	holders := func(keys ...int64) []pg.Holder {
		all, err := pg.Holders(ctx, control, name, keys...)
		require.NoError(t, err)
		return all
	}
	keys := []int64{0, -1, 7, 1840000001, math.MaxInt64, math.MinInt64, 1 << 32, -1 << 32}
	require.Empty(t, holders(keys...))

	conn := connect(t, s, name, "r3/2/lease/1")
	// None of these is the lock: another database's, a pair of ints that has the same bits, a shared one, a waiter.
	exec(t, connect(t, s, other, "r1/1/lease/1"), "SELECT pg_advisory_lock(7)")
	decoy := connect(t, s, name, "r2/1/lease/1")
	exec(t, decoy, "SELECT pg_advisory_lock(0, 7), pg_advisory_lock_shared(8)")
	require.Empty(t, holders(7, 8))

	for _, key := range keys {
		exec(t, conn, "SELECT pg_advisory_lock($1)", key)
		waiter := connect(t, s, name, "r4/1/lease/1")
		waiter.PgConn().Frontend().SendQuery(query("SELECT pg_advisory_lock(7)"))
		require.NoError(t, waiter.PgConn().Frontend().Flush())
		all := holders(key)
		require.Len(t, all, 1, key)
		require.Equal(t, key, all[0].Key)
		require.Equal(t, "r3/2/lease/1", all[0].AppName)
		require.Equal(t, conn.PgConn().PID(), all[0].PID)
		require.Equal(t, value[string](t, conn, "SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"), value[string](t, conn, "SELECT $1::timestamptz::text", all[0].Start))
		_, err := s.TerminateSession(ctx, name, "r4/1/lease/1")
		require.NoError(t, err)
	}
	require.Len(t, holders(keys...), len(keys))
	exec(t, conn, "SELECT pg_advisory_unlock_all()")
	require.Empty(t, holders(keys...))

	// A transaction's lock counts as well.
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7)")
	require.NoError(t, err)
	require.Len(t, holders(7), 1)
	require.NoError(t, tx.Rollback(ctx))

	exec(t, control, "BEGIN")
	_, err = pg.Holders(ctx, control, name, 7)
	require.Error(t, err, "in a transaction the list of sessions is frozen")
}

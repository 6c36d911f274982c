package pg_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

const (
	lockTerms  = "CREATE TABLE lock_terms (key bigint PRIMARY KEY, term bigint NOT NULL, token bigint NOT NULL, holder text NOT NULL, pid int NOT NULL, since timestamptz NOT NULL)"
	bump       = "INSERT INTO lock_terms AS t VALUES ($1, 1, $2, 'x', pg_backend_pid(), clock_timestamp()) ON CONFLICT (key) DO UPDATE SET term = t.term + 1, token = excluded.token, since = excluded.since"
	makeEffect = "INSERT INTO simrun.ledger(kind, role, key, row_id, unit, term) VALUES ('effect', $1, $2, $3, $4, $5)"
)

// ledger is a database with the ledger installed by its owner, who is no superuser.
func ledger(t *testing.T) (*pg.Server, string) {
	t.Helper()
	s, name := database(t, lockTerms)
	conn := connect(t, s, name, "setup")
	require.NoError(t, pg.InstallLedger(context.Background(), conn))
	require.NoError(t, pg.InstallLedger(context.Background(), conn), "again, after more migrations")
	return s, name
}

func TestLedgerEvents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, name := ledger(t)
	start := time.Now()
	conn := connect(t, s, name, "r2/3/effect/1")
	exec(t, conn, bump, 982410937, int64(9e18))
	exec(t, conn, makeEffect, "publish", 982410937, 11, 1, 1)
	// Undone, wholly and in part.
	for _, end := range []string{"ROLLBACK", "ROLLBACK TO s; COMMIT"} {
		exec(t, conn, "BEGIN; SAVEPOINT s")
		exec(t, conn, makeEffect, "publish", 982410937, 12, 1, 1)
		exec(t, conn, bump, 982410937, 5)
		exec(t, conn, end)
	}
	// Two rows in one transaction, and a duplicate, which is exactly what must be kept.
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	for range 2 {
		_, err = tx.Exec(ctx, makeEffect, "publish", 982410937, 13, 2, 1)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(ctx))
	exec(t, conn, "UPDATE lock_terms SET holder = 'y'") // no bump
	exec(t, connect(t, s, name, "somebody"), bump, 982410937, 6)

	events, err := pg.ReadLedger(ctx, conn, start)
	require.NoError(t, err)
	for i := range events {
		require.Less(t, events[i].At.D().Abs(), time.Hour)
		events[i].At = 0
	}
	effect := sim.Event{Source: sim.FromLedger, Kind: sim.EvEffect, Op: sim.OpCommit, Replica: 2, Incarnation: 3, Session: "r2/3/effect/1", Role: "publish", Key: 982410937, Term: 1}
	term := sim.Event{Source: sim.FromLedger, Kind: sim.EvTerm, Op: sim.OpCommit, Replica: 2, Incarnation: 3, Session: "r2/3/effect/1", Key: 982410937, Term: 1, Token: "9000000000000000000"}
	at := func(e sim.Event, commit, row, unit int64) sim.Event {
		e.Commit, e.Row, e.Unit = commit, row, unit
		return e
	}
	foreign := sim.Event{Source: sim.FromLedger, Kind: sim.EvTerm, Op: sim.OpCommit, Session: "somebody", Key: 982410937, Term: 2, Token: "6", Commit: 5}
	require.Equal(t, []sim.Event{at(term, 1, 0, 0), at(effect, 2, 11, 1), at(effect, 3, 13, 2), at(effect, 4, 13, 2), foreign}, events)
}

func TestLedgerOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	s, name := ledger(t)
	conn := connect(t, s, name, "x")
	exec(t, conn, "INSERT INTO simrun.ledger(kind) VALUES ('nonsense')")
	_, err := pg.ReadLedger(context.Background(), conn, time.Now())
	require.ErrorContains(t, err, "nonsense")
}

// Without lock_terms there are effects only; a role other than the owner may write them, and the clock is the one the
// session's search_path names first.
func TestLedgerForOthersAndOtherClocks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, name := database(t)
	owner := connect(t, s, name, "owner")
	require.NoError(t, pg.InstallLedger(ctx, owner))
	exec(t, owner, "CREATE SCHEMA simclock")
	exec(t, owner, "CREATE FUNCTION simclock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2031-05-06 07:08:09Z'::timestamptz $$")
	exec(t, owner, "GRANT USAGE ON SCHEMA simclock TO PUBLIC")

	control, err := s.Connect(ctx, name, "r1/1/effect/1")
	require.NoError(t, err)
	defer control.Close(ctx)
	exec(t, control, "SET ROLE NONE")
	exec(t, control, "CREATE ROLE foreign_app")
	defer exec(t, control, "RESET ROLE; SET ROLE NONE; DROP ROLE foreign_app")
	exec(t, control, "SET ROLE foreign_app")
	exec(t, control, makeEffect, "publish", 1, 1, 1, nil)
	exec(t, control, "SET search_path = public, simclock, pg_catalog")
	exec(t, control, makeEffect, "publish", 1, 2, 1, nil)

	start := time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC)
	events, err := pg.ReadLedger(ctx, owner, start)
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Negative(t, events[0].At.D())
	require.Equal(t, 9*time.Second, events[1].At.D())
}

// The order is that of the commits, which the server itself can tell us; ids and time stamps are not.
func TestLedgerOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, name := ledger(t)
	const sessions, each = 8, 500
	var g errgroup.Group
	var aborted atomic.Int64
	for n := range sessions {
		conn := connect(t, s, name, sim.SessionName(n+1, 1, sim.UseEffect, 1))
		g.Go(func() error {
			for i := range each {
				tx, err := conn.Begin(ctx)
				if err != nil {
					return err
				}
				sql, args := makeEffect, []any{"publish", 1, n, i, 1}
				if i%20 == 0 {
					sql, args = bump, []any{n % 2, i} // two sessions and more on one row
				}
				if _, err := tx.Exec(ctx, sql, args...); err != nil {
					return fmt.Errorf("session %d, commit %d: %w", n, i, err)
				}
				if i%10 == 5 {
					aborted.Add(1)
					if err := tx.Rollback(ctx); err != nil {
						return err
					}
					continue
				}
				if err := tx.Commit(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())

	conn := connect(t, s, name, "reader")
	events, err := pg.ReadLedger(ctx, conn, time.Now())
	require.NoError(t, err)
	require.Len(t, events, sessions*each-int(aborted.Load()))
	terms := map[int64]int64{}
	for i, e := range events {
		require.EqualValues(t, i+1, e.Commit)
		if e.Kind == sim.EvTerm {
			require.Equal(t, terms[e.Key]+1, e.Term, "bumps of one row are serial anyway")
			terms[e.Key] = e.Term
		}
	}
	require.NotEmpty(t, terms)

	inversions := func(order string) (n int) {
		rows, err := conn.Query(ctx, "SELECT pg_xact_commit_timestamp(xid::xid) FROM simrun.ledger ORDER BY "+order)
		require.NoError(t, err)
		stamps, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
		require.NoError(t, err)
		require.False(t, slices.ContainsFunc(stamps, time.Time.IsZero))
		for i := 1; i < len(stamps); i++ {
			if stamps[i].Before(stamps[i-1]) {
				n++
			}
		}
		return n
	}
	require.Zero(t, inversions("position"))
	require.Positive(t, inversions("id"), "or the test proves nothing")
}

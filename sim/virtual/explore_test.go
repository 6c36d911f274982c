package virtual_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

// explored carries out every interleaving of a program of so many replicas, and returns the explorer and what the replicas noted.
func explored(t *testing.T, e *virtual.Engine, replicas int, program func(context.Context, *sim.Env, *pgx.Conn) error) (x *gen.Explorer, notes [][]string) {
	t.Helper()
	impl := sim.Implementation{
		Name: "program", Role: sim.Role{Name: "program", Key: 7}, Migrations: "CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL); INSERT INTO counters VALUES (1, 0), (2, 0), (3, 0);",
		Run: func(ctx context.Context, env *sim.Env) error {
			c, err := connect.Connect(ctx, env, "program")
			if err != nil {
				return err
			}
			defer c.Close(context.WithoutCancel(ctx))
			return program(ctx, env, c)
		},
	}
	plan := sim.Plan{V: sim.PlanVersion, Horizon: 10 * sec}
	x = gen.NewExplorer(plan, 100)
	for x.Next() {
		ctx, stop := context.WithCancel(context.Background())
		run := sim.Run{Scenario: sim.Scenario{Name: "program", Replicas: replicas, Duration: plan.Horizon}, Plan: x.Plan(), Route: sim.Direct, Impl: impl}
		run.Choose = func(next []sim.Step) int {
			k := x.Choose(next)
			if x.Redundant() {
				stop()
			}
			return k
		}
		rec, err := sim.NewRecorder(io.Discard, e.Header(run))
		require.NoError(t, err)
		err = e.Run(ctx, run, rec)
		stop()
		if x.Redundant() {
			require.ErrorIs(t, err, context.Canceled)
			continue
		}
		require.NoError(t, err)
		h, err := rec.Close()
		require.NoError(t, err)
		var said []string
		for _, ev := range h.Events {
			if ev.Kind == sim.EvNote && ev.Replica > 0 {
				said = append(said, fmt.Sprintf("%d %s", ev.Replica, ev.Text))
			}
		}
		notes = append(notes, said)

		// The picks alone give the same history.
		run.Plan, run.Choose = x.Plan(), nil
		again, err := carry(t, e, run)
		require.NoError(t, err)
		same(t, h, again)
	}
	require.NoError(t, x.Err())
	require.False(t, x.Bounded)
	return x, notes
}

// TestEveryInterleaving looks for a lost update: two replicas read a counter and write back one more. Of the six orders of
// their four statements four lose one. Written as one statement there are two orders, and none does.
func TestEveryInterleaving(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()

	lost := func(notes [][]string) (n int) {
		for _, said := range notes {
			require.Len(t, said, 2)
			if said[0][2:] == said[1][2:] {
				n++
			}
		}
		return n
	}
	note := func(env *sim.Env, n int) { env.Emit(sim.Event{Kind: sim.EvNote, Text: fmt.Sprint("made it ", n)}) }

	x, notes := explored(t, e, 2, func(ctx context.Context, env *sim.Env, c *pgx.Conn) error {
		var n int
		if err := c.QueryRow(ctx, "SELECT n FROM counters WHERE id = 1", pgx.QueryExecModeSimpleProtocol).Scan(&n); err != nil {
			return err
		}
		_, err := c.Exec(ctx, "UPDATE counters SET n = $1 WHERE id = 1", pgx.QueryExecModeSimpleProtocol, n+1)
		note(env, n+1)
		return err
	})
	require.Len(t, notes, 6)
	require.Equal(t, 4, lost(notes))
	require.Equal(t, 6, x.Runs)
	require.Zero(t, x.Skipped, "connecting and parting have nothing to do with each other, and no run is begun for them")

	_, notes = explored(t, e, 2, func(ctx context.Context, env *sim.Env, c *pgx.Conn) error {
		var n int
		err := c.QueryRow(ctx, "UPDATE counters SET n = n + 1 WHERE id = 1 RETURNING n", pgx.QueryExecModeSimpleProtocol).Scan(&n)
		note(env, n)
		return err
	})
	require.Len(t, notes, 2)
	require.Zero(t, lost(notes))
}

// TestEveryOrderOfALock has three replicas wait for one lock: it goes round in each of the six orders, and in no other way.
func TestEveryOrderOfALock(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	_, notes := explored(t, e, 3, func(ctx context.Context, env *sim.Env, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(7)"); err != nil {
			return err
		}
		env.Emit(sim.Event{Kind: sim.EvNote, Text: "has it"})
		_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(7)")
		return err
	})
	orders := map[string]int{}
	for _, said := range notes {
		require.Len(t, said, 3)
		orders[fmt.Sprint(said)]++
	}
	require.Len(t, orders, 6)
	t.Log(len(notes), "interleavings")
}

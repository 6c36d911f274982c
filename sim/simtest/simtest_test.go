package simtest

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
)

const tables = `CREATE TABLE jobs (id bigint PRIMARY KEY, due timestamptz NOT NULL, done boolean NOT NULL DEFAULT false)`

const load = `INSERT INTO jobs (id, due) VALUES ($1, now() + $2 * interval '1 second')`

var scenario = sim.Scenario{Replicas: 2, Duration: sim.Duration(time.Minute), Workload: sim.Workload{Rows: 10, Every: sim.Duration(3 * time.Second)}, Invariants: []string{"no-duplicate-publish"}}

var killFirst = []sim.FaultSpec{{Kind: sim.Kill, Target: "1", Window: sim.Range{From: sim.Duration(5 * time.Second), To: sim.Duration(20 * time.Second)}, For: sim.Range{From: sim.Duration(5 * time.Second), To: sim.Duration(5 * time.Second)}}}

// careless publishes what is due: it reads a row in one statement and marks it in another.
func careless(ctx context.Context, env *sim.Env) error { return publisher(ctx, env, "") }

// careful locks the row it reads.
func careful(ctx context.Context, env *sim.Env) error {
	return publisher(ctx, env, " FOR UPDATE SKIP LOCKED")
}

func publisher(ctx context.Context, env *sim.Env, locking string) error {
	for ctx.Err() == nil {
		func() {
			conn, err := connect.Connect(ctx, env, "effect")
			if err != nil {
				return
			}
			defer conn.Close(context.WithoutCancel(ctx))
			_ = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { // what fails is tried again
				var id int64
				if err := tx.QueryRow(ctx, "SELECT id FROM jobs WHERE NOT done AND due <= now() ORDER BY id LIMIT 1"+locking).Scan(&id); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, "UPDATE jobs SET done = true WHERE id = $1", id); err != nil {
					return err
				}
				return Effect(ctx, tx, env, id, 1)
			})
		}()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func TestCarefulHolds(t *testing.T) {
	s := scenario
	s.Faults = killFirst // nobody leads here
	Run(t, s, careful, Migrations(tables), Load(load), Schedules(10))
}

func TestCarelessIsCaught(t *testing.T) {
	text, err := explore(t, scenario, careless, []Option{Migrations(tables), Load(load)})
	require.NoError(t, err)
	require.Contains(t, text, "no-duplicate-publish is violated")
	require.Contains(t, text, "The smallest schedule: 2 replicas")
	require.Contains(t, text, "UPDATE jobs SET done = true")
	require.Contains(t, text, PlanVariable+"='{")
	t.Log(text)

	// The line that was printed shows it again.
	_, plan, _ := strings.Cut(text, PlanVariable+"='")
	plan, _, _ = strings.Cut(plan, "'")
	require.NoError(t, os.Setenv(PlanVariable, plan))
	defer os.Unsetenv(PlanVariable)
	text, err = explore(t, scenario, careless, []Option{Migrations(tables), Load(load)})
	require.NoError(t, err)
	require.Contains(t, text, "carried out again")
}

// A lock of fifteen lines: whoever holds the advisory lock leads.
func TestOwnLock(t *testing.T) {
	Run(t, sim.Scenario{Replicas: 3}, ownLock, Role("mine", 42), Schedules(5))
}

func ownLock(ctx context.Context, env *sim.Env) error {
	db, err := connect.DB(env, "lease")
	if err != nil {
		return err
	}
	defer db.Close()
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		lead(ctx, env, db)
	}
	return nil
}

func lead(ctx context.Context, env *sim.Env, db *sql.DB) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	var ok bool
	if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", env.Role.Key).Scan(&ok); err != nil || !ok {
		return
	}
	env.Emit(sim.Event{Kind: sim.EvLead, Role: env.Role.Name, Key: env.Role.Key})
	for ctx.Err() == nil {
		if _, err := conn.ExecContext(ctx, "SELECT 1"); err != nil {
			break
		}
		time.Sleep(time.Second)
	}
	env.Emit(sim.Event{Kind: sim.EvEnd, Role: env.Role.Name, Key: env.Role.Key})
	_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", env.Role.Key) // if the session lives
}

// A number that each run of the process counts up stands for what is decided by chance outside env.Rand.
func TestSelfCheck(t *testing.T) {
	t.Parallel()
	runs := 0
	replica := func(ctx context.Context, env *sim.Env) error {
		conn, err := connect.Connect(ctx, env, "effect")
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if env.Replica == 2 { // the plan starts it first
			runs++
		}
		if _, err := conn.Exec(ctx, "SELECT $1::int", runs); err != nil {
			return err
		}
		return careful(ctx, env)
	}
	opts := []Option{Migrations(tables), Load(load), Schedules(3)}
	s := scenario
	s.Faults = []sim.FaultSpec{}
	text, err := explore(t, s, replica, opts)
	require.NoError(t, err)
	require.Empty(t, text, "it may have its reasons")
	require.Equal(t, 4, runs, "the first schedule is run twice")
	text, err = explore(t, s, replica, append(opts, SelfCheck()))
	require.NoError(t, err)
	require.Contains(t, text, "self-check: schedule 0 on the route direct gave two histories")
	require.Contains(t, text, "SELECT $1::int [$1=5]")
	require.Contains(t, text, "SELECT $1::int [$1=6]", "the first difference")
	require.Contains(t, text, PlanVariable)
	text, err = explore(t, s, careful, append(opts, SelfCheck()))
	require.NoError(t, err)
	require.Empty(t, text, "the correct twin")
}

// A violation is not lost when the code under test panics in one of the schedules that are tried to make it small.
func TestViolationOutlivesAPanic(t *testing.T) {
	runs := 0
	text, err := explore(t, sim.Scenario{Replicas: 2}, func(ctx context.Context, env *sim.Env) error {
		if env.Replica == 1 && env.Incarnation == 1 {
			if runs++; runs > 2 { // the schedule itself, and perhaps once more
				panic("too often")
			}
		}
		env.Emit(sim.Event{Kind: sim.EvLead, Role: env.Role.Name, Key: env.Role.Key})
		<-ctx.Done()
		env.Emit(sim.Event{Kind: sim.EvEnd, Role: env.Role.Name, Key: env.Role.Key})
		return nil
	}, []Option{Role("mine", 42)})
	require.NoError(t, err)
	require.Contains(t, text, "one-leader is violated")
	require.Contains(t, text, PlanVariable+"='{")
	require.Equal(t, 1, strings.Count(text, "panicked: too often"), text)
}

// What is to be pasted names the test in a shell's and in an expression's terms.
func TestReplayLine(t *testing.T) {
	t.Run("it's (x)/y", func(t *testing.T) {
		require.Contains(t, replayLine(t, sim.Plan{}), `go test -run '^TestReplayLine$/^it'\''s_\(x\)$/^y$' .`)
	})
}

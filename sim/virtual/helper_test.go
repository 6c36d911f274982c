package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

const (
	ms  = sim.Duration(time.Millisecond)
	sec = sim.Duration(time.Second)
)

func newEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(t, Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// dial opens a session the way code under test does.
func dial(ctx context.Context, env *sim.Env, use string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(env.DSN + "&default_query_exec_mode=" + env.ExecMode)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = env.SessionName(use)
	cfg.DialFunc = env.Dial
	return pgx.ConnectConfig(ctx, cfg)
}

// script is an implementation from a function and some tables.
func script(f sim.Replica, migrations string) sim.Implementation {
	return sim.Implementation{Name: "script", Role: sim.Role{Name: "publish", Key: 982410937}, Migrations: migrations, Run: f}
}

func world1(replicas int, plan sim.Plan, impl sim.Implementation) sim.Run {
	if plan.Horizon == 0 {
		plan.Horizon = 60 * sec
	}
	plan.V = sim.PlanVersion
	return sim.Run{
		Scenario: sim.Scenario{Name: "test", Replicas: replicas, Duration: plan.Horizon, Workload: sim.Workload{Rows: 5, Every: 7 * sec}},
		Plan:     plan, Route: sim.Direct, Impl: impl,
	}
}

// carry carries a run out and returns its history.
func carry(t *testing.T, e *Engine, run sim.Run) (*sim.History, error) {
	t.Helper()
	var buf bytes.Buffer
	rec, err := sim.NewRecorder(&buf, e.Header(run))
	require.NoError(t, err)
	runErr := e.Run(context.Background(), run, rec)
	h, err := rec.Close()
	require.NoError(t, err)
	if os.Getenv("SHOW") != "" {
		t.Log("\n" + text(h))
	}
	return h, runErr
}

// twice carries it out twice and fails when the histories differ.
func twice(t *testing.T, e *Engine, run sim.Run) *sim.History {
	t.Helper()
	a, err := carry(t, e, run)
	require.NoError(t, err)
	b, err := carry(t, e, run)
	require.NoError(t, err)
	same(t, a, b)
	return a
}

func same(t *testing.T, a, b *sim.History) {
	t.Helper()
	if a.Digest() == b.Digest() {
		return
	}
	la, lb := lines(a), lines(b)
	for i := range max(len(la), len(lb)) {
		var x, y string
		if i < len(la) {
			x = la[i]
		}
		if i < len(lb) {
			y = lb[i]
		}
		if x != y {
			part := func(l []string, from, to int) string {
				return strings.Join(l[max(0, min(from, len(l))):min(to, len(l))], "\n")
			}
			require.Failf(t, "the histories differ", "at event %d:\n%s\n--- first\n%s\n--- second\n%s", i+1, part(la, i-12, i), part(la, i, i+6), part(lb, i, i+6))
		}
	}
}

func lines(h *sim.History) (out []string) {
	for _, e := range h.Events {
		b, _ := json.Marshal(e)
		out = append(out, string(b))
	}
	return out
}

// text is a history to read and to search.
func text(h *sim.History) string {
	var b strings.Builder
	for _, e := range h.Events {
		fmt.Fprintf(&b, "%9.3f %s %s", e.At.Seconds(), e.Who(), e.Kind)
		for _, s := range []string{e.Op, e.Session, e.SQL, e.Answer, e.Outcome, e.Reason, e.Text} {
			if s != "" {
				b.WriteString(" | " + s)
			}
		}
		if e.Lasts > 0 {
			fmt.Fprintf(&b, " | lasts %s", e.Lasts)
		}
		if len(e.BlockedBy) > 0 {
			fmt.Fprintf(&b, " | blocked by %v", e.BlockedBy)
		}
		if e.Kind == sim.EvEffect || e.Kind == sim.EvTerm {
			fmt.Fprintf(&b, " row %d term %d", e.Row, e.Term)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// leaseTables are what lease works with.
const leaseTables = `CREATE TABLE jobs (id bigint PRIMARY KEY, due timestamptz NOT NULL, done timestamptz);`

// lease is a small replica with all that a lease has: one session for the lock, one for the effects, a heartbeat.
func lease(ctx context.Context, env *sim.Env) error {
	for ctx.Err() == nil {
		if err := lead(ctx, env); err != nil && ctx.Err() == nil {
			env.Emit(sim.Event{Kind: sim.EvNote, Text: plain(err)})
		}
		pauseFor(ctx, env.Intervals.Retry.D())
	}
	return nil
}

func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func lead(ctx context.Context, env *sim.Env) error {
	within, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := dial(within, env, sim.UseLease)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if _, err := c.Exec(within, fmt.Sprintf("SET idle_session_timeout = %d", env.Intervals.TTL.D().Milliseconds())); err != nil {
		return err
	}
	for {
		var ok bool
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := c.QueryRow(within, "SELECT pg_try_advisory_lock($1)", env.Role.Key).Scan(&ok)
		cancel()
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if pauseFor(ctx, env.Intervals.Retry.D()); ctx.Err() != nil {
			return nil
		}
	}
	env.Emit(sim.Event{Kind: sim.EvLead, Role: env.Role.Name, Key: env.Role.Key})
	defer env.Emit(sim.Event{Kind: sim.EvEnd, Role: env.Role.Name, Key: env.Role.Key})
	e, err := dial(ctx, env, sim.UseEffect)
	if err != nil {
		return err
	}
	defer e.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := c.Exec(within, "SELECT 'beat'")
		if err == nil {
			err = work(within, env, e)
		}
		cancel()
		if err != nil {
			return err
		}
		pauseFor(ctx, 3*time.Second)
	}
	return nil
}

func work(ctx context.Context, env *sim.Env, c *pgx.Conn) error {
	var id int64
	err := c.QueryRow(ctx, "SELECT id FROM jobs WHERE done IS NULL AND due <= now() ORDER BY id LIMIT 1").Scan(&id)
	if err == pgx.ErrNoRows {
		return nil
	}
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE jobs SET done = now() WHERE id = $1", id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO simrun.ledger(kind, role, key, row_id, unit, term) VALUES ('effect', $1, $2, $3, 1, 1)", env.Role.Name, env.Role.Key, id)
		return err
	})
}

func leaseImpl() sim.Implementation {
	i := script(lease, leaseTables)
	i.Load = "INSERT INTO jobs VALUES ($1, now() + $2 * interval '1 second')"
	return i
}

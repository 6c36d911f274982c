package virtual

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What sessions do to each other: they wait for rows, tables and advisory locks, and end or cancel one another, so that one statement may
// set several free and one that was set free others.
const (
	endIdle    = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() AND state = 'idle' ORDER BY application_name LIMIT 1"
	endBusy    = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() AND state <> 'idle' ORDER BY application_name LIMIT 1"
	cancelBusy = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() AND state = 'active' ORDER BY application_name LIMIT 1"
)

var stormy = []string{
	endIdle, endBusy, cancelBusy,
	"CREATE TEMP TABLE IF NOT EXISTS mine (id int)",
	"DO $$ BEGIN PERFORM pg_advisory_xact_lock(5); PERFORM pg_notify('c', 'x'); END $$",
	"LOCK TABLE acct IN ACCESS EXCLUSIVE MODE NOWAIT",
	"TRUNCATE acct",
	"SELECT nextval('s')",
	"INSERT INTO acct VALUES (1) RETURNING id",
	"SELECT pg_advisory_lock(7)",
	"SELECT pg_advisory_xact_lock_shared(7)",
	"UPDATE acct SET id = nextval('s')",
	"SELECT pg_advisory_unlock_all()",
}

var stormFaults = []sim.Fault{
	{Kind: sim.Kill, Target: "2", For: 2 * sec}, {Kind: sim.Disconnect, Target: sim.TargetAll}, {Kind: sim.Pause, Target: "1", For: 3 * sec},
	{Kind: sim.BlackHole, Target: "3", For: 4 * sec}, {Kind: sim.HalfOpen, Target: "4", For: 4 * sec}, {Kind: sim.CutReply, Target: "1"},
	{Kind: sim.TerminateBackend, Target: "2"}, {Kind: sim.CancelStatement, Target: "3"}, {Kind: sim.IdleTimeout, Target: "4"},
	{Kind: sim.Recycle, Target: "1"}, {Kind: sim.Latency, Target: sim.TargetAll, For: 3 * sec}, {Kind: sim.Slow, Target: "2", For: 5 * sec},
	{Kind: sim.Restart, Target: "3", For: 1 * sec}, {Kind: sim.PoolerRestart}, {Kind: sim.PoolerNoise, For: 4 * sec}, {Kind: sim.PostgresRestart},
}

var (
	stormsFlag = flag.Int("storms", 12, "plans of TestStorm")
	fromFlag   = flag.Int("storms-from", 0, "the first of them")
)

// storm is a replica that does one after another of these, in transactions and without.
func storm(route sim.Route) sim.Implementation {
	return script(func(ctx context.Context, env *sim.Env) error {
		cfg, err := pgxpool.ParseConfig(env.DSN + "&default_query_exec_mode=" + env.ExecMode)
		if err != nil {
			return err
		}
		cfg.MaxConns = 4
		cfg.ConnConfig.RuntimeParams["application_name"] = env.SessionName("work")
		cfg.ConnConfig.DialFunc = env.Dial
		p, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer p.Close()
		act := func(n int) string {
			s := stormy[n%len(stormy)]
			if s == endIdle && !route.Stable() {
				return "SELECT 1" // there a session that is idle has the name of whoever had it last, and several may have the same
			}
			return s
		}
		for i := 0; ctx.Err() == nil; i++ {
			a, b := act(i*5+env.Replica*3), act(i*2+3+env.Replica)
			if i%2 == 1 || route == sim.PgBouncerStatement {
				_, _ = p.Exec(ctx, a)
			} else if tx, err := p.Begin(ctx); err == nil {
				_, _ = tx.Exec(ctx, a)
				_, _ = tx.Exec(ctx, b)
				_ = tx.Commit(ctx)
			}
			pauseFor(ctx, 650*time.Millisecond)
		}
		return nil
	}, "CREATE TABLE acct (id int); CREATE SEQUENCE s")
}

// TestStorm: sessions that wait for, cancel and end each other have the same history in every run.
func TestStorm(t *testing.T) {
	e := newEngine(t)
	routes := []struct {
		route sim.Route
		pool  int
	}{{sim.Direct, 0}, {sim.PgBouncerSession, 0}, {sim.PgBouncerTransaction, 0}, {sim.PgBouncerStatement, 0}, {sim.PgBouncerTransaction, 3}, {sim.PgBouncerSession, 6}}
	seen := map[string]int{}
	for k := range *stormsFlag {
		if k < *fromFlag {
			continue
		}
		to := routes[k%len(routes)]
		r := rand.New(rand.NewPCG(uint64(k), 7))
		plan := sim.Plan{Horizon: 30 * sec, Phase: []sim.Duration{0, 100 * ms, 300 * ms, 400 * ms}}
		for range 4 {
			var ds []sim.Delay
			for range 5 {
				ds = append(ds, sim.Delay{Req: sim.Duration(r.IntN(400)) * ms, Resp: sim.Duration(r.IntN(400)) * ms})
			}
			plan.Delays = append(plan.Delays, ds)
		}
		for range 60 {
			plan.Picks = append(plan.Picks, r.IntN(5))
		}
		if k/len(routes)%2 == 1 { // every other plan of each route
			for n := range 4 {
				f := stormFaults[r.IntN(len(stormFaults))]
				f.At = sim.Duration(4+6*n) * sec
				plan.Faults = append(plan.Faults, f)
			}
		}
		run := world1(4, plan, storm(to.route))
		run.Route, run.Scenario.Pool.Size = to.route, to.pool
		t.Run(fmt.Sprintf("%d-%s-%d", k, to.route, to.pool), func(t *testing.T) {
			first, err := carry(t, e, run)
			require.NoError(t, err)
			for _, x := range first.Events {
				if len(x.BlockedBy) > 0 {
					seen["waited"]++
				}
				for _, code := range []string{"57P01", "57014", "40P01", "55P03"} {
					if strings.Contains(x.Answer, code) {
						seen[code]++
					}
				}
			}
			for range 2 {
				b, err := carry(t, e, run)
				require.NoError(t, err)
				same(t, first, b)
			}
		})
	}
	t.Log(seen)
	for _, what := range []string{"waited", "57P01", "57014", "40P01", "55P03"} {
		require.Greater(t, seen[what], 0, what)
	}
}

// TestWhatEarlierRunsLeave: a run meets the database as the migrations left it, and no session of the engine's: where sequences stand, though no
// table has rows, and how many sessions there are.
func TestWhatEarlierRunsLeave(t *testing.T) {
	e := newEngine(t)
	impl := script(func(ctx context.Context, env *sim.Env) error {
		for range 3 {
			c, err := dial(ctx, env, "work")
			if err != nil {
				return err
			}
			var n, sessions int64
			if err := c.QueryRow(ctx, "SELECT nextval('s'), (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database())").Scan(&n, &sessions); err != nil {
				return err
			}
			env.Emit(sim.Event{Kind: sim.EvNote, Text: fmt.Sprintf("number %d, sessions %d", n, sessions)})
			if n < 3 { // the last one is left
				_ = c.Close(ctx)
			}
		}
		_, err := dial(ctx, env, "other")
		return err
	}, "CREATE SEQUENCE s")
	for range 3 {
		h, err := carry(t, e, world1(1, sim.Plan{Horizon: 5 * sec}, impl))
		require.NoError(t, err)
		var got []string
		for _, x := range h.Events {
			if x.Kind == sim.EvNote && x.Source == sim.FromReplica {
				got = append(got, x.Text)
			}
		}
		require.Equal(t, []string{"number 1, sessions 1", "number 2, sessions 1", "number 3, sessions 1"}, got)
	}
}

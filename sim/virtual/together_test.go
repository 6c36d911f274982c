package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
)

// TestCancelledTogether: one context ends and with it the statements of several goroutines, each with a connection of its own. pgx dials once for
// each to cancel it, in an order that the runtime chooses; who is cancelled when is decided all the same.
func TestCancelledTogether(t *testing.T) {
	e := newEngine(t)
	for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession, sim.PgBouncerTransaction} {
		run := world1(2, sim.Plan{Horizon: 40 * sec, Delays: [][]sim.Delay{{{Req: 5 * ms, Resp: 7 * ms}, {Req: 11 * ms, Resp: 3 * ms}, {Req: 2 * ms, Resp: 9 * ms}}}}, script(func(ctx context.Context, env *sim.Env) error {
			for round := 0; ctx.Err() == nil && round < 4; round++ {
				jobs, cancel := context.WithCancel(ctx)
				var wg sync.WaitGroup
				for n := range 4 {
					wg.Go(func() {
						pauseFor(jobs, time.Duration(n)*1001*time.Millisecond)
						c, err := dial(jobs, env, fmt.Sprint("job", n))
						if err != nil {
							return
						}
						defer c.Close(context.WithoutCancel(ctx))
						if tx, err := c.Begin(jobs); err == nil {
							defer tx.Rollback(context.WithoutCancel(ctx))
							if _, err := tx.Exec(jobs, "UPDATE jobs SET owner = $1 WHERE id = 1", n); err != nil {
								return
							}
						}
						pauseFor(jobs, 4*time.Second)
						cancel() // the first job that is done ends the others, as in an errgroup
					})
				}
				wg.Wait()
				cancel()
			}
			return nil
		}, "CREATE TABLE jobs (id int, owner int); INSERT INTO jobs VALUES (1, 0)"))
		run.Route = route
		first, err := carry(t, e, run)
		require.NoError(t, err)
		cancelled := 0
		for _, x := range first.Events {
			if x.Answer == "ERROR 57014" || strings.Contains(x.Answer, "not answered") {
				cancelled++
			}
		}
		require.Greater(t, cancelled, 6, text(first))
		for range 4 {
			again, err := carry(t, e, run)
			require.NoError(t, err)
			same(t, first, again)
		}
	}
}

// TestTimeoutsOfATransaction: a timeout that is set for a transaction runs out at the virtual instant behind every pooler, and what is set for a session
// of a pool that gives every transaction another one does not run out on real time.
func TestTimeoutsOfATransaction(t *testing.T) {
	e := newEngine(t)
	for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession, sim.PgBouncerTransaction} {
		run := world1(2, sim.Plan{Horizon: 20 * sec, Phase: []sim.Duration{0, 500 * ms}, Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 1 * ms}}}}, script(func(ctx context.Context, env *sim.Env) error {
			c, err := dial(ctx, env, "work")
			if err != nil {
				return err
			}
			defer c.Close(context.WithoutCancel(ctx))
			for _, set := range []string{"SET LOCAL statement_timeout = '300ms'", "SET LOCAL lock_timeout = '300ms'", ""} {
				if set == "" { // it stays with the session
					if _, err := c.Exec(ctx, "SET statement_timeout = '100ms'"); err != nil {
						return err
					}
				}
				if tx, err := c.Begin(ctx); err == nil {
					if env.Replica == 2 && set != "" {
						_, _ = tx.Exec(ctx, set)
					}
					_, _ = tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7), pg_sleep(0.02)")
					pauseFor(ctx, 2*time.Second)
					_ = tx.Rollback(ctx)
				}
				pauseFor(ctx, time.Until(env.Start.Add(time.Since(env.Start).Truncate(3*time.Second)+3*time.Second+time.Duration(env.Replica)*100*time.Millisecond)))
			}
			return nil
		}, ""))
		run.Route = route
		h := twice(t, e, run)
		var waited []string
		for _, x := range h.Events {
			if x.Replica == 2 && len(x.BlockedBy) > 0 {
				waited = append(waited, fmt.Sprint(x.Answer, " ", x.Lasts))
			}
		}
		require.Len(t, waited, 3, text(h))
		require.Equal(t, []string{"ERROR 57014 302ms", "ERROR 55P03 302ms"}, waited[:2], route)
		if route == sim.PgBouncerTransaction {
			require.Contains(t, waited[2], "SELECT 1", "nobody's timeout")
		} else {
			require.Equal(t, "ERROR 57014 102ms", waited[2], route)
		}
	}
}

// TestWorkersTogether: goroutines that do the same and start together on one pool, which dials for each, on every route. Where statements take no time, too.
func TestWorkersTogether(t *testing.T) {
	e := newEngine(t)
	for _, delays := range [][][]sim.Delay{nil, {{{Req: 5 * ms, Resp: 7 * ms}, {Req: 11 * ms, Resp: 3 * ms}, {Req: 2 * ms, Resp: 9 * ms}}}} {
		for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession, sim.PgBouncerTransaction} {
			run := world1(2, sim.Plan{Horizon: 10 * sec, Delays: delays}, script(func(ctx context.Context, env *sim.Env) error {
				cfg, err := connect.PoolConfig(env, "work")
				if err != nil {
					return err
				}
				cfg.MaxConns = 2
				pool, err := pgxpool.NewWithConfig(ctx, cfg)
				if err != nil {
					return err
				}
				defer pool.Close()
				var wg sync.WaitGroup
				for range 1 + env.Replica { // as many as there are connections, and one more
					wg.Go(func() {
						for ctx.Err() == nil {
							_, _ = pool.Exec(ctx, "UPDATE jobs SET owner = owner + 1 WHERE id = 1")
							pauseFor(ctx, time.Second)
						}
					})
				}
				wg.Wait()
				return nil
			}, "CREATE TABLE jobs (id int, owner int); INSERT INTO jobs VALUES (1, 0)"))
			run.Route = route
			first, err := carry(t, e, run)
			require.NoError(t, err)
			require.Greater(t, strings.Count(text(first), "UPDATE 1"), 30)
			for range 6 {
				again, err := carry(t, e, run)
				require.NoError(t, err)
				same(t, first, again)
			}
		}
	}
}

// TestCallers: what led to two dials is compared without the arguments, whatever they look like.
func TestCallers(t *testing.T) {
	places := map[string]bool{}
	for n := range 3 {
		func(_ struct{ p *int }, _ context.Context, _ [3]int, _ func()) { places[callers()] = true }(struct{ p *int }{&n}, t.Context(), [3]int{n}, func() {})
	}
	require.Len(t, places, 1)
	for p := range places {
		require.NotContains(t, p, "0x")
		require.Contains(t, p, "TestCallers.func1")
	}
}

// TestCancelledAsItBegins: a hundred statements that are cancelled as they begin, behind pools that share sessions, where what is cancelled late hits
// somebody else.
func TestCancelledAsItBegins(t *testing.T) {
	e := newEngine(t)
	p := sim.Plan{Horizon: 110 * sec, Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 1 * ms}}}}
	for i := range 100 {
		p.Faults = append(p.Faults, sim.Fault{Kind: sim.CancelStatement, Target: "1", At: sim.Duration(i+5) * sec})
	}
	for _, route := range []sim.Route{sim.PgBouncerStatement, sim.PgBouncerTransaction, sim.Direct} {
		run := world1(2, p, script(func(ctx context.Context, env *sim.Env) error {
			c, err := dial(ctx, env, "work")
			if err != nil {
				return err
			}
			defer c.Close(context.WithoutCancel(ctx))
			for ctx.Err() == nil {
				if _, err := c.Exec(ctx, "SELECT 1"); c.IsClosed() {
					return err
				}
				pauseFor(ctx, 500*time.Millisecond)
			}
			return nil
		}, ""))
		run.Route = route
		first, err := carry(t, e, run)
		require.NoError(t, err)
		require.Equal(t, 100, strings.Count(text(first), "ERROR 57014"), "%s", route)
		for range 3 {
			again, err := carry(t, e, run)
			require.NoError(t, err)
			same(t, first, again)
		}
	}
}

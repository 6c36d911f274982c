package virtual

import (
	"context"
	"fmt"
	"runtime"
	"slices"
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

// TestAsking: what led to two dials is compared without the arguments, whatever they look like.
func TestAsking(t *testing.T) {
	places := map[string]bool{}
	for n := range 3 {
		func(_ struct{ p *int }, _ context.Context, _ [3]int, _ func()) {
			places[(&replica{}).asking().from] = true
		}(struct{ p *int }{&n}, t.Context(), [3]int{n}, func() {})
	}
	require.Len(t, places, 1)
	for p := range places {
		require.NotContains(t, p, "0x")
		require.Contains(t, p, "TestAsking.func1 together_test.go:")
	}
}

// TestLineage: goroutines that are at the same place are told apart by what started them, and those of one parent by their numbers.
func TestLineage(t *testing.T) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	type one struct {
		what string
		id   int
	}
	var mu sync.Mutex
	var got []one
	child := func(what string) {
		up := make(chan struct{})
		wg.Go(func() {
			mu.Lock()
			got = append(got, one{what, (&replica{}).asking().id})
			mu.Unlock()
			close(up)
			<-stop
		})
		<-up
	}
	started := make(chan struct{}, 3)
	parent := func(what string) {
		child(what)
		started <- struct{}{}
		<-stop
	}
	// The younger is asked for its child first.
	turns := []chan struct{}{make(chan struct{}), make(chan struct{})}
	for i, turn := range turns {
		wg.Go(func() { <-turn; parent(fmt.Sprint("worker ", i)) })
	}
	close(turns[1])
	<-started
	close(turns[0])
	<-started
	wg.Go(func() { parent("zother") })
	<-started
	all := goroutines()
	slices.SortFunc(got, func(a, b one) int { return byLineage(lineage(all, a.id), lineage(all, b.id)) })
	require.Equal(t, "zother", got[2].what)
	if a, b := all[got[0].id].parent, all[got[1].id].parent; runtime.GOMAXPROCS(0) == 1 {
		require.Equal(t, "worker 0", got[0].what)
	} else { // their numbers are handed out to processors by the dozen
		require.Less(t, a, b)
	}
	for _, o := range got {
		require.Greater(t, len(lineage(all, o.id)), 2, "the worker, what started it, and this test")
	}
	close(stop)
	wg.Wait()
	require.Eventually(t, func() bool { _, there := goroutines()[got[0].id]; return !there }, time.Minute, time.Millisecond, "one that has ended is not there")
}

// TestDialledByDifferentGoroutines: a listener and a loop take their connections out of one pool at one instant. Which of them is first is the runtime's
// choice; which has the first session is not.
func TestDialledByDifferentGoroutines(t *testing.T) {
	e := newEngine(t)
	for _, delays := range [][]sim.Delay{nil, {{Req: 7 * ms, Resp: 10 * ms}, {Req: 1 * ms, Resp: 18 * ms}}} {
		run := world1(2, sim.Plan{Horizon: 20 * sec, Delays: [][]sim.Delay{delays, delays}}, script(func(ctx context.Context, env *sim.Env) error {
			cfg, err := connect.PoolConfig(env, "work")
			if err != nil {
				return err
			}
			cfg.MaxConns = 8 // there is one for each: who waits for one is the runtime's choice too, and no dial tells
			pool, err := pgxpool.NewWithConfig(ctx, cfg)
			if err != nil {
				return err
			}
			defer pool.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				c, err := pool.Acquire(ctx)
				if err != nil {
					return
				}
				defer c.Release()
				if _, err := c.Exec(ctx, "LISTEN news"); err == nil {
					_, _ = c.Conn().WaitForNotification(ctx)
				}
			})
			for range 3 { // and three that are alike: on several processors not even their age tells them apart
				wg.Go(func() {
					c, err := pool.Acquire(ctx)
					if err != nil {
						return
					}
					defer c.Release()
					for ctx.Err() == nil {
						_, _ = c.Exec(ctx, "SELECT $1::int", 7)
						pauseFor(ctx, 3*time.Second)
					}
				})
			}
			for ctx.Err() == nil {
				_, _ = pool.Exec(ctx, "SELECT pg_notify('news', '')")
				pauseFor(ctx, 3*time.Second)
			}
			return nil
		}, ""))
		first, err := carry(t, e, run)
		require.NoError(t, err)
		require.Contains(t, text(first), "LISTEN")
		require.Contains(t, text(first), "$1=7")
		for range 25 {
			again, err := carry(t, e, run)
			require.NoError(t, err)
			same(t, first, again)
		}
	}
}

// TestEqualDeadlines: pgxpool pings with a deadline that equals its caller's. When both run out in a black hole, who is told first decides whether the
// pool dials once more; it is the caller, each time.
func TestEqualDeadlines(t *testing.T) {
	e := newEngine(t)
	run := world1(2, sim.Plan{Horizon: 50 * sec, Faults: []sim.Fault{{Kind: sim.BlackHole, Target: "1", At: 10 * sec, For: 20 * sec}}}, script(func(ctx context.Context, env *sim.Env) error {
		cfg, err := connect.PoolConfig(env, "work")
		if err != nil {
			return err
		}
		cfg.MaxConns = 20
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer pool.Close()
		var busy []*pgxpool.Conn // so that several are there to be pinged in turn
		for range 3 {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			busy = append(busy, c)
		}
		for _, c := range busy {
			c.Release()
		}
		for ctx.Err() == nil {
			within, cancel := context.WithTimeout(ctx, 1700*time.Millisecond)
			_, _ = pool.Exec(within, "SELECT 1")
			cancel()
			pauseFor(ctx, 1500*time.Millisecond)
		}
		return nil
	}, ""))
	first, err := carry(t, e, run)
	require.NoError(t, err)
	for range 25 {
		again, err := carry(t, e, run)
		require.NoError(t, err)
		same(t, first, again)
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

// TestStatementsOfASQLPool: database/sql closes prepared statements under the mutex of its pool, on connections that others may have had meanwhile.
func TestStatementsOfASQLPool(t *testing.T) {
	e := newEngine(t)
	e.cfg.Watchdog = 3 * time.Second
	for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession} {
		delays := []sim.Delay{{Req: 7 * ms, Resp: 10 * ms}, {Req: 1 * ms, Resp: 18 * ms}, {Req: 3 * ms, Resp: 2 * ms}}
		run := world1(2, sim.Plan{Horizon: 20 * sec, Delays: [][]sim.Delay{delays, delays}}, script(func(ctx context.Context, env *sim.Env) error {
			db, err := connect.DB(env, "work")
			if err != nil {
				return err
			}
			defer db.Close()
			db.SetMaxOpenConns(4)
			db.SetMaxIdleConns(2)
			var wg sync.WaitGroup
			for n := range 4 {
				wg.Go(func() {
					for pauseFor(ctx, time.Duration(n*1370+1)*time.Microsecond); ctx.Err() == nil; pauseFor(ctx, 700*time.Millisecond+time.Duration(n*137)*time.Microsecond) {
						st, err := db.PrepareContext(ctx, fmt.Sprintf("SELECT %d + $1::int", n))
						if err != nil {
							continue
						}
						var got int
						_ = st.QueryRowContext(ctx, 1).Scan(&got)
						_ = st.Close()
					}
				})
			}
			wg.Wait()
			return nil
		}, ""))
		run.Route = route
		first, err := carry(t, e, run)
		require.NoError(t, err)
		require.Greater(t, strings.Count(text(first), "SELECT 1 ("), 100)
		for range 4 {
			again, err := carry(t, e, run)
			require.NoError(t, err)
			same(t, first, again)
		}
	}
}

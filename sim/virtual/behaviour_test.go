package virtual

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

func say(env *sim.Env, text string) { env.Emit(sim.Event{Kind: sim.EvNote, Text: text}) }

func sayErr(env *sim.Env, what string, err error) {
	var p *pgconn.PgError
	switch {
	case err == nil:
		say(env, what+" ok")
	case errors.As(err, &p):
		say(env, what+" "+p.Code)
	case errors.Is(err, context.DeadlineExceeded):
		say(env, what+" deadline")
	default:
		say(env, what+" "+plain(err))
	}
}

// said are the notes of replicas, with the second they were made.
func said(h *sim.History) (out []string) {
	for _, e := range h.Events {
		if e.Kind == sim.EvNote && e.Source == sim.FromReplica {
			out = append(out, e.At.D().Truncate(time.Millisecond).String()+" "+e.Who()+" "+e.Text)
		}
	}
	return out
}

const rows = `CREATE TABLE runs (id int PRIMARY KEY, status text); INSERT INTO runs SELECT g, 'QUEUED' FROM generate_series(1, 5) g;`

// must runs statements, one after the other, and reports the first error.
func must(ctx context.Context, env *sim.Env, c *pgx.Conn, sqls ...string) bool {
	for _, s := range sqls {
		if _, err := c.Exec(ctx, s, pgx.QueryExecModeSimpleProtocol); err != nil {
			sayErr(env, s, err)
			return false
		}
	}
	return true
}

func plan(horizon sim.Duration, faults ...sim.Fault) sim.Plan {
	return sim.Plan{Phase: []sim.Duration{0, 1 * sec, 2 * sec, 3 * sec}, Horizon: horizon, Faults: faults, Delays: [][]sim.Delay{{{Req: 10 * ms, Resp: 10 * ms}}}}
}

func TestAStatementThatWaits(t *testing.T) {
	e := newEngine(t)
	h := twice(t, e, world1(2, plan(30*sec), script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		must(ctx, env, c, "BEGIN", "UPDATE runs SET status = status || 'x' WHERE id = 1")
		say(env, "has it")
		time.Sleep(10 * time.Second)
		must(ctx, env, c, "COMMIT")
		return nil
	}, rows)))
	require.Equal(t, []string{"80ms r1 has it", "10.1s r2 has it"}, said(h)[:2], text(h))
	require.Contains(t, text(h), "blocked by [r1/1/work/1]")
}

func TestDeadlock(t *testing.T) {
	e := newEngine(t)
	h := twice(t, e, world1(2, plan(30*sec), script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		a, b := "1", "2"
		if env.Replica == 2 {
			a, b = b, a
		}
		must(ctx, env, c, "BEGIN", "UPDATE runs SET status = 'x' WHERE id = "+a)
		time.Sleep(5 * time.Second)
		if must(ctx, env, c, "UPDATE runs SET status = 'y' WHERE id = "+b) {
			say(env, "survived")
		}
		must(ctx, env, c, "COMMIT")
		return nil
	}, rows)))
	require.Len(t, said(h), 2, text(h))
	require.Contains(t, said(h)[0], "r1 survived")
	require.Contains(t, said(h)[1], "r2 UPDATE runs SET status = 'y' WHERE id = 1 40P01") // whoever closes the circle
}

// One commit sets several free: the plan's picks decide who is first.
func TestFreedTogether(t *testing.T) {
	e := newEngine(t)
	body := script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		if env.Replica == 1 {
			must(ctx, env, c, "BEGIN", "UPDATE runs SET status = 'x' WHERE id IN (1, 2, 3)")
			time.Sleep(10 * time.Second)
			must(ctx, env, c, "COMMIT")
			return nil
		}
		_, err = c.Exec(ctx, "WITH u AS (UPDATE runs SET status = 'y' WHERE id = $1 RETURNING 1) INSERT INTO once SELECT 1 FROM u ON CONFLICT DO NOTHING", env.Replica-1)
		if err != nil {
			return err
		}
		tag, err := c.Exec(ctx, "UPDATE once SET n = n WHERE n = -1")
		_ = tag
		return err
	}, rows+`CREATE TABLE once (n int PRIMARY KEY);`)
	first := func(picks ...int) string {
		p := plan(30 * sec)
		p.Picks = picks
		h := twice(t, e, world1(4, p, body))
		for _, l := range strings.Split(text(h), "\n") {
			if strings.Contains(l, "WITH u AS") && strings.Contains(l, "INSERT 0 1") {
				return strings.Fields(l)[1]
			}
		}
		require.Fail(t, "nobody came first", text(h))
		return ""
	}
	require.Equal(t, "r2", first())
	require.Equal(t, "r3", first(1))
	require.Equal(t, "r4", first(2))
}

// A statement that waits for a lock outlives its client: the server does not look at the socket meanwhile.
func TestGhost(t *testing.T) {
	e := newEngine(t)
	h := twice(t, e, world1(2, plan(40*sec, sim.Fault{Kind: sim.Kill, Target: "2", At: 5 * sec}), script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		if env.Replica == 2 {
			must(ctx, env, c, "UPDATE runs SET status = 'GHOST' WHERE id = 1")
			return nil
		}
		must(ctx, env, c, "BEGIN", "UPDATE runs SET status = 'x' WHERE id = 1")
		time.Sleep(10 * time.Second)
		must(ctx, env, c, "COMMIT")
		var s string
		if err := c.QueryRow(ctx, "SELECT status FROM runs WHERE id = 1").Scan(&s); err != nil {
			return err
		}
		say(env, s)
		return nil
	}, rows)))
	require.Contains(t, strings.Join(said(h), "\n"), "r1 GHOST")
}

// A notification comes on an idle connection at a decided instant, where the route lets it through.
func TestNotifications(t *testing.T) {
	body := script(func(ctx context.Context, env *sim.Env) error {
		a, err := dial(ctx, env, "lease")
		if err != nil {
			return err
		}
		defer a.Close(context.WithoutCancel(ctx))
		b, err := dial(ctx, env, "probe")
		if err != nil {
			return err
		}
		defer b.Close(context.WithoutCancel(ctx))
		if !must(ctx, env, a, "LISTEN c") {
			return nil
		}
		for range 3 {
			if _, err := b.Exec(ctx, "SELECT pg_notify($1, $2)", "c", "hello"); err != nil {
				return err
			}
			within, cancel := context.WithTimeout(ctx, 3*time.Second)
			n, err := a.WaitForNotification(within)
			cancel()
			if err != nil {
				sayErr(env, "nothing", err)
				return nil
			}
			say(env, n.Channel+" "+n.Payload)
		}
		within, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err = a.WaitForNotification(within)
		sayErr(env, "nothing more", err)
		return nil
	}, "")
	for _, route := range sim.Routes {
		t.Run(string(route), func(t *testing.T) {
			run := world1(1, plan(30*sec), body)
			run.Route = route
			h := twice(t, newEngine(t), run)
			if !route.Stable() {
				require.Len(t, said(h), 1, text(h))
				require.Contains(t, said(h)[0], "nothing deadline")
				return
			}
			require.Len(t, said(h), 4, text(h))
			require.Contains(t, said(h)[2], "c hello")
			require.Contains(t, said(h)[3], "nothing more deadline")
		})
	}
}

// The server's last words arrive on an idle connection when the session is ended.
func TestLastWords(t *testing.T) {
	for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession} {
		t.Run(string(route), func(t *testing.T) {
			run := world1(1, plan(30*sec, sim.Fault{Kind: sim.TerminateBackend, Target: "1", At: 5 * sec}), script(func(ctx context.Context, env *sim.Env) error {
				c, err := dial(ctx, env, sim.UseLease)
				if err != nil {
					return err
				}
				defer c.Close(context.WithoutCancel(ctx))
				must(ctx, env, c, "SELECT 1")
				_, err = c.WaitForNotification(ctx)
				sayErr(env, "read", err)
				return nil
			}, ""))
			run.Route = route
			h := twice(t, newEngine(t), run)
			require.Equal(t, []string{"5.01s r1 read 57P01"}, said(h), text(h))
		})
	}
}

// TestTerminateTheOneInUse: behind a pool a client has had several server sessions, which still have its name. The one that works for it is ended.
func TestTerminateTheOneInUse(t *testing.T) {
	e := newEngine(t)
	for _, roundRobin := range []bool{false, true} {
		run := world1(1, plan(30*sec, sim.Fault{Kind: sim.TerminateBackend, Target: "1", At: 10 * sec}), script(func(ctx context.Context, env *sim.Env) error {
			a, err := dial(ctx, env, "a")
			if err != nil {
				return err
			}
			defer a.Close(context.WithoutCancel(ctx))
			b, err := dial(ctx, env, "b")
			if err != nil {
				return err
			}
			must(ctx, env, b, "BEGIN")
			must(ctx, env, a, "SELECT 1") // so that there are two server sessions
			must(ctx, env, b, "ROLLBACK")
			if err := b.Close(ctx); err != nil {
				return err
			}
			must(ctx, env, a, "SELECT 1", "SELECT 1", "BEGIN")
			pauseFor(ctx, 15*time.Second)
			_, err = a.Exec(ctx, "SELECT 2")
			sayErr(env, "in its transaction", err)
			return nil
		}, ""))
		run.Route = sim.PgBouncerTransaction
		run.Scenario.Pool.RoundRobin = roundRobin
		h := twice(t, e, run)
		require.Len(t, said(h), 1, text(h))
		require.NotContains(t, said(h)[0], " ok", "its transaction has ended with its server session")
		require.Contains(t, text(h), "terminate-backend")
	}
}

// The server's own timers run in virtual time.
func TestServerTimers(t *testing.T) {
	e := newEngine(t)
	h := twice(t, e, world1(3, plan(100*sec), script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		switch env.Replica {
		case 1: // holds a row and is idle in a transaction
			must(ctx, env, c, "SET idle_in_transaction_session_timeout = '20s'", "BEGIN", "UPDATE runs SET status = 'x' WHERE id = 1")
		case 2: // waits for it
			must(ctx, env, c, "BEGIN", "SELECT set_config('statement_timeout', '7s', true)")
			must(ctx, env, c, "UPDATE runs SET status = 'y' WHERE id = 1")
			return nil
		case 3:
			must(ctx, env, c, "SET idle_session_timeout = 30000")
		}
		_, err = c.WaitForNotification(ctx)
		sayErr(env, "read", err)
		return nil
	}, rows)))
	require.Equal(t, []string{"8.1s r2 UPDATE runs SET status = 'y' WHERE id = 1 57014", "20.1s r1 read 25P03", "32.06s r3 read 57P05"}, said(h), text(h))
}

// Of several connections that are cut at one instant each is heard of before the next, in the order in which they were opened.
func TestCutTogether(t *testing.T) {
	e := newEngine(t)
	p := plan(30*sec, sim.Fault{Kind: sim.Disconnect, Target: sim.TargetAll, At: 10 * sec})
	run := world1(2, p, script(func(ctx context.Context, env *sim.Env) error {
		var all sync.WaitGroup
		for i := range 6 {
			c, err := dial(ctx, env, fmt.Sprintf("c%d", i))
			if err != nil {
				return err
			}
			all.Go(func() {
				_, err := c.WaitForNotification(ctx)
				sayErr(env, fmt.Sprintf("c%d", i), err)
				_ = c.Close(context.WithoutCancel(ctx))
			})
		}
		all.Wait()
		return nil
	}, rows))
	run.Route = sim.PgBouncerSession // whose sessions end at once, so that the next one is cut before anybody has run
	h := twice(t, e, run)
	var order []string
	for _, s := range said(h) {
		order = append(order, strings.Join(strings.Fields(s)[1:3], " "))
	}
	require.Equal(t, []string{"r1 c0", "r1 c1", "r1 c2", "r1 c3", "r1 c4", "r1 c5", "r2 c0", "r2 c1", "r2 c2", "r2 c3", "r2 c4", "r2 c5"}, order, text(h))
}

// A process that is killed while it is paused may have had several requests to send, also such as end a session.
func TestKilledWhilePaused(t *testing.T) {
	e := newEngine(t)
	p := plan(30*sec, sim.Fault{Kind: sim.Pause, Target: "1", At: 10 * sec, For: 10 * sec}, sim.Fault{Kind: sim.Kill, Target: "1", At: 15 * sec})
	h := twice(t, e, world1(1, p, script(func(ctx context.Context, env *sim.Env) error {
		for i := range 4 {
			c, err := dial(ctx, env, fmt.Sprintf("c%d", i))
			if err != nil {
				return err
			}
			go func() {
				time.Sleep(12 * time.Second)
				switch i {
				case 0, 2:
					_ = c.Close(context.WithoutCancel(ctx))
				default:
					_, _ = c.Exec(ctx, "SELECT 1")
				}
			}()
		}
		<-ctx.Done()
		return nil
	}, rows)))
	require.Contains(t, text(h), "sessions of the process gone from the server")
}

// What a statement sets without naming it counts as well: a limit that was taken back ends nobody, and one that came as a parameter does.
func TestServerTimersUnnamed(t *testing.T) {
	e := newEngine(t)
	ways := []func(ctx context.Context, env *sim.Env, c *pgx.Conn){
		func(ctx context.Context, env *sim.Env, c *pgx.Conn) {
			must(ctx, env, c, "SET idle_session_timeout = 30000", "RESET ALL")
		},
		func(ctx context.Context, env *sim.Env, c *pgx.Conn) {
			must(ctx, env, c, "SET idle_session_timeout = 30000", "DISCARD ALL")
		},
		func(ctx context.Context, env *sim.Env, c *pgx.Conn) {
			if _, err := c.Exec(ctx, "SELECT set_config($1, '30s', false)", "idle_session_timeout"); err != nil {
				sayErr(env, "set_config", err)
			}
		},
	}
	h := twice(t, e, world1(len(ways), plan(100*sec), script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		ways[env.Replica-1](ctx, env, c)
		ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
		defer cancel()
		_, err = c.WaitForNotification(ctx)
		sayErr(env, "read", err)
		return nil
	}, rows)))
	require.Len(t, said(h), 3, text(h))
	for i, want := range []string{"r3 read 57P05", "r1 read", "r2 read"} {
		require.Contains(t, said(h)[i], want, text(h))
	}
}

// The database's clock is the bubble's, in and out of transactions, and may begin at any date.
func TestDatabaseClock(t *testing.T) {
	body := script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		ask := func(sql string) {
			var at time.Time
			if err := c.QueryRow(ctx, sql).Scan(&at); err != nil {
				sayErr(env, sql, err)
				return
			}
			say(env, at.UTC().Format(time.RFC3339Nano))
		}
		ask("SELECT now()")
		time.Sleep(10 * time.Second)
		ask("SELECT clock_timestamp()")
		if env.ExecMode == "exec" {
			return nil
		}
		must(ctx, env, c, "BEGIN")
		time.Sleep(10 * time.Second)
		ask("SELECT now()")
		ask("SELECT clock_timestamp()")
		must(ctx, env, c, "COMMIT")
		ask("SELECT now()")
		ask("SELECT CURRENT_TIMESTAMP - CURRENT_TIMESTAMP + now()")
		return nil
	}, "")
	for _, route := range sim.Routes {
		t.Run(string(route), func(t *testing.T) {
			run := world1(1, plan(30*sec), body)
			run.Plan.Delays = nil
			run.Scenario.StartsAt = "2028-02-29T23:59:55+01:00"
			run.Route = route
			h := twice(t, newEngine(t), run)
			var got []string
			for _, s := range said(h) {
				_, at, _ := strings.Cut(s, "r1 ")
				got = append(got, at)
			}
			want := []string{"2028-02-29T22:59:55Z", "2028-02-29T23:00:05Z", "2028-02-29T23:00:05Z", "2028-02-29T23:00:15Z", "2028-02-29T23:00:15Z", "2028-02-29T23:00:15Z"}
			if !route.Stable() {
				want = want[:2]
			} else {
				require.Contains(t, text(h), "reads a clock that does not follow virtual time")
			}
			require.Equal(t, want, got, text(h))
		})
	}
}

// Deadlines fire in a black hole, and the dial into it gives up; afterwards everything arrives late.
func TestBlackHole(t *testing.T) {
	e := newEngine(t)
	h := twice(t, e, world1(1, plan(100*sec, sim.Fault{Kind: sim.BlackHole, Target: "1", At: 1 * sec, For: 40 * sec}), script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		must(ctx, env, c, "SELECT pg_advisory_lock(1)")
		time.Sleep(2 * time.Second)
		within, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err = c.Exec(within, "SELECT 1")
		sayErr(env, "exec", err)
		within, cancel = context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err = dial(within, env, "work")
		sayErr(env, "dial", err)
		<-c.PgConn().CleanupDone()
		say(env, "cleaned up")
		c, err = dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		must(ctx, env, c, "SELECT pg_advisory_lock(1)")
		say(env, "has it")
		return nil
	}, "")))
	require.Equal(t, []string{"5.06s r1 exec deadline", "8.06s r1 dial deadline", "20.06s r1 cleaned up", "41.05s r1 has it"}, said(h), text(h))
}

// The answer to a COMMIT is lost. The client cannot know; the row can.
func TestCutReply(t *testing.T) {
	e := newEngine(t)
	f := sim.Fault{Kind: sim.CutReply, Target: "1", After: &sim.Trigger{Pattern: "commit", Nth: 2}}
	h := twice(t, e, world1(1, plan(30*sec, f), script(func(ctx context.Context, env *sim.Env) error {
		for i := range 2 {
			c, err := dial(ctx, env, "work")
			if err != nil {
				return err
			}
			tx, err := c.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "UPDATE runs SET status = 'DONE' WHERE id = $1", i+1); err != nil {
				return err
			}
			if err := tx.Commit(ctx); err != nil {
				say(env, "commit failed")
			}
			c.Close(context.WithoutCancel(ctx))
		}
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		var n int
		if err := c.QueryRow(ctx, "SELECT count(*) FROM runs WHERE status = 'DONE'").Scan(&n); err != nil {
			return err
		}
		say(env, "done: "+itoa(n))
		return nil
	}, rows)))
	require.Contains(t, strings.Join(said(h), "\n"), "commit failed")
	require.Contains(t, strings.Join(said(h), "\n"), "done: 2")
}

// Pools of pgx and database/sql work unchanged.
func TestPools(t *testing.T) {
	e := newEngine(t)
	h := twice(t, e, world1(2, plan(2*3600*sec, sim.Fault{Kind: sim.Disconnect, Target: "1", At: 600 * sec}), script(func(ctx context.Context, env *sim.Env) error {
		var exec func(context.Context) error
		if env.Replica == 1 {
			cfg, err := pgxpool.ParseConfig(env.DSN + "&pool_max_conns=3&pool_min_conns=1")
			if err != nil {
				return err
			}
			cfg.ConnConfig.DialFunc = env.Dial
			pool, err := pgxpool.NewWithConfig(ctx, cfg)
			if err != nil {
				return err
			}
			defer pool.Close()
			exec = func(ctx context.Context) error { _, err := pool.Exec(ctx, "SELECT 1"); return err }
		} else {
			cfg, err := pgx.ParseConfig(env.DSN)
			if err != nil {
				return err
			}
			cfg.DialFunc = env.Dial
			db := stdlib.OpenDB(*cfg)
			defer db.Close()
			db.SetConnMaxLifetime(time.Hour)
			exec = func(ctx context.Context) error {
				tx, err := db.BeginTx(ctx, &sql.TxOptions{})
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if _, err = tx.ExecContext(ctx, "SELECT 1"); err != nil {
					return err
				}
				return tx.Commit()
			}
		}
		n := 0
		for ctx.Err() == nil {
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			if exec(within) == nil {
				n++
			}
			cancel()
			pauseFor(ctx, 10*time.Minute)
		}
		say(env, itoa(n))
		return nil
	}, "")))
	require.Len(t, said(h), 2)
}

func TestLeak(t *testing.T) {
	e := newEngine(t)
	leaks := script(func(ctx context.Context, env *sim.Env) error {
		go func() {
			for { // ignores its context
				time.Sleep(time.Minute)
			}
		}()
		return nil
	}, "")
	h, err := carry(t, e, world1(1, plan(30*sec), leaks))
	var leak *LeakError
	require.ErrorAs(t, err, &leak)
	require.Len(t, leak.Stacks, 1)
	require.Contains(t, leak.Stacks[0], "TestLeak")
	require.Contains(t, text(h), "left 1 goroutine behind")
	again, err := carry(t, e, world1(1, plan(30*sec), leaks))
	require.Error(t, err)
	same(t, h, again)
	_, err = carry(t, e, world1(2, plan(30*sec), leaseImpl())) // the engine lives on
	require.NoError(t, err)
}

func TestPanic(t *testing.T) {
	e := newEngine(t)
	h, err := carry(t, e, world1(1, plan(30*sec), script(func(ctx context.Context, env *sim.Env) error {
		panic("a replica's own defect")
	}, "")))
	var p *PanicError
	require.ErrorAs(t, err, &p)
	require.Contains(t, text(h), "own defect")
	// From where it arose to the replica's function, with file and line; the engine's own frames say nothing.
	first, place, _ := strings.Cut(p.Stack, "\n")
	require.Contains(t, first, "TestPanic")
	require.Contains(t, place, "behaviour_test.go:")
	require.NotContains(t, p.Stack, "debug.Stack")
	require.NotContains(t, p.Stack, ").live")
	require.Contains(t, err.Error(), p.Stack)
	_, err = carry(t, e, world1(2, plan(30*sec), leaseImpl()))
	require.NoError(t, err)
}

// A mutex held across a statement stops virtual time. The watchdog says so.
func TestHung(t *testing.T) {
	e := newEngine(t)
	e.cfg.Watchdog = 2 * time.Second
	_, err := carry(t, e, world1(1, plan(30*sec), script(func(ctx context.Context, env *sim.Env) error {
		var mu sync.Mutex
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		mu.Lock()
		go func() { mu.Lock(); defer mu.Unlock() }()
		_, err = c.Exec(ctx, "SELECT 1")
		mu.Unlock()
		return errors.Join(err, c.Close(ctx))
	}, "")))
	var hung *HungError
	require.ErrorAs(t, err, &hung)
	require.Contains(t, strings.Join(hung.Stacks, "\n"), "TestHung")
	require.Contains(t, hung.Stacks[0], "sync.Mutex.Lock", "what is in the way comes first")
	require.ErrorContains(t, err, "wants a mutex")
	_, err = carry(t, e, world1(1, plan(30*sec), leaseImpl()))
	require.ErrorAs(t, err, &hung) // for good
}

// What else stops virtual time is called what it is.
func TestHungInOtherWays(t *testing.T) {
	outside := make(chan int)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	for _, c := range []struct {
		why string
		do  func(ctx context.Context)
	}{
		{"for a channel that was made outside", func(context.Context) { <-outside }},
		{"for channels of which one was made outside", func(ctx context.Context) {
			select {
			case <-ctx.Done():
			case <-outside:
			}
		}},
		{"input or output", func(context.Context) { _, _ = r.Read(make([]byte, 1)) }},
	} {
		e := newEngine(t)
		e.cfg.Watchdog = time.Second
		_, err := carry(t, e, world1(1, plan(30*sec), script(func(ctx context.Context, env *sim.Env) error {
			c.do(ctx)
			return nil
		}, "")))
		var hung *HungError
		require.ErrorAs(t, err, &hung)
		require.ErrorContains(t, err, c.why)
		require.Contains(t, hung.Stacks[0], "TestHungInOtherWays")
	}
}

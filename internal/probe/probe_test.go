package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/stretchr/testify/require"
)

const wait = 2 * time.Second

// front is a pooler in front of a database of its own, and the database's address with and without it.
func front(t *testing.T, o pgbouncer.Options) (pooled, direct *pgx.ConnConfig) {
	t.Helper()
	s := pgtest.Server(t)
	name := pgtest.DatabaseIn(t, s)
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	o.Run, o.LogDir = run, t.TempDir()
	t.Cleanup(func() {
		log, err := os.ReadFile(filepath.Join(o.LogDir, "pgbouncer.log"))
		require.NoError(t, err)
		require.Contains(t, string(log), "login attempt", "connections are logged")
		require.NotContains(t, string(log), "cancel request", "one can end the whole pooler")
	})
	o.Host, o.Port = s.HostPort()
	o.User = s.User()
	p, err := pgbouncer.Start(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	host, port := p.HostPort()
	pooled, err = pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", host, port, s.User(), name))
	require.NoError(t, err)
	direct, err = pgx.ParseConfig(s.DSN(name))
	require.NoError(t, err)
	return pooled, direct
}

func connect(t *testing.T, cfg *pgx.ConnConfig) *client {
	t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &client{conn: conn, wait: 20 * time.Second}
}

func (c *client) must(t *testing.T, sql string) string {
	t.Helper()
	row, err := c.ask(context.Background(), sql)
	require.NoError(t, err)
	return strings.Join(row, " ")
}

// busy keeps n clients at work over the pooler until the test ends.
func busy(t *testing.T, cfg *pgx.ConnConfig, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		c := connect(t, cfg)
		c.must(t, "select 1")
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.ask(context.Background(), "select pg_sleep(0.002)") // not ctx: its end would cancel
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
}

// Every kind of path is told from the others, on an idle pool, on a busy one, and whichever way the pool hands out its connections.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{pgbouncer.Session, pgbouncer.Transaction, pgbouncer.Statement} {
		for _, roundRobin := range []bool{false, true} {
			for _, load := range []int{0, 3} {
				t.Run(fmt.Sprintf("%s/round robin %v/load %d", mode, roundRobin, load), func(t *testing.T) {
					t.Parallel()
					pooled, direct := front(t, pgbouncer.Options{Mode: mode, RoundRobin: roundRobin, PoolSize: 8})
					// Several idle server connections, so that clients that take turns do not meet by themselves.
					var warm []*client
					for range 3 {
						c := connect(t, pooled)
						c.must(t, "select 1")
						warm = append(warm, c)
					}
					busy(t, pooled, load)
					server := connect(t, direct)
					before := server.must(t, objects)
					f := Run(t.Context(), pooled, wait)
					require.Equal(t, mode, f.Pooling, "%+v", f)
					want := Unstable
					if mode == pgbouncer.Session {
						want = Stable
						require.NotEmpty(t, f.NotTold)
					}
					require.Equal(t, want, f.Verdict, "%+v", f)
					require.NotEmpty(t, f.Why)
					require.NotEmpty(t, f.Server)
					require.Positive(t, f.Seconds)
					require.NotContains(t, strings.Join(f.Why, ""), "has stayed")
					require.Equal(t, before, server.must(t, objects), "nothing is created or locked")
					for _, c := range warm {
						require.Equal(t, "1", c.must(t, "select 1"), "nobody's session is ended")
					}
				})
			}
		}
	}
}

// objects is what there is in this test's database, which is its own. pg_locks shows the whole server's locks, so those of other tests are left out.
const (
	locksHere = `pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`
	objects   = `select (select count(*) from pg_class), (select count(*) from pg_proc), (select count(*) from ` + locksHere + `)`
)

// The count sees a lock of this database and none of another.
func TestObjects(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t)
	own := func() *client {
		cfg, err := pgx.ParseConfig(s.DSN(pgtest.DatabaseIn(t, s)))
		require.NoError(t, err)
		return connect(t, cfg)
	}
	here, there := own(), own()
	before := here.must(t, objects)
	there.must(t, "select pg_advisory_lock(4711)")
	require.Equal(t, before, here.must(t, objects))
	here.must(t, "select pg_advisory_lock(4711)")
	require.NotEqual(t, before, here.must(t, objects))
}

func TestDirect(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	f := Run(t.Context(), cfg, wait)
	require.Equal(t, Stable, f.Verdict, "%+v", f)
	require.Equal(t, Direct, f.Pooling)
	require.Less(t, f.Seconds, wait.Seconds(), "it does not wait out its patience")
}

// A pool with room for one is found out where it shares, and cannot be judged where each session has a backend of its own.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]Verdict{pgbouncer.Session: Inconclusive, pgbouncer.Transaction: Unstable, pgbouncer.Statement: Unstable} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pooled, _ := front(t, pgbouncer.Options{Mode: mode, PoolSize: 1})
			f := Run(t.Context(), pooled, 500*time.Millisecond)
			require.Equal(t, want, f.Verdict, "%+v", f)
			require.NotEmpty(t, f.Why)
			if want == Inconclusive {
				require.Empty(t, f.Pooling)
				require.Contains(t, strings.Join(f.Why, ""), "a session pool that is full")
				require.NotEmpty(t, f.NotTold)
				return
			}
			require.Equal(t, mode, f.Pooling)
			// The one server connection has nothing of the probe's on it.
			require.Equal(t, "0 0", connect(t, pooled).must(t, "select (select count(*) from pg_listening_channels()), (select count(*) from "+locksHere+")"))
		})
	}
}

func TestFullSessionPool(t *testing.T) {
	t.Parallel()
	pooled, _ := front(t, pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 2})
	for range 2 {
		connect(t, pooled).must(t, "select 1")
	}
	f := Run(t.Context(), pooled, 300*time.Millisecond)
	require.Equal(t, Inconclusive, f.Verdict, "%+v", f)
	require.Contains(t, f.Why[0], "full")
}

// What a client left on a pooled connection is not lost: behind a statement pooler the question which kind it is would cost that connection, so
// it is not asked there.
func TestNothingOfOthersIsLost(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"lock": "select pg_advisory_lock(4711)", "listener": "listen theirs", "temporary table": "create temp table theirs (i int)",
		"prepared statement": "prepare theirs as select 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pooled, direct := front(t, pgbouncer.Options{Mode: pgbouncer.Statement, PoolSize: 1})
			theirs := connect(t, pooled)
			pid := theirs.must(t, sql+"; select pg_backend_pid()")
			f := Run(t.Context(), pooled, wait)
			require.Equal(t, Unstable, f.Verdict, "%+v", f)
			require.Empty(t, f.Pooling, "it could not be told")
			require.Contains(t, strings.Join(f.NotTold, ""), "transactions or statements")
			require.Equal(t, "1", connect(t, direct).must(t, "select count(*) from pg_stat_activity where pid = "+pid), "the backend lives on")
		})
	}
}

// The listener on a backend that is lost from sight is taken back there. The look before it finds nearly every such pool, so the steps are taken by hand.
func TestTheListenIsTakenBack(t *testing.T) {
	t.Parallel()
	pooled, _ := front(t, pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 2})
	p := &prober{cfg: pooled, wait: 300 * time.Millisecond, f: &Finding{}}
	p.a, p.b = connect(t, pooled), connect(t, pooled)
	p.a.wait, p.b.wait = time.Second, time.Second
	// A holder keeps the other server connection for the listener's time, so that A listens on a known one and B hears nothing of it by chance.
	holder := connect(t, pooled)
	held := holder.must(t, "begin; select pg_backend_pid()")
	p.a.pid = p.a.must(t, "select pg_backend_pid()")
	require.NotEqual(t, held, p.a.pid)
	require.Equal(t, Unstable, p.listen(t.Context()), "%+v", p.f)
	require.Equal(t, p.a.pid, p.a.must(t, "select pg_backend_pid()"))
	require.Equal(t, "0", p.a.must(t, "select count(*) from pg_listening_channels()"))
	require.NotContains(t, strings.Join(p.f.Why, ""), "has stayed")

	// Where the backend is out of reach, that is said.
	f := &Finding{}
	lost := &prober{cfg: pooled, wait: time.Second, f: f, a: p.a, b: p.b, channel: "nobody"}
	lost.tidy(t.Context(), held)
	require.Contains(t, f.Why[0], "has stayed with backend "+held)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig("host=127.0.0.1 port=1 user=u password=s3cret dbname=d")
	require.NoError(t, err)
	f := Run(t.Context(), cfg, wait)
	require.Equal(t, Unreachable, f.Verdict)
	require.NotContains(t, fmt.Sprintf("%+v", f), "s3cret")
	require.Equal(t, 1, strings.Count(f.Why[0], "refused"), "%s", f.Why)
	p := &prober{cfg: cfg}
	require.NotContains(t, p.text(fmt.Errorf("it said\n\ts3cret")), "s3cret")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, Unreachable, Run(ctx, cfg, wait).Verdict)
}

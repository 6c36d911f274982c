package pgbouncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

var modes = []string{pgbouncer.Session, pgbouncer.Transaction, pgbouncer.Statement}

// front puts a pooler in front of the shared server.
func front(t *testing.T, o pgbouncer.Options) *pgbouncer.Pooler {
	t.Helper()
	s := pgtest.Server(t)
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	o.Run = run
	if o.Host == "" {
		o.Host, o.Port = s.HostPort()
		o.User = s.User()
	}
	p, err := pgbouncer.Start(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return p
}

func address(p *pgbouncer.Pooler, user, password, database string) string {
	host, port := p.HostPort()
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: fmt.Sprintf("%s:%d", host, port), Path: "/" + database,
		RawQuery: "sslmode=disable&default_query_exec_mode=exec"}
	return u.String()
}

func connect(t *testing.T, p *pgbouncer.Pooler, database, appName string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), address(p, pgtest.Server(t).User(), "", database)+"&application_name="+appName)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func backend(t *testing.T, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (pid int) {
	t.Helper()
	require.NoError(t, q.QueryRow(context.Background(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func setting(t *testing.T, p *pgbouncer.Pooler, name string) string {
	t.Helper()
	rows, err := p.Admin(context.Background(), "SHOW CONFIG")
	require.NoError(t, err)
	for _, row := range rows {
		if row[0] == name {
			return row[1]
		}
	}
	require.Fail(t, "no such setting", name)
	return ""
}

// Each mode does what it is there for.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			one, other := pgtest.DatabaseIn(t, pgtest.Server(t)), pgtest.DatabaseIn(t, pgtest.Server(t))
			p := front(t, pgbouncer.Options{Mode: mode, PoolSize: 2})
			require.Regexp(t, `^\d+\.\d+`, p.Version())
			require.Equal(t, mode, setting(t, p, "pool_mode"))
			require.Equal(t, "2", setting(t, p, "default_pool_size"))
			require.Equal(t, "0", setting(t, p, "server_round_robin"))

			a, b := connect(t, p, one, "a"), connect(t, p, one, "b")
			require.Equal(t, mode != pgbouncer.Session, backend(t, a) == backend(t, b), "they share a backend")
			require.NotEqual(t, backend(t, a), backend(t, connect(t, p, other, "c")), "any database is let through")

			_, err := a.Exec(ctx, "BEGIN")
			if mode == pgbouncer.Statement {
				require.Equal(t, "08P01", code(err))
				return
			}
			require.NoError(t, err)
			require.NotEqual(t, backend(t, a), backend(t, b))
			_, err = a.Exec(ctx, "COMMIT")
			require.NoError(t, err)
			if mode == pgbouncer.Session {
				var name string
				require.NoError(t, a.QueryRow(ctx, "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()").Scan(&name))
				require.Equal(t, "a", name)
			}
		})
	}
}

// The pool gives the connection used last, or goes round.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, roundRobin := range []bool{false, true} {
		name := pgtest.DatabaseIn(t, pgtest.Server(t))
		p := front(t, pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 2, RoundRobin: roundRobin})
		conn := connect(t, p, name, "a")
		// Two transactions at once open two connections.
		one, err := conn.Begin(ctx)
		require.NoError(t, err)
		two, err := connect(t, p, name, "b").Begin(ctx)
		require.NoError(t, err)
		require.NotEqual(t, backend(t, one), backend(t, two))
		require.NoError(t, one.Commit(ctx))
		require.NoError(t, two.Commit(ctx))
		first, second := backend(t, conn), backend(t, conn)
		require.Equal(t, roundRobin, first != second)
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	name := pgtest.DatabaseIn(t, pgtest.Server(t))
	p := front(t, pgbouncer.Options{Mode: pgbouncer.Session, Settings: map[string]string{"server_login_retry": "0.5"}})
	require.Equal(t, "0.5", setting(t, p, "server_login_retry"))
	a := connect(t, p, name, "a")
	_, err := a.Exec(ctx, "SELECT pg_advisory_lock(7)")
	require.NoError(t, err)

	_, port := p.HostPort()
	require.NoError(t, p.Reload(ctx, pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 1, RoundRobin: true}))
	require.Equal(t, "transaction 1 1 0.1", setting(t, p, "pool_mode")+" "+setting(t, p, "default_pool_size")+" "+setting(t, p, "server_round_robin")+" "+setting(t, p, "server_login_retry"))
	_, after := p.HostPort()
	require.Equal(t, port, after)
	// The client stayed, and shares its backend from now on, lock included.
	require.Equal(t, backend(t, a), backend(t, connect(t, p, name, "b")))

	require.Error(t, p.Reload(ctx, pgbouncer.Options{Mode: "nonsense"}))
	// A restart keeps what was reloaded.
	require.NoError(t, p.Restart(ctx))
	require.Equal(t, "transaction", setting(t, p, "pool_mode"))
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	name := pgtest.DatabaseIn(t, pgtest.Server(t))
	logs := t.TempDir()
	p := front(t, pgbouncer.Options{Mode: pgbouncer.Session, LogDir: logs, Name: "pooler"})
	_, port := p.HostPort()
	for range 2 {
		conn := connect(t, p, name, "a")
		require.NoError(t, p.Kill())
		<-p.Done()
		require.Error(t, conn.Ping(ctx))
		_, err := pgx.Connect(ctx, address(p, "simrun", "", name))
		require.Error(t, err)
		require.NoError(t, p.Kill(), "again")
		require.NoError(t, p.Restart(ctx))
		_, after := p.HostPort()
		require.Equal(t, port, after)
		require.NoError(t, connect(t, p, name, "a").Ping(ctx))
		require.NoError(t, p.Restart(ctx), "a living one, with a client")
	}
	log, err := os.ReadFile(filepath.Join(logs, "pooler.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "process up")
	require.NoError(t, p.Stop())
	require.NoError(t, p.Stop(), "again")
	require.Error(t, p.Restart(ctx))
}

// After a restart of Postgres its clients are served again soon.
func TestRestartOfPostgres(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	s, err := pg.Start(ctx, pg.Options{Run: run})
	require.NoError(t, err)
	name := s.NewDatabaseName()
	require.NoError(t, s.CreateDatabase(ctx, name, ""))
	host, port := s.HostPort()
	p := front(t, pgbouncer.Options{Mode: pgbouncer.Transaction, Host: host, Port: port, User: s.User()})
	require.Equal(t, "0.1", setting(t, p, "server_login_retry"))
	conn := connect(t, p, name, "a")
	require.NoError(t, conn.Ping(ctx))
	require.NoError(t, s.Restart(ctx, "immediate"))
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(ctx, address(p, s.User(), "", name))
		if err != nil {
			return false
		}
		defer conn.Close(ctx)
		return conn.Ping(ctx) == nil
	}, 10e9, 20e6, "long before the 15 s that are the default")
	require.NoError(t, s.Stop())
}

package pg_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

func query(sql string) *pgproto3.Query { return &pgproto3.Query{String: sql} }

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s, name := database(t)
	conn := connect(t, s, name, "test")
	for setting, want := range map[string]string{
		"fsync": "off", "synchronous_commit": "on", "autovacuum": "off", "track_commit_timestamp": "on", "checkpoint_timeout": "1d",
		"deadlock_timeout": "1s", "max_connections": "100", "server_version": s.Version(), "dynamic_shared_memory_type": "mmap",
	} {
		got := value[string](t, conn, "SELECT current_setting($1)", setting)
		require.True(t, got == want || strings.HasPrefix(got, want+" "), "%s is %s", setting, got)
	}
	require.True(t, s.Owned())
	require.Equal(t, pg.Local, s.Backend())
	require.Empty(t, s.Password())
}

func TestDurableServerWithSettings(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "made", "for", "it")
	s := own(t, pg.Options{Durable: true, LogDir: logs, Settings: map[string]string{"log_min_messages": "debug1", "cluster_name": "it's mine"}})
	ctx := context.Background()
	conn, err := s.Connect(ctx, "postgres", "")
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.Equal(t, "on on on", value[string](t, conn, "SELECT concat_ws(' ', current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'))"))
	require.Equal(t, "debug1", value[string](t, conn, "SELECT current_setting('log_min_messages')"))
	require.Equal(t, "it's mine", value[string](t, conn, "SELECT current_setting('cluster_name')"))
	log, err := os.ReadFile(filepath.Join(logs, "postgres.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "ready to accept connections")
}

// The code under test gets a role of its own that is no superuser, and over TCP nobody gets more: every user of the
// machine may connect there.
func TestRoles(t *testing.T) {
	t.Parallel()
	s, name := database(t)
	conn := connect(t, s, name, "test")
	require.Equal(t, s.User(), value[string](t, conn, "SELECT current_user"))
	require.False(t, value[bool](t, conn, "SELECT rolsuper OR rolcreatedb OR rolcreaterole FROM pg_roles WHERE rolname = current_user"))
	require.Equal(t, s.User(), value[string](t, conn, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"))

	_, err := pgx.Connect(context.Background(), strings.Replace(s.DSN(name), s.User()+"@", "postgres@", 1))
	require.Equal(t, "28000", code(err))

	ctx := context.Background()
	control, err := s.Connect(ctx, name, "")
	require.NoError(t, err)
	defer control.Close(ctx)
	exec(t, control, "CREATE TABLE made_by_control (id int)")
	require.Equal(t, s.User(), value[string](t, conn, "SELECT tableowner FROM pg_tables WHERE tablename = 'made_by_control'"))
	exec(t, control, "SET ROLE NONE")
	require.True(t, value[bool](t, control, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"))

	info, err := os.Stat(s.SocketDir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestDatabases(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, template := database(t, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1), (2)")
	name := s.NewDatabaseName()
	require.NotEqual(t, name, s.NewDatabaseName())
	open := connect(t, s, template, "leaving") // about to go: creating waits for it
	require.NoError(t, open.Close(ctx))
	require.NoError(t, s.CreateDatabase(ctx, name, template))
	conn := connect(t, s, name, "test")
	require.Equal(t, 2, value[int](t, conn, "SELECT count(*)::int FROM t"))
	require.Equal(t, "42P04", code(s.CreateDatabase(ctx, name, "")), "it exists")

	// A session in it is ended.
	require.NoError(t, s.DropDatabase(ctx, name))
	require.Error(t, conn.Ping(ctx))

	require.Error(t, s.DropDatabase(ctx, name), "it is not ours any more")
	require.Error(t, s.DropDatabase(ctx, "postgres"))
	require.Error(t, s.CreateDatabase(ctx, "elsewhere", ""))
	require.Error(t, s.CreateDatabase(ctx, `simrun_"; DROP`, ""))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := own(t, pg.Options{Settings: map[string]string{"work_mem": "5MB"}})
	name := s.NewDatabaseName()
	require.NoError(t, s.CreateDatabase(ctx, name, ""))
	exec(t, connect(t, s, name, "setup"), "CREATE TABLE t (id serial)")
	for n, mode := range []string{"fast", "immediate"} {
		conn := connect(t, s, name, "before")
		exec(t, conn, "INSERT INTO t DEFAULT VALUES")
		exec(t, conn, "SELECT pg_advisory_lock(1)")
		require.NoError(t, s.Restart(ctx, mode))
		require.Error(t, conn.Ping(ctx))
		conn = connect(t, s, name, "after") // on the same port
		require.Equal(t, n+1, value[int](t, conn, "SELECT count(*)::int FROM t"), mode)
		require.Equal(t, "5MB", value[string](t, conn, "SELECT current_setting('work_mem')"))
		gone, err := s.TerminateSession(ctx, name, "after")
		require.NoError(t, err)
		require.True(t, gone)
	}
	require.Error(t, s.Restart(ctx, "smart"))

	// A crash has nothing of before a checkpoint to replay.
	conn := connect(t, s, name, "checkpoint")
	exec(t, conn, "INSERT INTO t DEFAULT VALUES")
	written := value[string](t, conn, "SELECT pg_current_wal_insert_lsn()::text")
	replays := func() bool {
		return value[bool](t, conn, "SELECT redo_lsn < '"+written+"' FROM pg_control_checkpoint()")
	}
	require.True(t, replays())
	require.NoError(t, s.Checkpoint(ctx))
	require.False(t, replays())

	// It dies by itself, and is brought back.
	require.NoError(t, s.Alive())
	control, err := s.Connect(ctx, "postgres", "")
	require.NoError(t, err)
	defer control.Close(ctx)
	exec(t, control, "SET ROLE NONE")
	postmaster := value[int](t, control, "SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int")
	require.NoError(t, syscall.Kill(postmaster, syscall.SIGKILL))
	require.Eventually(t, func() bool { return s.Alive() != nil }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, s.Restart(ctx, "fast"))
	require.NoError(t, s.Alive())
	require.NoError(t, connect(t, s, name, "after").Ping(ctx))

	require.NoError(t, s.Stop())
	require.NoError(t, s.Alive(), "it was stopped, it did not end by itself")
	require.Error(t, s.Restart(ctx, "fast"))
}

// A session that a fault has stopped keeps a postmaster from ending.
func TestStopWithStoppedSession(t *testing.T) {
	t.Parallel()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	s, err := pg.Start(context.Background(), pg.Options{Run: run})
	require.NoError(t, err)
	name := s.NewDatabaseName()
	require.NoError(t, s.CreateDatabase(context.Background(), name, ""))
	pid := int(connect(t, s, name, "stopped").PgConn().PID())
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.NoError(t, s.Stop())
	require.True(t, dead(t, pid))
	require.NoError(t, s.Stop(), "again")
	left, err := filepath.Glob(run.Dir() + "/[^.]*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestControlConnectionWhenExhausted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := own(t, pg.Options{Settings: map[string]string{"max_connections": "10"}})
	name := s.NewDatabaseName()
	require.NoError(t, s.CreateDatabase(ctx, name, ""))
	var err error
	for n := 0; err == nil; n++ {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, s.DSN(name)); err == nil {
			require.Less(t, n, 10)
			defer conn.Close(ctx)
		}
	}
	require.Equal(t, "53300", code(err))
	control, err := s.Connect(ctx, name, "")
	require.NoError(t, err)
	require.NoError(t, control.Close(ctx))
}

func TestBinariesThatAreNotThere(t *testing.T) {
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	start := func() string {
		_, err := pg.Start(context.Background(), pg.Options{Run: run, Backend: pg.Local})
		var env *sim.EnvironmentError
		require.ErrorAs(t, err, &env)
		return env.Problem
	}
	t.Run("nowhere", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("SIMRUN_PG_BIN", dir)
		require.Contains(t, start(), "SIMRUN_PG_BIN is set to "+dir)
	})
	t.Run("too old", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{"postgres": "echo 'postgres (PostgreSQL) 13.22'", "initdb": "exit 1"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		}
		t.Setenv("SIMRUN_PG_BIN", dir)
		require.Contains(t, start(), "is version 13.22, but simrun needs 14 or later")
	})
	t.Run("not for the user it runs as", func(t *testing.T) {
		// A directory of ours alone; for an ordinary user, who is the one it runs as, it fails in initdb.
		dir := t.TempDir()
		for name, text := range map[string]string{"postgres": "echo 'postgres (PostgreSQL) 15.99'", "initdb": "echo nonsense >&2; exit 1"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		}
		t.Setenv("SIMRUN_PG_BIN", dir)
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		problem := start()
		if name, _, _, other := proc.Unprivileged(); other {
			require.Contains(t, problem, "the user "+name+" may not run "+dir+"/initdb")
		} else {
			require.Contains(t, problem, "could not be initialised")
		}
	})
	t.Run("a service that is not there", func(t *testing.T) {
		t.Setenv("PGSERVICE", "simrun-no-such-service")
		require.Contains(t, start(), "one of the environment variables PG... cannot be used")
	})
	t.Run("no such backend", func(t *testing.T) {
		_, err := pg.Start(context.Background(), pg.Options{Run: run, Backend: "oracle"})
		require.ErrorContains(t, err, `there is no Postgres backend "oracle"`)
	})
}

func TestServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	_, err = pg.Start(context.Background(), pg.Options{Run: run, Settings: map[string]string{"shared_buffers": "nonsense"}})
	var env *sim.EnvironmentError
	require.ErrorAs(t, err, &env)
	require.ErrorContains(t, err, "shared_buffers", "its own last word")
	left, err := filepath.Glob(run.Dir() + "/[^.]*")
	require.NoError(t, err)
	require.Empty(t, left)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = pg.Start(context.Background(), pg.Options{Run: run, LogDir: filepath.Join(file, "logs")})
	require.ErrorAs(t, err, &env)
	require.Contains(t, env.Problem, "the log of Postgres cannot be written in")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = pg.Start(ctx, pg.Options{Run: run})
	require.ErrorIs(t, err, context.Canceled)
}

func TestPgtest(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("a test with a database", func(t *testing.T) {
		dsn = pgtest.Database(t, "CREATE TABLE t (id int); INSERT INTO t VALUES (7)")
		conn, err := pgx.Connect(context.Background(), dsn)
		require.NoError(t, err)
		require.Equal(t, 7, value[int](t, conn, "SELECT id FROM t"))
		require.NoError(t, conn.Close(context.Background()))
	})
	_, err := pgx.Connect(context.Background(), dsn)
	require.Equal(t, "3D000", code(err), "dropped at the end of the test")
}

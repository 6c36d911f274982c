package pg_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

// helperName turns the test binary into a process with a whole world of servers; its value is what it does then.
const helperName = "PG_TEST_HELPER"

func TestMain(m *testing.M) {
	if what := os.Getenv(helperName); what != "" {
		if err := helper(what); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stages is how many lines helper prints: one for each thing that is there.
const stages = 6

// helper starts a server with busy, idle and stopped sessions and a pooler. Then it waits to be killed, or, if it was
// asked to, takes it all down.
func helper(what string) error {
	ctx := context.Background()
	run, err := proc.NewRun()
	if err != nil {
		return err
	}
	fmt.Println("run")
	s, err := pg.Start(ctx, pg.Options{Run: run, Backend: pg.Local})
	if err != nil {
		return err
	}
	fmt.Println("server")
	name := s.NewDatabaseName()
	if err := s.CreateDatabase(ctx, name, ""); err != nil {
		return err
	}
	fmt.Println("database")
	p, err := pgbouncer.Start(ctx, pgbouncer.Options{Run: run, Mode: pgbouncer.Session, Host: "127.0.0.1", Port: port(s), User: s.User()})
	if err != nil {
		return err
	}
	fmt.Println("pooler")
	// A backend that computes takes no notice of its client's or its postmaster's death; one that is stopped least of all.
	for _, sql := range []string{"SELECT count(*) FROM generate_series(1, 1e12::bigint)", "SELECT pg_sleep(1000)", "SELECT pg_sleep(1001)"} {
		conn, err := pgx.Connect(ctx, s.DSN(name))
		if err != nil {
			return err
		}
		conn.PgConn().Frontend().SendQuery(query(sql))
		if err := conn.PgConn().Frontend().Flush(); err != nil {
			return err
		}
		if sql == "SELECT pg_sleep(1001)" {
			if err := syscall.Kill(int(conn.PgConn().PID()), syscall.SIGSTOP); err != nil {
				return err
			}
		}
	}
	fmt.Println("sessions")
	if what == "tidy" {
		if err := p.Stop(); err != nil {
			return err
		}
		if err := s.Stop(); err != nil {
			return err
		}
		fmt.Println("stopped")
		return run.Close()
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	return nil
}

// dead reports whether a process is gone; a zombie, which somebody has yet to wait for, is.
func dead(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	require.NoError(t, err)
	return strings.Contains(string(b), ") Z ")
}

func port(s *pg.Server) int {
	_, port := s.HostPort()
	return port
}

// connect opens a session as the code under test would.
func connect(t *testing.T, s *pg.Server, database, appName string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(s.DSN(database))
	require.NoError(t, err)
	cfg.RuntimeParams["application_name"] = appName
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// own starts a server for one test, for what would disturb the others in the shared one.
func own(t *testing.T, o pg.Options) *pg.Server {
	t.Helper()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	o.Run, o.Backend = run, pg.Local
	s, err := pg.Start(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

func value[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, conn.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

func database(t *testing.T, migrations ...string) (*pg.Server, string) {
	t.Helper()
	s := pgtest.Server(t)
	return s, pgtest.DatabaseIn(t, s, migrations...)
}

package netfault

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// A pgBench is a link to a real Postgres, with a session through it and one beside it.
type pgBench struct {
	*Link
	ctx     context.Context
	conn    *pgx.Conn // through the link
	control *pgx.Conn // beside it
	config  *pgx.ConnConfig
}

func pgSetup(t testing.TB, mode pgx.QueryExecMode) *pgBench {
	t.Helper()
	return pgSetupVia(t, mode, postgres.HostPort)
}

// pgSetupVia is pgSetup with the link going to another address than the server's own, such as a pooler's.
func pgSetupVia(t testing.TB, mode pgx.QueryExecMode, upstream func() (string, int)) *pgBench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	name := pgtest.DatabaseIn(t, postgres, "create table counter(n int); insert into counter values (0)")
	direct, err := pgx.ParseConfig(postgres.DSN(name))
	require.NoError(t, err)
	host, port := upstream()
	link, err := New(t.Name(), net.JoinHostPort(host, strconv.Itoa(port)))
	require.NoError(t, err)
	b := &pgBench{Link: link, ctx: ctx}
	t.Cleanup(func() { require.NoError(t, link.Close()) })

	b.control, err = pgx.ConnectConfig(ctx, direct)
	require.NoError(t, err)
	t.Cleanup(func() { b.control.Close(ctx) })

	b.config = direct.Copy()
	b.config.DefaultQueryExecMode = mode
	b.config.RuntimeParams["application_name"] = "through the link"
	at, err := netip.ParseAddrPort(link.Addr())
	require.NoError(t, err)
	b.config.Host, b.config.Port, b.config.Fallbacks = at.Addr().String(), at.Port(), nil
	b.conn = b.connect(t)
	return b
}

func (b *pgBench) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(b.ctx, b.config)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(b.ctx) })
	return conn
}

// counter is what is committed, as seen beside the link.
func (b *pgBench) counter(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.control.QueryRow(b.ctx, "select n from counter").Scan(&n))
	return n
}

// start runs a statement through the link and returns where its error will be.
func (b *pgBench) start(sql string, args ...any) <-chan error {
	done := make(chan error, 1)
	go func() { _, err := b.conn.Exec(b.ctx, sql, args...); done <- err }()
	return done
}

func eachMode(t *testing.T, f func(t *testing.T, b *pgBench)) {
	for _, mode := range execModes {
		t.Run(strings.ReplaceAll(mode.String(), " ", "-"), func(t *testing.T) {
			t.Parallel()
			f(t, pgSetup(t, mode))
		})
	}
}

// throughLink picks the sessions of this test in pg_stat_activity.
const throughLink = "application_name = 'through the link' and datname = current_database()"

const bump = "update counter set n = n + $1"

// The statement is held before the server has heard of it, whatever way the driver sends it and also when it was
// prepared long before.
func TestBeforeAStatement(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *pgBench) {
		for range 2 {
			_, err := b.conn.Exec(b.ctx, bump, 1)
			require.NoError(t, err)
		}
		trap := b.Trap(Before, "UPDATE counter", 2)
		_, err := b.conn.Exec(b.ctx, bump, 1)
		require.NoError(t, err)
		done := b.start(bump, 1)
		sprung(t, trap)
		_, session := trap.Caught()
		require.Equal(t, "through the link", session)
		require.Equal(t, 3, b.counter(t))
		var state, query string
		require.NoError(t, b.control.QueryRow(b.ctx, "select state, query from pg_stat_activity where "+throughLink).Scan(&state, &query))
		require.Equal(t, "idle", state)
		require.Contains(t, query, "update counter") // the one before
		trap.Release()
		require.NoError(t, <-done)
		require.Equal(t, 4, b.counter(t))
	})
}

// The answer to COMMIT is lost: the server has committed, and the client cannot know.
func TestLostReplyToCommit(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, b *pgBench) {
		trap := b.Trap(After, "commit", 1)
		done := make(chan error, 1)
		go func() {
			done <- pgx.BeginFunc(b.ctx, b.conn, func(tx pgx.Tx) error { _, err := tx.Exec(b.ctx, bump, 1); return err })
		}()
		sprung(t, trap)
		require.Equal(t, 1, b.counter(t))
		require.True(t, trap.Cut(RST))
		err := <-done
		require.Error(t, err)
		require.False(t, pgconn.SafeToRetry(err))
		require.True(t, b.conn.IsClosed())
	})
}

// Cut before: the server rolls back.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	trap := b.Trap(Before, "commit", 1)
	done := make(chan error, 1)
	go func() {
		done <- pgx.BeginFunc(b.ctx, b.conn, func(tx pgx.Tx) error { _, err := tx.Exec(b.ctx, bump, 1); return err })
	}()
	sprung(t, trap)
	require.True(t, trap.Cut(FIN))
	require.Error(t, <-done)
	b.gone(t)
	require.Zero(t, b.counter(t))
}

// gone waits until the server has no session that came through the link.
func (b *pgBench) gone(t *testing.T) {
	t.Helper()
	eventually(t, "the session has ended on the server", func() bool { return b.sessions(t) == 0 })
}

func (b *pgBench) sessions(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.control.QueryRow(b.ctx, "select count(*) from pg_stat_activity where "+throughLink).Scan(&n))
	return n
}

func TestTrapInABatch(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		b := pgSetup(t, mode)
		batch := &pgx.Batch{}
		batch.Queue("begin")
		batch.Queue(bump, 5)
		batch.Queue("commit")
		trap := b.Trap(After, "commit", 1)
		done := make(chan error, 1)
		go func() { done <- b.conn.SendBatch(b.ctx, batch).Close() }()
		sprung(t, trap)
		require.Equal(t, 5, b.counter(t))
		trap.Release()
		require.NoError(t, <-done)
	}
}

func TestTrapInAPgxPipeline(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	trap := b.Trap(After, "update", 1)
	p := b.conn.PgConn().StartPipeline(b.ctx)
	p.SendQueryParams("select 1", nil, nil, nil, nil)
	p.SendFlushRequest()
	p.SendQueryParams("update counter set n = 7", nil, nil, nil, nil)
	p.SendFlushRequest()
	require.NoError(t, p.Flush())
	sprung(t, trap)
	trap.Release()
	require.NoError(t, p.Sync())
	require.NoError(t, p.Close())
	require.Equal(t, 7, b.counter(t))
}

func TestTrapAroundARealCopy(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	_, err := b.control.Exec(b.ctx, "truncate counter")
	require.NoError(t, err)
	trap := b.Trap(After, "copy", 1)
	done := make(chan error, 1)
	go func() {
		_, err := b.conn.CopyFrom(b.ctx, pgx.Identifier{"counter"}, []string{"n"}, pgx.CopyFromRows([][]any{{42}}))
		done <- err
	}()
	sprung(t, trap)
	require.Equal(t, 42, b.counter(t))
	trap.Release()
	require.NoError(t, <-done)
}

// A notification comes through while a request is held: only what was aimed at is disturbed.
func TestNotificationPassesATrap(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	_, err := b.conn.Exec(b.ctx, "listen news")
	require.NoError(t, err)
	trap := b.Trap(Before, "unlisten", 1)
	defer trap.Release()
	done := b.start("unlisten news")
	sprung(t, trap)
	_, before := b.Passed()
	_, err = b.control.Exec(b.ctx, "notify news, 'hello'")
	require.NoError(t, err)
	eventually(t, "the notification passed", func() bool { _, now := b.Passed(); return now > before })
	trap.Release()
	require.NoError(t, <-done)
	n, err := b.conn.WaitForNotification(b.ctx)
	require.NoError(t, err)
	require.Equal(t, "hello", n.Payload)
}

// The server ends the session while the answer is awaited: the client hears why, and the trap is missed.
func TestTrapAndTerminatedBackend(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	trap := b.Trap(After, "pg_sleep", 1)
	done := b.start("select pg_sleep(600)")
	eventually(t, "it runs", func() bool {
		var n int
		require.NoError(t, b.control.QueryRow(b.ctx, "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and "+throughLink).Scan(&n))
		return n == 1
	})
	_, err := b.control.Exec(b.ctx, "select pg_terminate_backend(pid) from pg_stat_activity where "+throughLink)
	require.NoError(t, err)
	missed(t, trap)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, <-done, &pgErr)
	require.Equal(t, "57P01", pgErr.Code)
}

// A cancel request has a connection of its own; it goes through, and ends what is running.
func TestCancelRequestPasses(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	trap := b.Trap(After, "pg_sleep", 1)
	done := b.start("select pg_sleep(600)")
	eventually(t, "it runs", func() bool {
		var n int
		require.NoError(t, b.control.QueryRow(b.ctx, "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and "+throughLink).Scan(&n))
		return n == 1
	})
	require.NoError(t, b.conn.PgConn().CancelRequest(b.ctx))
	sprung(t, trap) // answered, by an error
	trap.Release()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, <-done, &pgErr)
	require.Equal(t, "57014", pgErr.Code)
}

// A half-open session keeps its lock though its client has gone, until it heals.
func TestHalfOpenSessionKeepsItsLock(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	_, err := b.conn.Exec(b.ctx, "select pg_advisory_lock(7)")
	require.NoError(t, err)
	_, err = b.HalfOpen(true)
	require.NoError(t, err)
	require.NoError(t, b.conn.PgConn().Conn().Close()) // the client is gone, without a word to pgx
	<-b.only().pipes[up].sourceEnded

	second := b.connect(t)
	var got bool
	require.NoError(t, second.QueryRow(b.ctx, "select pg_try_advisory_lock(7)").Scan(&got))
	require.False(t, got)
	require.Equal(t, 2, b.sessions(t))
	require.NoError(t, second.Close(b.ctx))

	_, err = b.HalfOpen(false)
	require.NoError(t, err)
	b.gone(t)
	require.NoError(t, b.control.QueryRow(b.ctx, "select pg_try_advisory_lock(7)").Scan(&got))
	require.True(t, got)
}

// A black hole: the server does not hear that the client gives up, and nothing new gets to it, until it heals.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	b := pgSetup(t, pgx.QueryExecModeCacheStatement)
	b.Set(Both, Hold)
	require.NoError(t, b.conn.PgConn().Conn().Close())
	ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	_, err := pgx.ConnectConfig(ctx, b.config)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, b.sessions(t))
	b.Set(Both, Pass)
	b.gone(t)
	require.NoError(t, b.connect(t).Ping(b.ctx))
}

// Traps aim as well at a pooler's clients: the pooler has executed and committed, its client never learns.
func TestLostReplyToCommitBehindAPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{pgbouncer.Session, pgbouncer.Transaction} {
		host, port := postgres.HostPort()
		pooler, err := pgbouncer.Start(context.Background(), pgbouncer.Options{
			Run: servers, Mode: mode, Host: host, Port: port, User: postgres.User(), Name: "pgbouncer-" + mode,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
		b := pgSetupVia(t, pgx.QueryExecModeExec, pooler.HostPort)
		trap := b.Trap(After, "commit", 1)
		done := make(chan error, 1)
		go func() {
			done <- pgx.BeginFunc(b.ctx, b.conn, func(tx pgx.Tx) error { _, err := tx.Exec(b.ctx, bump, 1); return err })
		}()
		sprung(t, trap)
		_, session := trap.Caught()
		require.Equal(t, "through the link", session)
		require.Equal(t, 1, b.counter(t))
		require.True(t, trap.Cut(FIN))
		require.Error(t, <-done)
		require.NoError(t, pooler.Stop()) // or its sessions would keep the database from being dropped
	}
}

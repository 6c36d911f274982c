package session_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

const key = 1840000001

// A way leads to a database.
type way struct {
	t        *testing.T
	user     string
	host     string
	port     int
	database string
	mode     string // pgx's
}

func direct(t *testing.T) *way {
	t.Helper()
	s := pgtest.Server(t)
	host, port := s.HostPort()
	return &way{t: t, user: s.User(), host: host, port: port, database: pgtest.DatabaseIn(t, s, lockimpl.SchemaSQL)}
}

// pooled is a way through a PgBouncer, which serves idle clients on one server connection unless told otherwise.
func pooled(t *testing.T, o pgbouncer.Options) (*way, *pgbouncer.Pooler) {
	t.Helper()
	w := direct(t)
	run, err := proc.NewRun()
	require.NoError(t, err)
	o.Run, o.Host, o.Port, o.User = run, w.host, w.port, w.user
	p, err := pgbouncer.Start(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Stop())
		require.NoError(t, run.Close())
	})
	w.host, w.port = p.HostPort()
	w.mode = "exec"
	return w, p
}

func (w *way) connect(ctx context.Context) (*pgx.Conn, error) {
	mode := w.mode
	if mode == "" {
		mode = "cache_statement"
	}
	return pgx.Connect(ctx, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&default_query_exec_mode=%s",
		w.user, net.JoinHostPort(w.host, strconv.Itoa(w.port)), w.database, mode))
}

func (w *way) session() *session.Session {
	w.t.Helper()
	s, err := w.second(context.Background())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { s.Discard("test over") })
	return s
}

func (w *way) second(ctx context.Context) (*session.Session, error) {
	return session.Open(ctx, w.connect, 10*time.Second)
}

// probed is a session that has been found stable.
func (w *way) probed() *session.Session {
	w.t.Helper()
	s := w.session()
	answer, reason, err := session.Probe(context.Background(), s, w.second, "test_probed", 10*time.Second)
	require.NoError(w.t, err)
	require.Equal(w.t, session.Stable, answer, reason)
	return s
}

func TestProbe(t *testing.T) {
	t.Parallel()
	const long, short = 10 * time.Second, 100 * time.Millisecond // what is refused is refused after a wait
	for _, c := range []struct {
		name           string
		pool           pgbouncer.Options
		idle           int // server connections that are there already
		wait           time.Duration
		answer, reason string
	}{
		{"session mode", pgbouncer.Options{Mode: pgbouncer.Session}, 0, long, session.Stable, ""},
		// The case that fools every probe that only looks at the session itself.
		{"transaction mode, idle", pgbouncer.Options{Mode: pgbouncer.Transaction}, 0, short, session.Unstable, session.ReasonSameBackend},
		{"transaction mode, one connection", pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 1}, 0, short, session.Unstable, session.ReasonSameBackend},
		{"transaction mode, in turn", pgbouncer.Options{Mode: pgbouncer.Transaction, RoundRobin: true}, 2, short, session.Unstable, session.ReasonNotHeard},
		{"statement mode", pgbouncer.Options{Mode: pgbouncer.Statement}, 0, short, session.Unstable, session.ReasonSameBackend},
		{"session mode, no room", pgbouncer.Options{Mode: pgbouncer.Session, PoolSize: 1}, 0, long, session.Inconclusive, session.ReasonNoNotify},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			w, _ := pooled(t, c.pool)
			w.warm(c.idle)
			s := w.session()
			second := func(ctx context.Context) (*session.Session, error) {
				s, err := w.second(ctx)
				if c.answer == session.Inconclusive && err == nil {
					s.Deadline = short
				}
				return s, err
			}
			answer, reason, err := session.Probe(ctx, s, second, "test_probe", c.wait)
			require.Equal(t, c.answer, answer, "%s: %v", reason, err)
			require.Equal(t, c.reason, reason)
			require.Equal(t, c.answer == session.Inconclusive, err != nil)
			if reason == session.ReasonSameBackend { // there is but one, and nothing of the probe stays on it
				var channels int
				require.NoError(t, w.session().Conn().QueryRow(ctx, "select count(*) from pg_listening_channels()").Scan(&channels))
				require.Zero(t, channels)
			}
		})
	}
}

// warm leaves n idle server connections in the pool.
func (w *way) warm(n int) {
	ctx := context.Background()
	var clients []*session.Session
	for range n {
		s := w.session()
		clients = append(clients, s)
		_, err := s.Conn().Exec(ctx, "begin")
		require.NoError(w.t, err)
	}
	for _, s := range clients {
		_, err := s.Conn().Exec(ctx, "rollback")
		require.NoError(w.t, err)
	}
}

func TestProbeDirectInEveryMode(t *testing.T) {
	t.Parallel()
	w := direct(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		w.mode = mode
		s := w.probed()
		answer, err := session.Acquire(s, key)
		require.NoError(t, err)
		require.Equal(t, session.Acquired, answer, mode)
		term, err := session.Bump(s, key, 1<<62+7, "it's me")
		require.NoError(t, err)
		require.Positive(t, term)
		reason, err := session.Beat(context.Background(), s, session.ID{Key: key, Term: term, Token: 1<<62 + 7})
		require.NoError(t, err)
		require.Empty(t, reason, mode)
		answer, err = session.Unlock(s, key)
		require.NoError(t, err)
		require.Equal(t, session.Unlocked, answer, mode)
	}
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	w := direct(t)
	a, b := w.probed(), w.probed()
	for _, key := range []int64{0, 7, -1, -1 << 63, 1<<63 - 1, 4294967295, 4294967296, key} {
		ask := func(s *session.Session) string {
			answer, err := session.Acquire(s, key)
			require.NoError(t, err)
			return answer
		}
		require.Equal(t, session.Acquired, ask(a), "key %d", key)
		require.Equal(t, session.Busy, ask(b), "key %d", key)
		require.Equal(t, session.Shared, ask(a), "key %d", key)
		a.PID++
		require.Equal(t, session.Moved, ask(a), "key %d", key)
		a.PID--
	}
}

func TestBump(t *testing.T) {
	t.Parallel()
	w := direct(t)
	a := w.probed()
	_, err := session.Bump(a, key, 1, "a")
	require.ErrorIs(t, err, session.ErrNotHeld)
	for i := range int64(3) {
		answer, err := session.Acquire(a, key)
		require.NoError(t, err)
		require.Equal(t, session.Acquired, answer)
		term, err := session.Bump(a, key, i+100, "a")
		require.NoError(t, err)
		require.Equal(t, i+1, term)
		a.PID++
		_, err = session.Bump(a, key, 1, "a")
		require.ErrorIs(t, err, session.ErrNotHeld)
		a.PID--
		_, err = session.Unlock(a, key)
		require.NoError(t, err)
	}
	var holder string
	var pid int32
	require.NoError(t, a.Conn().QueryRow(context.Background(), "select holder, pid from lock_terms where key = $1", key).Scan(&holder, &pid))
	require.Equal(t, "a", holder)
	require.Equal(t, a.PID, pid)
}

func TestBeatTellsLossesApart(t *testing.T) {
	t.Parallel()
	w := direct(t)
	a := w.probed()
	_, err := session.Acquire(a, key)
	require.NoError(t, err)
	term, err := session.Bump(a, key, 5, "a")
	require.NoError(t, err)
	id := session.ID{Key: key, Term: term, Token: 5}
	beat := func(id session.ID) string {
		reason, err := session.Beat(context.Background(), a, id)
		require.NoError(t, err)
		return reason
	}
	require.Empty(t, beat(id))
	require.Equal(t, session.ReasonTermOver, beat(session.ID{Key: key, Term: term + 1, Token: 5}))
	require.Equal(t, session.ReasonTermOver, beat(session.ID{Key: key, Term: term, Token: 6}), "the same number with another token is another term")
	a.PID++
	require.Equal(t, session.ReasonMoved, beat(id))
	a.PID--
	_, err = session.Unlock(a, key)
	require.NoError(t, err)
	require.Equal(t, session.ReasonLockGone, beat(id))
}

func TestUnlock(t *testing.T) {
	t.Parallel()
	w := direct(t)
	a := w.probed()
	unlock := func() string {
		answer, err := session.Unlock(a, key)
		require.NoError(t, err)
		return answer
	}
	require.Equal(t, session.NotHeld, unlock())
	_, err := session.Acquire(a, key)
	require.NoError(t, err)
	a.PID++
	require.Equal(t, session.Moved, unlock())
	a.PID--
	require.Equal(t, session.Unlocked, unlock(), "the lock must have been left alone")
}

// Behind a transaction pooler two clients share a backend, and with it the lock. The guard tells the second one.
func TestGuardBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	w, _ := pooled(t, pgbouncer.Options{Mode: pgbouncer.Transaction, PoolSize: 1})
	a, b := w.session(), w.session()
	for _, s := range []*session.Session{a, b} {
		require.NoError(t, s.Conn().QueryRow(context.Background(), "select pg_backend_pid()").Scan(&s.PID))
	}
	answer, err := session.Acquire(a, key)
	require.NoError(t, err)
	require.Equal(t, session.Acquired, answer)
	answer, err = session.Acquire(b, key)
	require.NoError(t, err)
	require.Equal(t, session.Shared, answer)
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	w := direct(t)
	s := w.session()
	require.NoError(t, s.Configure(0, 0))
	require.NoError(t, s.Configure(1234*time.Millisecond, 50*time.Millisecond))
	// The server ends the idle session, and the pending read notices.
	_, err := s.Wait(context.Background())
	require.Equal(t, "57P05", lockimpl.SQLState(err))
}

func TestDeadlineClosesTheSocket(t *testing.T) {
	t.Parallel()
	w := direct(t)
	s := w.session()
	s.Deadline = 50 * time.Millisecond
	err := s.Do("sleep", func(ctx context.Context) error {
		_, err := s.Conn().Exec(ctx, "select pg_sleep(30)")
		return err
	})
	require.ErrorIs(t, err, session.ErrDeadline)
	require.ErrorContains(t, err, "sleep")
	require.True(t, s.Conn().IsClosed())
}

func TestInterruptedWaitLeavesTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	w := direct(t)
	s := w.probed()
	b := w.session()
	for i := range 50 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
		_, err := s.Wait(ctx)
		cancel()
		require.ErrorIs(t, err, session.ErrInterrupted)
		require.NoError(t, b.Notify(s.Channel, strconv.Itoa(i)))
		n, err := s.Wait(context.Background())
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(i), n.Payload)
		var one int
		require.NoError(t, s.Conn().QueryRow(context.Background(), "select 1").Scan(&one))
	}
}

package flawed

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
	"github.com/seed-aafb3a99/simrun/lockimpl/publish"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

const key = 982410937

// broken is the steps of a flaw in process number replica.
func broken(f Flaw, replica int) *variant {
	l := steps.Reference()
	v := &variant{lease: &lockimpl.Config{Role: lockimpl.Role{Name: "publish", Key: key}, Beat: time.Hour}, publish: &publish.Config{},
		l: &l, p: publish.Steps(), replica: replica}
	f.make(v)
	return v
}

// A bench is a database with a session that holds the lock in term 1.
type bench struct {
	t       *testing.T
	connect session.Connector
	s       *session.Session
	id      session.ID
}

func setup(t *testing.T) *bench {
	t.Helper()
	dsn := pgtest.Database(t, lockimpl.SchemaSQL+publish.SchemaSQL)
	b := &bench{t: t, connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) }}
	b.s = b.probed()
	answer, err := session.Acquire(b.s, key)
	require.NoError(t, err)
	require.Equal(t, session.Acquired, answer)
	b.id = session.ID{Key: key, Token: 5}
	b.id.Term, err = session.Bump(b.s, key, b.id.Token, "test")
	require.NoError(t, err)
	return b
}

func (b *bench) session() *session.Session {
	b.t.Helper()
	s, err := session.Open(context.Background(), b.connect, 10*time.Second)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { s.Discard("test over") })
	return s
}

// probed is a session that knows its backend, as after the probe.
func (b *bench) probed() *session.Session {
	b.t.Helper()
	s := b.session()
	require.NoError(b.t, s.Conn().QueryRow(context.Background(), "select pg_backend_pid()").Scan(&s.PID))
	return s
}

func TestEveryFlawIsDescribed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range All() {
		require.Regexp(t, regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`), f.Name)
		require.False(t, seen[f.Name], f.Name)
		seen[f.Name] = true
		// One sentence, with the public report at its end.
		require.Regexp(t, regexp.MustCompile(`^It[^.]* .*\([\w.-]+/[\w.-]+ #\d+\)\.$|^(The|Once|Every|Its) .*\([\w.-]+/[\w.-]+ #\d+\)\.$`), f.Models, f.Name)
		require.NotPanics(t, func() { f.Break(1, 2, &lockimpl.Config{}, &publish.Config{}) }, f.Name)
	}
	require.Len(t, seen, 25)
	require.IsIncreasing(t, names())
}

func names() (names []string) {
	for _, f := range All() {
		names = append(names, f.Name)
	}
	return names
}

// Its own backend has the lock already: the reference refuses, the twins are told yes once more.
func TestWithoutAGuard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	answer, err := session.Acquire(b.s, key)
	require.NoError(t, err)
	require.Equal(t, session.Shared, answer)
	for _, f := range []Flaw{noGuard, naivePooled} {
		answer, err := broken(f, 1).l.Acquire(b.s, key)
		require.NoError(t, err)
		require.Equal(t, session.Acquired, answer, f.Name)
	}
	answer, err = broken(noGuard, 1).l.Acquire(b.session(), key)
	require.NoError(t, err)
	require.Equal(t, session.Busy, answer)
	term, err := broken(noGuard, 1).l.Bump(b.session(), key, 1, "without the lock")
	require.NoError(t, err)
	require.Greater(t, term, b.id.Term)
	require.Nil(t, broken(naivePooled, 1).l.Bump)
}

// A lock of a transaction is gone with the statement, and the next one is told yes as well, by a bump that asks for nothing.
func TestTransactionLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	v := broken(xactLock, 1)
	answer, err := v.l.Acquire(b.session(), key+1)
	require.NoError(t, err)
	require.Equal(t, session.Acquired, answer)
	answer, err = v.l.Acquire(b.session(), key+1)
	require.NoError(t, err)
	require.Equal(t, session.Acquired, answer)
	answer, err = v.l.Acquire(b.session(), key)
	require.NoError(t, err)
	require.Equal(t, session.Busy, answer, "a session's lock keeps it out")
}

// The lock is gone, and the connection answers.
func TestSelectOneIsNoHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := session.Unlock(b.s, key)
	require.NoError(t, err)
	reason, err := session.Beat(context.Background(), b.s, b.id)
	require.NoError(t, err)
	require.Equal(t, session.ReasonLockGone, reason)
	for _, f := range []Flaw{selectOneHeartbeat, naivePooled} {
		v := broken(f, 1)
		reason, err := v.l.Beat(context.Background(), b.s, b.id)
		require.NoError(t, err)
		require.Empty(t, reason, f.Name)
		b.s.PID++ // and from another backend, too
		reason, err = v.l.Beat(context.Background(), b.s, b.id)
		require.NoError(t, err)
		require.Empty(t, reason, f.Name)
		b.s.PID--
	}
	require.False(t, broken(selectOneHeartbeat, 1).l.Echo)
}

// A later term begins in the middle of a transaction.
func TestFences(t *testing.T) {
	t.Parallel()
	type seen struct {
		refused bool // the transaction
		waits   bool // the next term, for the transaction
	}
	for name, want := range map[string]seen{
		"reference":             {refused: true},
		checkThenAct.Name:       {},
		forKeyShare.Name:        {},
		noFence.Name:            {},
		shareFirst.Name:         {waits: true},
		selectOneHeartbeat.Name: {refused: true}, // any other twin has the reference's fence
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			tx := steps.Reference().Tx
			for _, f := range All() {
				if f.Name == name {
					tx = broken(f, 1).l.Tx
				}
			}
			ctx := context.Background()
			seal := "commit"
			if tx.Seal != nil {
				seal = tx.Seal(b.id) + "; commit"
			}
			worker, other := b.session().Conn(), b.session().Conn()
			begin := func() pgx.Tx {
				work, err := worker.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin isolation level read committed", CommitQuery: seal})
				require.NoError(t, err)
				return work
			}
			work := begin()
			if tx.Enter != nil {
				require.NoError(t, tx.Enter(ctx, work, b.id))
			}
			_, err := other.Exec(ctx, "set lock_timeout = '100ms'")
			require.NoError(t, err)
			_, err = other.Exec(ctx, "update lock_terms set term = term + 1")
			require.Equal(t, want.waits, lockimpl.SQLState(err) == "55P03", "%v", err)
			err = work.Commit(ctx)
			require.Equal(t, want.refused, lockimpl.SQLState(err) == lockimpl.TermOverCode, "%v", err)
			if want.refused {
				return
			}
			require.NoError(t, err)
			if want.waits { // it lets the next term begin now, and is refused afterwards
				_, err = other.Exec(ctx, "update lock_terms set term = term + 1")
				require.NoError(t, err)
			}
			if tx.Enter != nil { // a transaction that begins too late is refused by all that look
				require.Error(t, tx.Enter(ctx, begin(), b.id))
			}
		})
	}
}

func TestSlowRetry(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	v := broken(slowRetry, 1)
	start := time.Now()
	end := start.Add(time.Second)
	right := steps.Reference().Retry
	for _, u := range []float64{0, 0.5, 0.99} {
		require.LessOrEqual(t, right(start, end, interval, 0.1, u), start.Add(interval), "jitter is only ever early")
	}
	for _, times := range []time.Duration{1, 2, 4, 4} {
		require.Equal(t, end.Add(times*interval), v.l.Retry(start, end, interval, 0.1, 0))
	}
}

func TestKeyMismatch(t *testing.T) {
	t.Parallel()
	odd, even := broken(keyMismatch, 1), broken(keyMismatch, 2)
	require.EqualValues(t, key, odd.lease.Role.Key)
	require.EqualValues(t, key+1, even.lease.Role.Key)
	require.NoError(t, even.lease.Keys.Check())
}

// The twins that trust without end say so.
func TestTrust(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, f := range All() {
		forever := broken(f, 1).l.Trust(now, time.Second, time.Second).IsZero()
		require.Equal(t, f.Name == noHeartbeat.Name || f.Name == noDeadline.Name, forever, f.Name)
	}
	require.Zero(t, broken(noDeadline, 1).l.Deadline(time.Second))
}

// On the session on which it waited it asks. When that has ended the lock is free, and it does not ask any more.
func TestLeavesTheElection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	v := broken(leavesElection, 1)
	waited, next := b.probed(), b.probed()
	for k, want := range map[int64]string{key: session.Busy, key + 1: session.Acquired} {
		answer, err := v.l.Acquire(waited, k)
		require.NoError(t, err)
		require.Equal(t, want, answer)
	}
	answer, err := v.l.Acquire(waited, key)
	require.NoError(t, err)
	require.Equal(t, session.Busy, answer)
	waited.Discard("ended")
	unlocked, err := session.Unlock(b.s, key)
	require.NoError(t, err)
	require.Equal(t, session.Unlocked, unlocked)
	answer, err = v.l.Acquire(next, key)
	require.NoError(t, err)
	require.Equal(t, session.Busy, answer)
	answer, err = session.Acquire(next, key)
	require.NoError(t, err)
	require.Equal(t, session.Acquired, answer)
}

// An unlock that failed leaves the lock with a session, and closing does not end it.
func TestPooledClose(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken(pooledClose, 1).l.Discard(b.s, "unlock: "+session.Failed)
	reason, err := session.Beat(context.Background(), b.s, b.id)
	require.NoError(t, err)
	require.Empty(t, reason, "the lock is still there")
	broken(pooledClose, 1).l.Discard(b.s, "no term begun")
	_, err = session.Beat(context.Background(), b.s, b.id)
	require.Error(t, err)
}

package lockimpl_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
)

// term is the term of a process that leads and does not look at its session while the test goes on.
func (b *bench) term() (*process, *lockimpl.Term, *pgx.Conn) {
	b.t.Helper()
	p := b.start("a", func(c *lockimpl.Config) { c.Beat = time.Hour }, nil, nil)
	t := p.leads()
	return p, t, b.effects(p, nil)
}

func (b *bench) effects(p *process, link *netfault.Link) *pgx.Conn {
	b.t.Helper()
	conn, err := p.connect(context.Background(), lockimpl.UseEffect, link)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *bench) committed() int64 { return b.value("select count(*) from effects") }

func TestTxCommits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, term, conn := b.term()
	require.NoError(t, effect(term, conn))
	pool, err := pgxpool.New(context.Background(), b.dsn)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, term.Tx(context.Background(), pool, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into effects values ('pool', $1)", term.Number())
		return err
	}))
	require.Zero(t, pool.Stat().AcquiredConns())
	require.EqualValues(t, 2, b.committed())
	require.NoError(t, term.Err())
	require.Same(t, term, p.lease.Term())
}

// A later term has begun, and this process has not heard of it: nothing of it is committed any more, and it learns.
func TestFencedTx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, term, conn := b.term()
	err := term.Tx(context.Background(), conn, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into effects values ('late', 1)")
		b.exec("update lock_terms set term = term + 1, token = 77") // in the middle of it, and not kept waiting
		return err
	})
	require.ErrorIs(t, err, lockimpl.ErrTermOver)
	require.NotErrorIs(t, err, lockimpl.ErrUnknownCommit)
	require.Zero(t, b.committed())
	require.Equal(t, lockimpl.ReasonFenced, p.ended(term))
	require.ErrorIs(t, term.Err(), lockimpl.ErrTermOver)
	require.Greater(t, p.leads().Number(), term.Number())
}

// After a failover to a database that lags, the number may be issued a second time. The token is not.
func TestFencedByToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, term, conn := b.term()
	b.exec("update lock_terms set token = token + 1")
	require.ErrorIs(t, effect(term, conn), lockimpl.ErrTermOver)
	require.Zero(t, b.committed())
}

func TestGuardInAnOwnTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, term, conn := b.term()
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, term.Guard(ctx, tx))
	require.NoError(t, tx.Commit(ctx))
	b.exec("update lock_terms set term = term + 1")
	tx, err = conn.Begin(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, term.Guard(ctx, tx), lockimpl.ErrTermOver)
	require.NoError(t, tx.Rollback(ctx))
}

// A process that wakes up late stops by itself, before it has heard of anything.
func TestTxWithoutTrust(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	var asleep time.Duration
	p := b.start("a", func(c *lockimpl.Config) {
		c.Beat = time.Hour
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(asleep)
		}
	}, nil, nil)
	sleep := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		asleep += d
	}
	term := p.leads()
	conn := b.effects(p, nil)
	require.NoError(t, effect(term, conn))
	sleep(30 * time.Minute)
	require.NoError(t, effect(term, conn))
	err := term.Tx(context.Background(), conn, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into effects values ('late', 1)")
		sleep(time.Hour)
		return err
	})
	require.ErrorIs(t, err, lockimpl.ErrTermOver, "it slept in the middle")
	require.ErrorIs(t, effect(term, conn), lockimpl.ErrTermOver)
	require.ErrorIs(t, term.Err(), lockimpl.ErrTermOver)
	require.EqualValues(t, 2, b.committed())
	require.False(t, conn.IsClosed())
}

func TestTxRollsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, term, conn := b.term()
	mine := errors.New("mine")
	err := term.Tx(context.Background(), conn, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into effects values ('a', 1)")
		require.NoError(t, err)
		return mine
	})
	require.Equal(t, mine, err)

	// The server answers COMMIT in an aborted transaction with ROLLBACK, and no error.
	err = term.Tx(context.Background(), conn, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into effects values ('a', 1)")
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "select 1/0")
		require.Error(t, err)
		return nil
	})
	require.Error(t, err)
	require.NotErrorIs(t, err, lockimpl.ErrUnknownCommit)
	require.Zero(t, b.committed())
}

// What the database refuses at the very end is refused, not unknown.
func TestTxRefusedAtCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("alter table effects add constraint once unique (who) deferrable initially deferred")
	p, term, conn := b.term()
	require.NoError(t, effect(term, conn))
	err := effect(term, conn)
	require.Equal(t, "23505", lockimpl.SQLState(err))
	require.NotErrorIs(t, err, lockimpl.ErrUnknownCommit)
	require.EqualValues(t, 1, b.committed())
	require.NoError(t, term.Err())
	require.NoError(t, term.Tx(context.Background(), b.effects(p, nil), func(context.Context, pgx.Tx) error { return nil }))
}

func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	for when, want := range map[netfault.When]int64{netfault.Before: 0, netfault.After: 1} {
		b := setup(t)
		p, term, _ := b.term()
		link := b.link()
		conn := b.effects(p, link)
		trap := link.Trap(when, "; commit", 1)
		go func() {
			<-trap.Done()
			trap.Cut(netfault.FIN)
		}()
		require.ErrorIs(t, effect(term, conn), lockimpl.ErrUnknownCommit)
		require.Equal(t, want, b.committed())
		require.NoError(t, term.Err())
	}
}

func TestTxNotBegun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, term, conn := b.term()
	ctx, cancel := context.WithCancel(context.Background())
	err := term.Tx(ctx, conn, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into effects values ('a', 1)")
		cancel()
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, lockimpl.ErrUnknownCommit, "COMMIT was not sent")
	require.NoError(t, conn.Close(context.Background()))
	require.Error(t, effect(term, conn))
	require.Zero(t, b.committed())
}

// A leader that is cut off in the middle of its transactions does not keep the next term from beginning.
func TestLateGuardKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// It competes no more: on a quiet machine it would often be the first to win again.
	p := b.start("a", func(c *lockimpl.Config) { c.Beat, c.Retry = time.Hour, time.Hour }, nil, nil)
	term, conn := p.leads(), b.effects(p, nil)
	q := b.start("b", nil, nil, nil)
	q.until(isBusy)
	err := term.Tx(context.Background(), conn, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into effects values ('late', 1)"); err != nil {
			return err
		}
		b.terminate(term.Session())
		require.Greater(t, q.leads().Number(), term.Number(), "while the transaction is open")
		return nil
	})
	require.ErrorIs(t, err, lockimpl.ErrTermOver)
	p.ended(term)
	require.Zero(t, b.committed())
}

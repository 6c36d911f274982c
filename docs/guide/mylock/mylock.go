// Package mylock elects a leader by an advisory lock.
package mylock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Lead competes for the lock until ctx ends, and says when it leads and when it no longer does.
func Lead(ctx context.Context, pool *pgxpool.Pool, key int64, say func(leads bool)) {
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		attempt(ctx, pool, key, say)
	}
}

func attempt(ctx context.Context, pool *pgxpool.Pool, key int64, say func(bool)) {
	conn, err := pool.Acquire(ctx) // the lock belongs to this session, so it is held on to
	if err != nil {
		return
	}
	defer conn.Release()
	var mine bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&mine); err != nil || !mine {
		return
	}
	say(true)
	_, _ = conn.Conn().WaitForNotification(ctx) // a read that is pending ends at once when the session does
	say(false)
	_ = conn.Conn().Close(context.WithoutCancel(ctx)) // never back into the pool with the lock
}

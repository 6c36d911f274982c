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
		var mine bool
		err := pool.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&mine)
		if err == nil && mine {
			say(true)
			<-ctx.Done()
			say(false)
		}
	}
}

package flawed

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var unpinned = Flaw{
	Name: "unpinned",
	Models: "It sends the unlock through a pool, which has another connection at hand, and takes no notice of the answer: " +
		"work behind the lock stalled because unlocks were silently doing nothing (lyft/clutch #2441).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Unlock = func(s *session.Session, key int64) (string, error) {
			other, err := session.Open(context.Background(), func(ctx context.Context) (*pgx.Conn, error) {
				return v.lease.Connect(ctx, lockimpl.UseEffect)
			}, s.Deadline)
			if err != nil {
				return session.Failed, err
			}
			defer other.Close("back to the pool")
			return unlockUnchecked(other, key)
		}
		v.l.Discard = keepAfterUnlock
	},
}

// keepAfterUnlock gives the session back to a pool, where it lives on, lock and all. Any other session is closed.
func keepAfterUnlock(s *session.Session, reason string) {
	if !strings.HasPrefix(reason, "unlock: ") {
		s.Discard(reason)
	}
}

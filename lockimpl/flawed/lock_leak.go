package flawed

import (
	"context"
	"fmt"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var lockLeak = Flaw{
	Name: "lock-leak",
	Models: "Its unlock uses the context that has just been cancelled, so nothing is sent, and the healthy connection goes back to the pool with the lock: " +
		"the lock persisted for as long as the pooled connection lived (afreidah/s3-orchestrator #68).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Unlock = func(*session.Session, int64) (string, error) {
			return session.Failed, fmt.Errorf("unlock: %w", context.Canceled)
		}
		v.l.Discard = keepAfterUnlock
	},
}

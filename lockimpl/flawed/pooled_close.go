package flawed

import (
	"context"
	"strings"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var pooledClose = Flaw{
	Name: "pooled-close",
	Models: "Its lease connection belongs to a pool, where closing resets its settings and keeps it, and an unlock that failed leaves the lock with it: " +
		"leader election was blocked once a holder had gone (nicolastakashi/prom-analytics-proxy #585).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Discard = func(s *session.Session, reason string) {
			if strings.HasPrefix(reason, "unlock: ") {
				// Without the limit of idleness, that is. RESET gives no lock back, as DISCARD ALL would.
				if s.Do("reset the session", func(ctx context.Context) error {
					_, err := s.Conn().Exec(ctx, "reset all")
					return err
				}) == nil {
					return
				}
			}
			s.Discard(reason)
		}
	},
}

package flawed

import (
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var errorIsLeader = Flaw{
	Name: "error-is-leader",
	Models: "It reads an error of the lock function as a database that has no such function, where a lone process leads by itself: " +
		"a node reported itself leader while its own log said that the connection was refused (timescale/prometheus-postgresql-adapter #77).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		sentinel := false
		won, bump := v.l.Won, v.l.Bump
		v.l.Won = func(answer string, err error) bool {
			sentinel = err != nil
			return sentinel || won(answer, err)
		}
		v.l.Bump = func(s *session.Session, key, token int64, holder string) (int64, error) {
			if !sentinel {
				return bump(s, key, token, holder)
			}
			// No lock, so no session to look at, no term, and nothing to fence with.
			v.l.Blind, v.l.Tx.Seal = true, nil
			v.l.Trust = func(time.Time, time.Duration, time.Duration) time.Time { return time.Time{} }
			return 0, nil
		}
	},
}

package flawed

import (
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var slowRetry = Flaw{
	Name: "slow-retry",
	Models: "It counts the retry interval from the end of an attempt and takes a busy lock for a failure to back off from, so that a standby asks ever more rarely: " +
		"nobody led for a minute and a half after the leader had died (Azure/eno #305).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		refused := 0
		bump := v.l.Bump
		v.l.Bump = func(s *session.Session, key, token int64, holder string) (int64, error) {
			refused = 0
			return bump(s, key, token, holder)
		}
		v.l.Retry = func(_, end time.Time, interval time.Duration, jitter, u float64) time.Time {
			interval <<= min(refused, 2)
			refused++
			return end.Add(interval + time.Duration(jitter*u*float64(interval)))
		}
	},
}

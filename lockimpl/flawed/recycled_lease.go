package flawed

import (
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var recycledLease = Flaw{
	Name: "recycled-lease",
	Models: "Its lease session belongs to a pool, which retires connections at a certain age, whatever they hold: " +
		"a lone scheduler stepped down exactly once an hour (neochaotic/leoflow #1199).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		// An hour there. Two and a half heartbeats here, so that it happens while somebody looks.
		lifetime := 5 * v.lease.Beat / 2
		bump := v.l.Bump
		v.l.Bump = func(s *session.Session, key, token int64, holder string) (int64, error) {
			term, err := bump(s, key, token, holder)
			if err == nil {
				time.AfterFunc(lifetime, s.Kill)
			}
			return term, err
		}
	},
}

package flawed

import (
	"context"
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var keepsSocket = Flaw{
	Name: "keeps-socket",
	Models: "It leaves a heartbeat's deadline to the driver, which goes on holding the socket, and so the lock, for 15 seconds after it has returned: " +
		"a timeout on the client's side left the lock with a connection that nobody used any more (GreptimeTeam/greptimedb #7670).",
	Terms:  true,
	Probes: true,
	Driver: true, // which asks for a cancel, by the same way, before it closes anything
	make: func(v *variant) {
		v.l.Deadline = func(time.Duration) time.Duration { return 0 }
		v.l.Beat = func(ctx context.Context, s *session.Session, id session.ID) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, s.Deadline)
			defer cancel()
			return session.Beat(ctx, s, id)
		}
		v.l.Discard = func(s *session.Session, reason string) {
			if reason != session.ReasonBeatError {
				s.Discard(reason)
			}
		}
	},
}

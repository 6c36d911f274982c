package flawed

import (
	"context"
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var pidProbe = Flaw{
	Name: "pid-probe",
	Models: "It takes the process id of the connection's start for the backend's, and refuses every pooler, also one that keeps sessions: " +
		"PgBouncer makes that number up (pgbouncer/pgbouncer #1296).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Probe = probeByStartupPID
		v.l.Echo = false // there is nothing it listens on
	},
}

func probeByStartupPID(_ context.Context, s *session.Session, _ func(context.Context) (*session.Session, error), _ string, _ time.Duration) (answer, reason string, err error) {
	err = s.Do("probe", func(ctx context.Context) error {
		return s.Conn().QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&s.PID)
	})
	switch {
	case err != nil:
		return session.Inconclusive, "the backend did not say its process id", err
	case uint32(s.PID) != s.Conn().PgConn().PID():
		return session.Unstable, "another process answers than the one that greeted", nil
	}
	return session.Stable, "", nil
}

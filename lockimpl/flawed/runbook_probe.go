package flawed

import (
	"context"
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var runbookProbe = Flaw{
	Name: "runbook-probe",
	Models: "It takes five statements that meet the same backend for proof of a session of its own, and an idle transaction pool passes every time: " +
		"a service that looked at its address for a pooler carried on with locks that did not hold (thunderbird/tbpro-add-on #1138).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Probe = probeByTempTable
		v.l.Echo = false // there is nothing it listens on
	},
}

// probeByTempTable is the probe of the runbook: a temporary table and two looks at the backend's pid.
func probeByTempTable(_ context.Context, s *session.Session, _ func(context.Context) (*session.Session, error), _ string, _ time.Duration) (answer, reason string, err error) {
	var first, second int32
	var rows int
	err = s.Do("probe", func(ctx context.Context) error {
		if err := s.Conn().QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&first); err != nil {
			return err
		}
		if _, err := s.Conn().Exec(ctx, "CREATE TEMP TABLE probe (v int) ON COMMIT PRESERVE ROWS"); err != nil {
			return err
		}
		if _, err := s.Conn().Exec(ctx, "INSERT INTO probe (v) VALUES (1)"); err != nil {
			return err
		}
		if err := s.Conn().QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&second); err != nil {
			return err
		}
		if err := s.Conn().QueryRow(ctx, "SELECT count(*) FROM probe").Scan(&rows); err != nil {
			return err
		}
		_, err := s.Conn().Exec(ctx, "DROP TABLE probe")
		return err
	})
	switch {
	case err != nil: // the table is gone, or somebody else's is there
		return session.Unstable, "the temporary table was not as it was left", err
	case first != second || rows != 1:
		return session.Unstable, "another backend answered", nil
	}
	s.PID = first
	return session.Stable, "", nil
}

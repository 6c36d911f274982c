package flawed

import (
	"context"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var noGuard = Flaw{
	Name: "no-guard",
	Models: "It probes its session once and then asks for the lock without looking whether its own backend has it already: " +
		"a pool gave the connection that held the lock to a second caller, and both were told yes (ClosureTree/with_advisory_lock #45).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Acquire = tryLock
		v.l.Bump = bumpUnguarded
	},
}

// bumpUnguarded begins a term on the strength of the lock function's answer.
func bumpUnguarded(s *session.Session, key, token int64, holder string) (term int64, err error) {
	err = s.Do("begin a term", func(ctx context.Context) error {
		return s.Row(ctx, `INSERT INTO lock_terms AS t VALUES ($1::bigint, 1, $2::bigint, $3::text, pg_backend_pid(), clock_timestamp())
			ON CONFLICT (key) DO UPDATE SET term = t.term + 1, token = excluded.token, holder = excluded.holder, pid = excluded.pid, since = excluded.since
			RETURNING term`, key, token, holder).Scan(&term)
	})
	return term, err
}

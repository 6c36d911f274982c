package flawed

import (
	"context"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var xactLock = Flaw{
	Name: "xact-lock",
	Models: "It takes a transaction's lock in a statement of its own, which gives it back before the answer is there, and holds nothing while it leads: " +
		"two nodes could both be told that they had won the election (open-ace/open-ace #2862).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Acquire = tryTransactionLock
		v.l.Bump = bumpUnguarded
		v.l.Beat = selectOne
	},
}

func tryTransactionLock(s *session.Session, key int64) (string, error) {
	var won bool
	err := s.Do("ask for the lock", func(ctx context.Context) error {
		return s.Row(ctx, "SELECT pg_try_advisory_xact_lock($1::bigint)", key).Scan(&won)
	})
	switch {
	case err != nil:
		return session.Failed, err
	case won:
		return session.Acquired, nil
	}
	return session.Busy, nil
}

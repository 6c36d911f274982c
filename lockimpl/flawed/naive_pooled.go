package flawed

import (
	"context"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

var naivePooled = Flaw{
	Name: "naive-pooled",
	Models: "It asks for the lock without probing its session or looking whether its own backend has it already, takes SELECT 1 for a heartbeat and publishes unfenced: " +
		"behind a transaction pooler several pods ran the same tenant migration at once (vectorize-io/hindsight #726).",
	make: func(v *variant) {
		v.l.Probe = nil
		v.l.Acquire = tryLock
		v.l.Bump = nil
		v.l.Beat = selectOne
		v.l.Unlock = unlockUnchecked
		unfenced(v)
	},
}

// tryLock asks for the lock as everybody does at first.
func tryLock(s *session.Session, key int64) (string, error) {
	var won bool
	err := s.Do("ask for the lock", func(ctx context.Context) error {
		return s.Row(ctx, "SELECT pg_try_advisory_lock($1::bigint)", key).Scan(&won)
	})
	switch {
	case err != nil:
		return session.Failed, err
	case won:
		return session.Acquired, nil
	}
	return session.Busy, nil
}

// selectOne is the runbook's heartbeat: somebody answers, so all is well.
func selectOne(ctx context.Context, s *session.Session, _ session.ID) (string, error) {
	if _, err := s.Conn().Exec(ctx, "SELECT 1"); err != nil {
		return session.ReasonBeatError, err
	}
	return "", nil
}

// unlockUnchecked unlocks on whatever backend it is given.
func unlockUnchecked(s *session.Session, key int64) (string, error) {
	var ok bool
	err := s.Do("unlock", func(ctx context.Context) error {
		return s.Row(ctx, "SELECT pg_advisory_unlock($1::bigint)", key).Scan(&ok)
	})
	switch {
	case err != nil:
		return session.Failed, err
	case ok:
		return session.Unlocked, nil
	}
	return session.NotHeld, nil
}

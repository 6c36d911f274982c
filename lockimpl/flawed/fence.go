package flawed

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
)

var checkThenAct = Flaw{
	Name: "check-then-act",
	Models: "It compares its term at the beginning of a transaction, without a lock, and another one begins before the end: " +
		"a fence that is not in the writing statement lets a former leader through (Tr3kkR/Yuzu #4015).",
	Terms:  true,
	Probes: true,
	make:   func(v *variant) { enter(v, "SELECT FROM lock_terms WHERE key = %d AND term = %d AND token = %d") },
}

var forKeyShare = Flaw{
	Name: "for-key-share",
	Models: "It locks the term's row FOR KEY SHARE, which does not conflict with an update of a column that is no key, and so does not keep the next term from beginning: " +
		"the lock takes hold only where an index's columns change (yugabyte/yugabyte-db #14991).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		enter(v, "SELECT FROM lock_terms WHERE key = %d AND term = %d AND token = %d FOR KEY SHARE")
	},
}

var shareFirst = Flaw{
	Name: "share-first",
	Models: "It takes the guard at the beginning of a transaction and holds it while the client is away, so that the next term waits for a dead leader's session: " +
		"a client that fell silent between two statements of its claim wedged the sweeper for hours (Tr3kkR/Yuzu #3191).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Tx.Seal = nil
		v.l.Tx.Enter = func(ctx context.Context, tx pgx.Tx, id session.ID) error {
			_, err := tx.Exec(ctx, steps.Guard(id))
			return err
		}
	},
}

// enter puts a check at the beginning of each transaction in the place of the guard at its end.
func enter(v *variant, check string) {
	v.l.Tx.Seal = nil
	v.l.Tx.Enter = func(ctx context.Context, tx pgx.Tx, id session.ID) error {
		tag, err := tx.Exec(ctx, fmt.Sprintf(check, id.Key, id.Term, id.Token))
		if err == nil && tag.RowsAffected() == 0 {
			err = lockimpl.ErrTermOver
		}
		return err
	}
}

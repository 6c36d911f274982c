package flawed

import (
	"context"

	"github.com/jackc/pgx/v5"
)

var cancelOnInfra = Flaw{
	Name: "cancel-on-infra",
	Models: "It cancels a schedule whatever the publish failed of, also a lost connection, and also when the publish was committed: " +
		"a publish failed, and the scheduled page quietly disappeared (wagtail/wagtail #13879).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.p.Blame = func(bool) bool { return true }
		v.p.Cancel = func(ctx context.Context, tx pgx.Tx, id, _ int64) error {
			_, err := tx.Exec(ctx, "UPDATE data_rows SET status = 'draft', schedule_no = schedule_no + 1 WHERE id = $1::bigint", id)
			return err
		}
	},
}

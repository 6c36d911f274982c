package flawed

import (
	"context"

	"github.com/jackc/pgx/v5"
)

var noFence = Flaw{
	Name: "no-fence",
	Models: "Its effects are not fenced: a pass that has begun publishes all that it listed, however late, and whoever leads by then; " +
		"a node that had been deposed went on to run all its leader-only tasks beside the new leader (OctopusDeploy/Issues #3266).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		unfenced(v)
		v.p.Heed = false
	},
}

// unfenced publishes without looking at the term, or at the row.
func unfenced(v *variant) {
	v.l.Tx.Trusted = false
	v.l.Tx.Seal = nil
	v.p.Claim = publishUnconditionally
}

func publishUnconditionally(ctx context.Context, tx pgx.Tx, id, _ int64) (bool, error) {
	tag, err := tx.Exec(ctx, "UPDATE data_rows SET status = 'published', published_at = now() WHERE id = $1::bigint", id)
	return tag.RowsAffected() == 1, err
}

package publish

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
)

const (
	// The row is claimed and published in one statement. It does not wait for a row that somebody else has in hand, and compares
	// the unit on the row as it is now, not as it was listed.
	claimSQL = `WITH due AS MATERIALIZED (SELECT id FROM data_rows
		WHERE id = $1::bigint AND status = 'scheduled' AND schedule_no = $2::bigint AND scheduled_publish_at <= now() FOR UPDATE SKIP LOCKED)
	UPDATE data_rows r SET status = 'published', published_at = now() FROM due WHERE r.id = due.id RETURNING r.id`

	// Conditional: after a publish whose answer was lost it must find nothing to do.
	cancelSQL = `UPDATE data_rows SET status = 'draft', schedule_no = schedule_no + 1
	WHERE id = $1::bigint AND status = 'scheduled' AND schedule_no = $2::bigint`
)

// reference is the scheduler as it should be.
func reference() *steps.Publish {
	return &steps.Publish{
		Ready:  func(context.Context, time.Duration) error { return nil },
		Heed:   true,
		Claim:  claim,
		Blame:  func(task bool) bool { return task },
		Cancel: cancel,
	}
}

func claim(ctx context.Context, tx pgx.Tx, id, scheduleNo int64) (bool, error) {
	tag, err := tx.Exec(ctx, claimSQL, id, scheduleNo)
	return tag.RowsAffected() == 1, err
}

func cancel(ctx context.Context, tx pgx.Tx, id, scheduleNo int64) error {
	_, err := tx.Exec(ctx, cancelSQL, id, scheduleNo)
	return err
}

// Steps returns the reference's steps, for the wrong twins of this module's own tests to change.
func Steps() *steps.Publish { return reference() }

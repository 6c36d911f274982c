package publish

// SchemaSQL creates the rows and the outbox. Run it once, as a migration, after lockimpl.SchemaSQL. An application that has such a table
// already needs the columns id, status, schedule_no, scheduled_publish_at and published_at.
//
// There is no default that reads the clock: what is due, and when something happened, is said by the statements.
const SchemaSQL = `
CREATE TABLE data_rows (
	id                   bigint PRIMARY KEY,
	status               text NOT NULL CHECK (status IN ('draft', 'scheduled', 'published')),
	schedule_no          bigint NOT NULL DEFAULT 0, -- grows with each scheduling, rescheduling and cancelling
	scheduled_publish_at timestamptz,
	published_at         timestamptz
);
CREATE INDEX data_rows_due ON data_rows (scheduled_publish_at, id) WHERE status = 'scheduled';

-- What happened to a row, in the transaction in which it happened; a relay tells the outside world.
CREATE TABLE outbox (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	row_id      bigint NOT NULL,
	kind        text NOT NULL,
	schedule_no bigint NOT NULL
);
`

// ScheduleSQL schedules, or reschedules, row $1 for $2 seconds from now, by the database's clock.
const ScheduleSQL = `INSERT INTO data_rows (id, status, schedule_no, scheduled_publish_at)
	VALUES ($1::bigint, 'scheduled', 1, now() + make_interval(secs => $2::float8))
	ON CONFLICT (id) DO UPDATE SET status = 'scheduled', schedule_no = data_rows.schedule_no + 1, scheduled_publish_at = excluded.scheduled_publish_at`

const (
	listSQL = `SELECT id, schedule_no FROM data_rows
	WHERE status = 'scheduled' AND scheduled_publish_at <= now() AND id <> ALL($1::bigint[])
	ORDER BY scheduled_publish_at, id LIMIT $2::int`

	outboxSQL = `INSERT INTO outbox (row_id, kind, schedule_no) VALUES ($1::bigint, 'published', $2::bigint)`
)

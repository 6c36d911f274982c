package pg_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

const jobs = `CREATE TABLE jobs (id int, worker text, done timestamptz, local timestamp);
	INSERT INTO jobs VALUES (7, 'r2/1/work/1', '2026-01-01T00:00:01Z', now()), (8, 'somebody', '2026-01-01T00:00:02Z', now());`

// A query over somebody else's tables yields events in the order of its rows.
func TestLedgerQuery(t *testing.T) {
	t.Parallel()
	s, name := database(t, jobs)
	conn := connect(t, s, name, "reader")
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	got, err := pg.QueryLedger(t.Context(), conn, `SELECT worker AS app, id AS row_id, done AS at, 3::smallint AS term, 'job' AS role, 42 AS key, null::bigint AS token
		FROM jobs ORDER BY id DESC;`, start)
	require.NoError(t, err)
	require.Equal(t, []sim.Event{
		{At: 2e9, Source: sim.FromLedger, Kind: sim.EvEffect, Op: sim.OpCommit, Session: "somebody", Role: "job", Key: 42, Term: 3, Row: 8, Unit: 1, Commit: 1},
		{At: 1e9, Source: sim.FromLedger, Kind: sim.EvEffect, Op: sim.OpCommit, Session: "r2/1/work/1", Replica: 2, Incarnation: 1, Role: "job", Key: 42, Term: 3, Row: 7, Unit: 1, Commit: 2},
	}, got)
	got, err = pg.QueryLedger(t.Context(), conn, `SELECT 'term' AS kind, 1 AS row_id, 5 AS token, 2 AS unit, done AS at FROM jobs LIMIT 1`, start)
	require.NoError(t, err)
	require.Equal(t, []sim.Event{{At: 1e9, Source: sim.FromLedger, Kind: sim.EvTerm, Op: sim.OpCommit, Row: 1, Token: "5", Unit: 2, Commit: 1}}, got)
}

func TestWrongLedgerQueries(t *testing.T) {
	t.Parallel()
	s, name := database(t, jobs)
	conn := connect(t, s, name, "reader")
	for sql, want := range map[string]string{
		"SELEC 1": "ledger:1:1: syntax error",
		"SELECT id AS row_id,\n  dn AS at FROM jobs":                 "ledger:2:3: column \"dn\" does not exist",
		"SELECT id AS row_id FROM jobs":                              "yields no column at",
		"SELECT done AS at FROM jobs":                                "yields no column row_id",
		"SELECT id AS row_id, done AS at, worker FROM jobs":          "yields a column worker; the ledger has kind, app, role, key, row_id, unit, term, token, at",
		"SELECT id AS row_id, id AS row_id, done AS at FROM jobs":    "the column row_id twice",
		"SELECT id AS row_id, local AS at FROM jobs":                 "at AT TIME ZONE 'UTC'",
		"SELECT id AS row_id, done AS at FROM jobs WHERE id = $1":    "takes parameters",
		"SELECT id AS row_id, done AS at FROM jobs; DROP TABLE jobs": "cannot insert multiple commands",
		"DELETE FROM jobs": "yields no column row_id",
	} {
		err := pg.CheckLedgerQuery(t.Context(), conn, sql)
		require.ErrorContains(t, err, want, sql)
	}
	for sql, want := range map[string]string{
		"SELECT id AS row_id, null::timestamptz AS at FROM jobs":                          "at is null",
		"SELECT null::int AS row_id, done AS at FROM jobs":                                "no row_id",
		"SELECT id AS row_id, done AS at, 'x' AS kind FROM jobs":                          `neither effect nor term but "x"`,
		"SELECT id AS row_id, done AS at, worker AS term FROM jobs":                       "term",
		"SELECT 1 / (id - 8) AS row_id, done AS at FROM jobs":                             "division by zero",
		"WITH d AS (DELETE FROM jobs RETURNING *) SELECT id AS row_id, done AS at FROM d": "read-only transaction",
	} {
		require.NoError(t, pg.CheckLedgerQuery(t.Context(), conn, sql), sql)
		_, err := pg.QueryLedger(t.Context(), conn, sql, time.Now())
		require.ErrorContains(t, err, want, sql)
	}
	require.Equal(t, 2, value[int](t, conn, "SELECT count(*) FROM jobs"), "it can change nothing")
}

// Somebody else's table that happens to be called like the reference's is left alone.
func TestLedgerBesideAnotherLockTerms(t *testing.T) {
	t.Parallel()
	s, name := database(t, "CREATE TABLE lock_terms (note text)")
	conn := connect(t, s, name, "writer")
	require.NoError(t, pg.InstallLedger(t.Context(), conn))
	exec(t, conn, "INSERT INTO lock_terms VALUES ('mine')")
}

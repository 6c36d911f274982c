package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	begin := time.Now()
	s := pgtest.Server(t)
	t.Log("start", time.Since(begin), s.Version())
	name := pgtest.DatabaseIn(t, s, "create table lock_terms (key bigint primary key, term bigint not null, token bigint not null)")
	conn, err := s.Connect(ctx, name, "r1/1/lease/1")
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.NoError(t, pg.InstallLedger(ctx, conn))
	require.NoError(t, pg.InstallLedger(ctx, conn))
	c2, err := pgx.Connect(ctx, s.DSN(name)+"&application_name=r2/1/effect/1")
	require.NoError(t, err)
	_, err = c2.Exec(ctx, "insert into lock_terms values (7,1,99)")
	require.NoError(t, err)
	_, err = c2.Exec(ctx, "INSERT INTO simrun.ledger(kind, role, key, row_id, unit, term) VALUES ('effect', 'publish', 7, 1, 2, 1)")
	require.NoError(t, err)
	_, err = c2.Exec(ctx, "select pg_advisory_lock(-7)")
	require.NoError(t, err)
	h, err := pg.Holders(ctx, conn, name, -7, 8)
	require.NoError(t, err)
	t.Log(h)
	events, err := pg.ReadLedger(ctx, conn, begin)
	require.NoError(t, err)
	t.Log(events)
	gone, err := s.TerminateSession(ctx, name, "r2/1/effect/1")
	require.NoError(t, err)
	require.True(t, gone)
	for _, m := range []string{"fast", "immediate"} {
		b := time.Now()
		require.NoError(t, s.Restart(ctx, m))
		t.Log(m, time.Since(b))
	}
	b := time.Now()
	for range 5 {
		pgtest.Database(t)
	}
	t.Log("create", time.Since(b)/5)
}

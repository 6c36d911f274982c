package pgbouncer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	s := pgtest.Server(t)
	db := pgtest.DatabaseIn(t, s)
	run, err := proc.NewRun()
	require.NoError(t, err)
	defer run.Close()
	host, port := s.HostPort()
	begin := time.Now()
	p, err := pgbouncer.Start(ctx, pgbouncer.Options{Run: run, Mode: "session", Host: host, Port: port, User: s.User()})
	require.NoError(t, err)
	t.Log(time.Since(begin), p.Version())
	h, pt := p.HostPort()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://%s@%s:%d/%s?default_query_exec_mode=exec&application_name=r1/1/lease/1", s.User(), h, pt, db))
	require.NoError(t, err)
	require.NoError(t, conn.Ping(ctx))
	begin = time.Now()
	require.NoError(t, p.Reload(ctx, pgbouncer.Options{Mode: "transaction"}))
	t.Log("reload", time.Since(begin))
	require.NoError(t, conn.Ping(ctx))
	rows, err := p.Admin(ctx, "SHOW CLIENTS")
	require.NoError(t, err)
	t.Log(rows)
	begin = time.Now()
	require.NoError(t, p.Restart(ctx))
	t.Log("restart", time.Since(begin))
	require.NoError(t, p.Kill())
	require.NoError(t, p.Restart(ctx))
	require.NoError(t, p.Stop())
}

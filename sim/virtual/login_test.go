package virtual_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

// TestServerWithAPassword runs against a server as others have it, that asks everybody for a password: the history is that
// of a server of our own, and the password is in no error and in no event.
func TestServerWithAPassword(t *testing.T) {
	ctx := context.Background()
	run, err := proc.NewRun()
	require.NoError(t, err)
	defer func() { require.NoError(t, run.Close()) }()
	theirs, err := pg.Start(ctx, pg.Options{Run: run})
	require.NoError(t, err)
	defer func() { require.NoError(t, theirs.Stop()) }()
	const secret = `p:a@s/s 'w"o%rd`
	conn, err := theirs.Connect(ctx, "postgres", "set-up")
	require.NoError(t, err)
	var hba string
	_, err = conn.PgConn().Exec(ctx, "SET ROLE NONE; CREATE ROLE alice LOGIN CREATEDB PASSWORD '"+strings.ReplaceAll(secret, "'", "''")+"'").ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(ctx, "SHOW hba_file").Scan(&hba))
	require.NoError(t, os.WriteFile(hba, []byte("local all all trust\nhost all all all scram-sha-256\n"), 0o600))
	_, err = conn.Exec(ctx, "SELECT pg_reload_conf()")
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))

	host, port := theirs.HostPort()
	address := func(password string) string {
		return (&url.URL{Scheme: "postgres", User: url.UserPassword("alice", password), Host: fmt.Sprintf("%s:%d", host, port), Path: "/postgres", RawQuery: "sslmode=disable"}).String()
	}
	require.Eventually(t, func() bool { // the server has heard of it
		c, err := pgx.Connect(ctx, address("wrong"))
		if err == nil {
			_ = c.Close(ctx)
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond)

	given, err := pg.Start(ctx, pg.Options{Backend: pg.DSN, DSN: address(secret)})
	require.NoError(t, err)
	defer func() { require.NoError(t, given.Stop()) }()
	far, err := virtual.New(t, virtual.Config{Run: run, Server: given})
	require.NoError(t, err)
	defer func() { require.NoError(t, far.Close()) }()
	near, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, near.Close()) }()
	impl, _ := replica.ByName(replica.Reference)
	for _, name := range []string{"kill-leader", "pause-leader-terminated"} {
		s, ok := scenarios.ByName(name)
		require.True(t, ok)
		for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession} {
			r := sim.Run{Scenario: s, Plan: gen.Plan(s, 1, 0), Route: route, Impl: impl, Seed: 1}
			want, err := carry(t, near, r)
			require.NoError(t, err)
			got, err := carry(t, far, r)
			require.NoError(t, err)
			require.Positive(t, got.Count(sim.Elections))
			for _, l := range lines(got) {
				require.NotContains(t, l, secret)
			}
			same(t, want, got)
		}
	}
}

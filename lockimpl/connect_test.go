package lockimpl_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/lockimpl"
)

// A socket that is closed under a statement, as at a heartbeat's deadline, is the end of it: no connection is opened to have the statement
// cancelled. pgx's own connection shows that there is something to refuse.
func TestConnectOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		name    string
		connect func(context.Context, *pgx.ConnConfig) (*pgx.Conn, error)
		dials   int32
	}{{"once", lockimpl.ConnectOnce, 1}, {"pgx", pgx.ConnectConfig, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			cfg, err := pgx.ParseConfig(b.dsn)
			require.NoError(t, err)
			dial := cfg.DialFunc
			var dials atomic.Int32
			cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return dial(ctx, network, address)
			}
			conn, err := c.connect(ctx, cfg)
			require.NoError(t, err)
			failed := make(chan error, 1)
			go func() {
				_, err := conn.Exec(ctx, "select pg_sleep(60)")
				failed <- err
			}()
			require.NoError(t, conn.PgConn().Conn().Close())
			require.Error(t, <-failed)
			<-conn.PgConn().CleanupDone()
			require.Equal(t, c.dials, dials.Load())
		})
	}
}

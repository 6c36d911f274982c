package connect_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

func env(dsn string) *sim.Env {
	return &sim.Env{Replica: 2, Incarnation: 3, DSN: dsn, Intervals: sim.DefaultIntervals}
}

func TestEverySessionHasAName(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := env(pgtest.Database(t))
	const ask = "select current_setting('application_name')"
	var name string
	for _, want := range []string{"r2/3/lease/1", "r2/3/lease/2"} {
		conn, err := connect.Connect(ctx, e, sim.UseLease)
		require.NoError(t, err)
		require.NoError(t, conn.QueryRow(ctx, ask).Scan(&name))
		require.Equal(t, want, name)
		require.NoError(t, conn.Close(ctx))
	}

	cfg, err := connect.PoolConfig(e, sim.UseEffect)
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(t, err)
	defer pool.Close()
	a, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer a.Release()
	b, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer b.Release()
	var names []string
	for _, c := range []*pgxpool.Conn{a, b} {
		require.NoError(t, c.QueryRow(ctx, ask).Scan(&name))
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{"r2/3/effect/1", "r2/3/effect/2"}, names)

	db, err := connect.DB(e, "mine")
	require.NoError(t, err)
	defer db.Close()
	for range 2 {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.QueryRowContext(ctx, ask).Scan(&name))
		require.True(t, strings.HasPrefix(name, "r2/3/mine/"), name)
	}
	require.Equal(t, "r2/3/mine/2", name)
}

func TestDialsAsTheEngineWants(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	real, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	e := env("postgres://" + real.User + "@no-such-host.invalid:5432/" + real.Database + "?sslmode=disable")
	var dialled []string
	e.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled = append(dialled, addr)
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(real.Host, strconv.Itoa(int(real.Port))))
	}
	conn, err := connect.Connect(context.Background(), e, sim.UseLease)
	require.NoError(t, err)
	require.NoError(t, conn.Close(context.Background()))
	require.Equal(t, []string{"no-such-host.invalid:5432"}, dialled)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	e := env("postgres://u@127.0.0.1:1/d?sslmode=disable&options=-c%20search_path%3Dx")
	cfg, err := connect.Config(e, sim.UseLease)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"application_name": "r2/3/lease/1"}, cfg.RuntimeParams, "a pooler refuses any other")
	require.Equal(t, sim.DefaultIntervals.BeatDeadline.D(), cfg.ConnectTimeout)
	for name, mode := range map[string]pgx.QueryExecMode{
		"": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec, "simple_protocol": pgx.QueryExecModeSimpleProtocol,
		"cache_describe": pgx.QueryExecModeCacheDescribe, "describe_exec": pgx.QueryExecModeDescribeExec, "cache_statement": pgx.QueryExecModeCacheStatement,
	} {
		e.ExecMode = name
		cfg, err := connect.Config(e, sim.UseLease)
		require.NoError(t, err)
		require.Equal(t, mode, cfg.DefaultQueryExecMode, name)
	}
	e.ExecMode = "fast"
	_, err = connect.Config(e, sim.UseLease)
	require.ErrorContains(t, err, "fast")
}

// Neither a bad address nor a failed connect shows the password.
func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://u:sesame@127.0.0.1:x/d", "postgres://u:sesame@127.0.0.1:1/d?sslmode=perhaps", "postgres://u:sesame@127.0.0.1:1/d"} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := connect.Connect(ctx, env(dsn), sim.UseLease)
		cancel()
		require.Error(t, err)
		require.NotContains(t, err.Error(), "sesame")
	}
}

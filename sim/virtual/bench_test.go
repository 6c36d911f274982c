package virtual_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

// Figures are worth something on a quiet machine, with one processor as workers have it:
//
//	GOMAXPROCS=1 go test ./sim/virtual -run TestSpeed -v -slices 9 -statements 20000
var (
	slicesFlag     = flag.Int("slices", 1, "slices that are measured in turn")
	statementsFlag = flag.Int("statements", 300, "statements in a slice")
)

const selectOne = "SELECT $1::int"

// TestSpeed measures the engine beside bare pgx on the same Unix socket, in slices that take turns, so that what else the
// machine does hits both. It fails only when something does not work at all.
func TestSpeed(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()

	bare := bareConn(t)
	figures := map[string][]float64{}
	add := func(name string, v float64) { figures[name] = append(figures[name], v) }
	n := *statementsFlag
	for range *slicesFlag {
		began, cpu := time.Now(), processorTime()
		var one int
		for range n {
			require.NoError(t, bare.QueryRow(context.Background(), selectOne, 1).Scan(&one))
		}
		add("bare pgx, statements/s", float64(n)/time.Since(began).Seconds())
		add("bare pgx, us of processor a statement", (processorTime()-cpu)*1e6/float64(n))

		s := speed(t, e, repeat(1, n, func(ctx context.Context, c *pgx.Conn) error {
			var one int
			return c.QueryRow(ctx, selectOne, 1).Scan(&one)
		}))
		add("engine, statements/s", s.statements)
		add("engine, us of processor a statement", s.processor*1e6)

		s = speed(t, e, repeat(3, n/10, func(ctx context.Context, c *pgx.Conn) error {
			if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(7)"); err != nil {
				return err
			}
			_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(7)")
			return err
		}))
		add("engine, waiting for locks, steps/s", s.statements)

		steady, ok := scenarios.ByName("steady")
		require.True(t, ok)
		impl, _ := replica.ByName(replica.Reference)
		s = speed(t, e, sim.Run{Scenario: steady, Plan: gen.Plan(steady, 1, 0), Route: sim.Direct, Impl: impl})
		add("steady scenario, virtual seconds/s", s.virtual)
	}
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		v := figures[name]
		slices.Sort(v)
		t.Logf("%-38s median %8.0f  (%.0f to %.0f)", name, v[len(v)/2], v[0], v[len(v)-1])
	}
}

type rates struct{ statements, virtual, processor float64 }

// processorTime is what this process has used, in seconds.
func processorTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func speed(t *testing.T, e *virtual.Engine, run sim.Run) rates {
	t.Helper()
	rec, err := sim.NewRecorder(io.Discard, e.Header(run))
	require.NoError(t, err)
	before, cpu := e.Stats(), processorTime()
	require.NoError(t, e.Run(context.Background(), run, rec))
	d, took := e.Stats(), e.Stats().Wall-before.Wall
	n := float64(d.Statements - before.Statements)
	return rates{n / took.Seconds(), (d.Virtual - before.Virtual).Seconds() / took.Seconds(), (processorTime() - cpu) / n}
}

// repeat is a run in which replicas do something n times altogether.
func repeat(replicas, n int, step func(context.Context, *pgx.Conn) error) sim.Run {
	plan := sim.Plan{V: sim.PlanVersion, Horizon: 24 * 3600 * sec, Phase: []sim.Duration{0, 3 * ms, 5 * ms}, Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 1 * ms}}}}
	impl := sim.Implementation{Name: "repeat", Role: sim.Role{Name: "bench", Key: 1}, Run: func(ctx context.Context, env *sim.Env) error {
		c, err := connect.Connect(ctx, env, "bench")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		for range n / replicas {
			if err := step(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}}
	return sim.Run{Scenario: sim.Scenario{Name: "repeat", Replicas: replicas, Duration: plan.Horizon}, Plan: plan, Route: sim.Direct, Impl: impl}
}

func bareConn(t *testing.T) *pgx.Conn {
	ctx := context.Background()
	s := pgtest.Server(t)
	cfg, err := pgx.ParseConfig(s.DSN(pgtest.DatabaseIn(t, s)))
	require.NoError(t, err)
	_, port := s.HostPort()
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("%s/.s.PGSQL.%d", s.SocketDir(), port))
	}
	c, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(ctx) })
	return c
}

package live

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

// TestBench measures what the live engine costs and how long failovers take; docs/figures.md says how to read it. `make bench` runs it
// with numbers worth reading; in an ordinary test run it shows that every figure can be had. No figure is asserted.
var (
	failoversFlag  = flag.Int("failovers", 1, "bench: failovers of each kind on each route")
	statementsFlag = flag.Int("statements", 200, "bench: statements in a slice")
	slicesFlag     = flag.Int("slices", 1, "bench: slices that are measured in turn")
)

func TestBench(t *testing.T) {
	b := &liveBench{t: t}
	b.coldStart()
	b.proxy()
	for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession} {
		for _, kind := range []sim.FaultKind{sim.Kill, sim.Disconnect, sim.TerminateBackend} {
			b.failovers(route, kind)
		}
	}
}

type liveBench struct {
	t *testing.T
	e *Engine
}

// coldStart measures each phase on the way from nothing to a first leader.
func (b *liveBench) coldStart() {
	t, ctx := b.t, b.t.Context()
	began := time.Now()
	var line []string
	phase := func(name string) {
		line = append(line, fmt.Sprintf("%s %.0f ms", name, 1000*time.Since(began).Seconds()))
		began = time.Now()
	}
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	logs := t.TempDir()
	require.NoError(t, os.Chmod(logs, 0o755))
	server, err := pg.Start(ctx, pg.Options{Run: run, Backend: "local", LogDir: logs})
	require.NoError(t, err)
	phase("cluster up")
	b.e, err = New(ctx, Config{Run: run, Server: server, LogDir: logs})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.e.Close())
		require.NoError(t, server.Stop())
	})
	_, err = b.e.pooler(ctx, sim.PgBouncerSession, sim.Pool{})
	require.NoError(t, err)
	phase("pooler up")
	host, port := server.HostPort()
	link, err := netfault.New("bench", fmt.Sprintf("%s:%d", host, port))
	require.NoError(t, err)
	phase("proxy up")
	require.NoError(t, link.Close())
	_, err = b.e.template(ctx, implementation(t, "reference"))
	require.NoError(t, err)
	began = time.Now() // the tables are made once, and not for each run
	s, p := scenario()
	s.Replicas, s.Workload.Rows, p.Horizon = 1, 1, secs(25)
	h, err := play(t, b.e, sim.PgBouncerSession, implementation(t, "reference"), s, p)
	require.NoError(t, err)
	first := func(fits func(sim.Event) bool) time.Duration {
		i := slices.IndexFunc(h.Events, fits)
		require.GreaterOrEqual(t, i, 0)
		return h.Events[i].At.D()
	}
	up := first(func(e sim.Event) bool { return e.Source == sim.FromReplica })
	lead := first(func(e sim.Event) bool { return e.Kind == sim.EvLead })
	line = append(line, fmt.Sprintf("replica up %.0f ms", 1000*up.Seconds()), fmt.Sprintf("first leader %.0f ms", 1000*(lead-up).Seconds()))
	t.Log("cold start: " + strings.Join(line, ", "))
}

// proxy compares statements through the link with statements straight to the server, both over TCP on the loopback interface.
func (b *liveBench) proxy() {
	t, ctx := b.t, b.t.Context()
	host, port := b.e.cfg.Server.HostPort()
	link, err := netfault.New("bench", fmt.Sprintf("%s:%d", host, port))
	require.NoError(t, err)
	defer link.Close()
	connect := func(addr string) *pgx.Conn {
		cfg, err := pgx.ParseConfig(b.e.cfg.Server.DSN("postgres"))
		require.NoError(t, err)
		if addr != "" {
			_, err := fmt.Sscanf(strings.Replace(addr, ":", " ", 1), "%s %d", &cfg.Host, &cfg.Port)
			require.NoError(t, err)
		}
		conn, err := pgx.ConnectConfig(ctx, cfg)
		require.NoError(t, err)
		return conn
	}
	straight, through := connect(""), connect(link.Addr())
	defer straight.Close(context.WithoutCancel(ctx))
	defer through.Close(context.WithoutCancel(ctx))
	perStatement := func(conn *pgx.Conn) float64 {
		began := time.Now()
		for range *statementsFlag {
			_, err := conn.Exec(ctx, "select 1")
			require.NoError(t, err)
		}
		return float64(time.Since(began).Microseconds()) / float64(*statementsFlag)
	}
	var direct, proxied, ratios []float64
	for range *slicesFlag {
		d, p := perStatement(straight), perStatement(through)
		direct, proxied, ratios = append(direct, d), append(proxied, p), append(ratios, p/d)
	}
	t.Logf("a statement: direct %.0f us, through the proxy %.0f us: %.2f times (%.2f to %.2f)",
		quantile(direct, 0.5), quantile(proxied, 0.5), quantile(ratios, 0.5), slices.Min(ratios), slices.Max(ratios))
}

// failovers measures from the instant at which the leader is about to be hit until somebody leads.
func (b *liveBench) failovers(route sim.Route, kind sim.FaultKind) {
	const perRun = 10
	t := b.t
	rng := rand.New(rand.NewPCG(1, 1)) // where in its interval a standby is hit is chance, and the same each time
	var ratios []float64
	var retry, stalled sim.Duration
	for left := *failoversFlag; left > 0; left -= perRun {
		s, p := scenario()
		at := secs(20)
		for range min(left, perRun) {
			f := sim.Fault{Kind: kind, Target: sim.TargetLeader, At: at}
			if kind == sim.Kill {
				f.For = secs(2)
			}
			p.Faults = append(p.Faults, f)
			at += secs(15 + 10*rng.Float64())
		}
		s.Duration, p.Horizon = at, at
		h, err := play(t, b.e, route, implementation(t, "reference"), s, p)
		require.NoError(t, err)
		retry, stalled = h.Header.Intervals.Retry, max(stalled, h.Stalled)
		for _, d := range takeovers(h) {
			ratios = append(ratios, d.Seconds()/retry.Seconds())
		}
	}
	require.NotEmpty(t, ratios, "%s %s: not one failover", route, kind)
	t.Logf("failover, %s, %-17s: %d, over the retry interval of %s: p50 %.2f, p99 %.2f, max %.2f; longest stall of the host %.2f",
		route, kind, len(ratios), retry, quantile(ratios, 0.5), quantile(ratios, 0.99), slices.Max(ratios), stalled.Seconds()/retry.Seconds())
}

// takeovers are the times from a fault that took effect to the next beginning of a leadership.
func takeovers(h *sim.History) (all []time.Duration) {
	began, applied := map[int]sim.Duration{}, map[int]bool{}
	for _, e := range h.Events {
		if e.Kind == sim.EvFault && e.Op == sim.OpPlanned {
			began[e.Fault] = e.At
		}
		if e.Kind == sim.EvFault && e.Op == sim.OpApplied {
			applied[e.Fault] = true
		}
	}
	for n, at := range began {
		var next sim.Duration
		for _, e := range h.Events {
			if e.Kind == sim.EvLead && e.At > at && (next == 0 || e.At < next) {
				next = e.At
			}
		}
		if applied[n] && next > 0 {
			all = append(all, (next - at).D())
		}
	}
	return all
}

// quantile is the smallest of the values that so large a share of them does not exceed.
func quantile(v []float64, share float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[min(len(v)-1, int(share*float64(len(v))))]
}

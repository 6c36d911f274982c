package virtual_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

// TestBench compares the engine with what else speaks to Postgres, in slices that take turns, so that what else the machine does
// hits all alike. `make bench` runs it with slices worth reading; in an ordinary test run it shows that every figure can
// be had. No figure is asserted.
var (
	slicesFlag     = flag.Int("slices", 1, "bench: slices that are measured in turn")
	statementsFlag = flag.Int("statements", 200, "bench: statements in a slice")
)

const benchWorker = "SIMRUN_BENCH_WORKER" // number of the worker: the processor it keeps to

// A figure is one line of the bench: what one of the workers measures, or two at the same time.
type figure struct {
	name    string
	worker  []int  // who measures, at the same time; their rates are added up
	what    string // see benchmarks
	over    string // the figure of which this one is a multiple
	n       func(int) int
	missing string // why it cannot be had
}

func TestBench(t *testing.T) {
	same, tenth := func(n int) int { return n }, func(n int) int { return max(n/10, 3) }
	figures := []figure{
		{name: "pgbench -M prepared, 1 client, statements/s", worker: []int{0}, what: "pgbench", n: same},
		{name: "bare pgx, 1 connection, statements/s", worker: []int{0}, what: "bare", n: same},
		{name: "engine, 1 worker, statements/s", worker: []int{0}, what: "engine", over: "bare pgx, 1 connection, statements/s", n: same},
		{name: "bare pgx, 2 connections, statements/s", worker: []int{0, 1}, what: "bare", n: same},
		{name: "engine, 2 workers, statements/s", worker: []int{0, 1}, what: "engine", over: "bare pgx, 2 connections, statements/s", n: same},
		{name: "bare pgx through Toxiproxy, statements/s", worker: []int{2}, what: "bare", n: same},
		{name: "engine through Toxiproxy, statements/s", worker: []int{2}, what: "engine", over: "bare pgx through Toxiproxy, statements/s", n: same},
		{name: "engine, three replicas wait for a lock, steps/s", worker: []int{0}, what: "locks", n: tenth},
		{name: "steady for ten minutes, virtual seconds/s", worker: []int{0}, what: "steady", n: same},
		{name: "set-up of a schedule, per s", worker: []int{0}, what: "set-up", n: tenth},
		{name: "isolationtester, interleavings/s", worker: []int{0}, what: "isolationtester", n: same, missing: isolationtester()},
		{name: "engine, interleavings/s of the same specification", worker: []int{0}, what: "interleavings", over: "isolationtester, interleavings/s", n: same},
	}
	workers := []*worker{startBench(t, 0), startBench(t, 1), startBench(t, 2)}
	rates := map[string][]float64{}
	for range *slicesFlag {
		for _, f := range figures {
			if f.missing != "" {
				continue
			}
			var mu sync.Mutex
			var group sync.WaitGroup
			sum := 0.0
			for _, i := range f.worker {
				group.Go(func() {
					r := workers[i].ask(t, f.what, f.n(*statementsFlag))
					mu.Lock()
					defer mu.Unlock()
					sum += r
				})
			}
			group.Wait()
			rates[f.name] = append(rates[f.name], sum)
		}
	}
	for _, f := range figures {
		if f.missing != "" {
			t.Logf("%-52s %s", f.name, f.missing)
			continue
		}
		line := fmt.Sprintf("%-52s median %7.0f  (%.0f to %.0f)", f.name, median(rates[f.name]), slices.Min(rates[f.name]), slices.Max(rates[f.name]))
		if base := rates[f.over]; len(base) > 0 {
			var ratios []float64
			for i, r := range rates[f.name] {
				ratios = append(ratios, r/base[i])
			}
			line += fmt.Sprintf("  %.2f of the line above (%.2f to %.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
		}
		t.Log(line)
		require.Positive(t, slices.Min(rates[f.name]), f.name)
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// A worker is a process that measures, with a server of its own, on a processor of its own. The third one goes through Toxiproxy.
type worker struct {
	in  io.Writer
	out *bufio.Reader
}

func startBench(t *testing.T, n int) *worker {
	cmd := exec.Command(os.Args[0], "-test.run=^TestBenchWorker$", "-test.count=1")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", benchWorker, n), "GOMAXPROCS=1", "GOGC=400") // as simrun's workers have it
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		require.NoError(t, cmd.Wait())
	})
	return &worker{in, bufio.NewReader(out)}
}

const benchAnswer = "bench: "

func (w *worker) ask(t *testing.T, what string, n int) (rate float64) {
	_, err := fmt.Fprintf(w.in, "%s %d\n", what, n)
	require.NoError(t, err)
	for {
		line, err := w.out.ReadString('\n')
		require.NoError(t, err, what)
		if text, ok := strings.CutPrefix(line, benchAnswer); ok {
			require.NoError(t, json.Unmarshal([]byte(text), &rate))
			return rate
		}
	}
}

// TestBenchWorker is a worker of TestBench.
func TestBenchWorker(t *testing.T) {
	var number int
	if _, err := fmt.Sscan(os.Getenv(benchWorker), &number); err != nil {
		return // an ordinary test run
	}
	if err := proc.Pin(number % 2); err != nil {
		t.Log(err) // slower, but all alike
	}
	b := &bench{server: pgtest.Server(t)}
	e, err := virtual.New(t, virtual.Config{Server: b.server, Toxiproxy: number == 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	b.engine = e
	b.conn(t, number == 2)
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var what string
		var n int
		_, err := fmt.Sscan(orders.Text(), &what, &n)
		require.NoError(t, err)
		b.measure(t, what, n) // the first time after something else is slower by up to a half, whatever it is
		text, err := json.Marshal(b.measure(t, what, n))
		require.NoError(t, err)
		fmt.Println(benchAnswer + string(text))
	}
}

type bench struct {
	server *pg.Server
	engine *virtual.Engine
	bare   *pgx.Conn
}

// conn opens the bare connection, on the way that the engine takes.
func (b *bench) conn(t *testing.T, proxied bool) {
	ctx := context.Background()
	cfg, err := pgx.ParseConfig(b.server.DSN(pgtest.DatabaseIn(t, b.server)))
	require.NoError(t, err)
	host, port := b.server.HostPort()
	network, addr := "unix", fmt.Sprintf("%s/.s.PGSQL.%d", b.server.SocketDir(), port)
	if proxied {
		link, err := netfault.New("bare", net.JoinHostPort(host, fmt.Sprint(port)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, link.Close()) })
		network, addr = "tcp", link.Addr()
	}
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	b.bare, err = pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.bare.Close(ctx) })
}

const selectOne = "SELECT $1::int"

// measure returns a rate per second.
func (b *bench) measure(t *testing.T, what string, n int) float64 {
	ctx := context.Background()
	began := time.Now()
	rate := func(n float64) float64 { return n / time.Since(began).Seconds() }
	switch what {
	case "bare":
		for range n {
			var one int
			require.NoError(t, b.bare.QueryRow(ctx, selectOne, 1).Scan(&one))
		}
		return rate(float64(n))
	case "engine":
		return b.speed(t, repeat(1, n, func(ctx context.Context, c *pgx.Conn) error {
			var one int
			return c.QueryRow(ctx, selectOne, 1).Scan(&one)
		})).statements
	case "locks":
		return b.speed(t, repeat(3, n, lockAndUnlock)).statements
	case "steady":
		steady, ok := scenarios.ByName("steady")
		require.True(t, ok)
		steady.Duration = sim.Duration(10 * time.Minute)
		impl, _ := replica.ByName(replica.Reference)
		before := b.engine.Stats()
		runs := max(n/1000, 1)
		for i := range runs {
			b.speed(t, sim.Run{Scenario: steady, Plan: gen.Plan(steady, 1, i), Route: sim.Direct, Impl: impl})
		}
		after := b.engine.Stats()
		return (after.Virtual - before.Virtual).Seconds() / (after.Wall - before.Wall).Seconds()
	case "set-up":
		for range n {
			b.speed(t, repeat(1, 0, nil))
		}
		return rate(float64(n))
	case "interleavings":
		return rate(float64(b.interleavings(t)))
	case "pgbench":
		return b.pgbench(t, n)
	case "isolationtester":
		return rate(float64(b.isolationtester(t)))
	}
	require.FailNow(t, "nobody measures this", what)
	return 0
}

func lockAndUnlock(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(7)"); err != nil {
		return err
	}
	_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(7)")
	return err
}

type rates struct{ statements, virtual float64 }

func (b *bench) speed(t *testing.T, run sim.Run) rates {
	t.Helper()
	rec, err := sim.NewRecorder(io.Discard, b.engine.Header(run))
	require.NoError(t, err)
	before := b.engine.Stats()
	require.NoError(t, b.engine.Run(context.Background(), run, rec))
	after := b.engine.Stats()
	took := (after.Wall - before.Wall).Seconds()
	return rates{float64(after.Statements-before.Statements) / took, (after.Virtual - before.Virtual).Seconds() / took}
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

// interleavings carries out every order of three sessions that lock and unlock one advisory lock, as isolationtester does:
// equivalent ones too, so that the two do the same.
func (b *bench) interleavings(t *testing.T) (n int) {
	run := repeat(3, 3, lockAndUnlock)
	x := gen.NewExplorer(run.Plan, 100)
	for x.Next() {
		run.Plan = x.Plan()
		run.Choose = func(next []sim.Step) int {
			for i := range next {
				if !next[i].Alone() {
					next[i].Unknown = true
				}
			}
			return x.Choose(next)
		}
		b.speed(t, run)
		n++
	}
	require.NoError(t, x.Err())
	require.Len(t, possible(), x.Runs)
	return n
}

func (b *bench) pgbench(t *testing.T, n int) float64 {
	script := filepath.Join(t.TempDir(), "select.sql")
	require.NoError(t, os.WriteFile(script, []byte("SELECT 1;\n"), 0o644))
	_, port := b.server.HostPort()
	cmd := exec.Command("pgbench", "-n", "-M", "prepared", "-f", script, "-c", "1", "-t", fmt.Sprint(n), "-h", b.server.SocketDir(), "-p", fmt.Sprint(port), "-U", b.server.User(), "postgres")
	cmd.Env = append(os.Environ(), "PGPASSWORD="+b.server.Password())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, tps, ok := strings.Cut(string(out), "tps = ")
	require.True(t, ok, "%s", out)
	var rate float64
	_, err = fmt.Sscan(tps, &rate)
	require.NoError(t, err)
	return rate
}

// specification is what b.interleavings does, in isolationtester's words.
const specification = `
session a
step la { SELECT pg_advisory_lock(7); }
step ua { SELECT pg_advisory_unlock(7); }
session b
step lb { SELECT pg_advisory_lock(7); }
step ub { SELECT pg_advisory_unlock(7); }
session c
step lc { SELECT pg_advisory_lock(7); }
step uc { SELECT pg_advisory_unlock(7); }
`

// possible are the orders in which three sessions can lock and unlock: none goes on while it waits.
func possible() (permutations []string) {
	var try func(order []string, at [3]int, queue []int)
	try = func(order []string, at [3]int, queue []int) {
		if len(order) == 6 {
			permutations = append(permutations, "permutation "+strings.Join(order, " "))
			return
		}
		for s := range 3 {
			name := string(rune('a' + s))
			next := at
			next[s]++
			switch {
			case at[s] == 0:
				try(append(slices.Clone(order), "l"+name), next, append(slices.Clone(queue), s))
			case at[s] == 1 && queue[0] == s:
				try(append(slices.Clone(order), "u"+name), next, queue[1:])
			}
		}
	}
	try(nil, [3]int{}, nil)
	return permutations
}

func isolationtesterPath() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/lib/pgxs/src/test/isolation/isolationtester")
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// isolationtester says why it cannot be compared with, if it cannot.
func isolationtester() string {
	if isolationtesterPath() == "" {
		return "not installed: it is in postgresql-server-dev of the server's version"
	}
	return ""
}

func (b *bench) isolationtester(t *testing.T) int {
	_, port := b.server.HostPort()
	cmd := exec.Command(isolationtesterPath(), fmt.Sprintf("host=%s port=%d user=%s dbname=postgres", b.server.SocketDir(), port, b.server.User()))
	cmd.Env = append(os.Environ(), "PGPASSWORD="+b.server.Password())
	cmd.Stdin = strings.NewReader(specification + strings.Join(possible(), "\n") + "\n")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	require.NoError(t, cmd.Run(), "%s", &problems)
	n := strings.Count(out.String(), "starting permutation:")
	require.Len(t, possible(), n)
	return n
}

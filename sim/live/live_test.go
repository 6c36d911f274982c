package live

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	impls "github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/stretchr/testify/require"
)

// The test binary is its own replica when it is started with this argument.
const replicaArg = "be-a-replica"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == replicaArg {
		if err := Serve(context.Background(), os.Stdin, os.NewFile(sim.ReportFD, "reports"), impls.ByName); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func implementation(t *testing.T, name string) sim.Implementation {
	t.Helper()
	impl, ok := impls.ByName(name)
	require.True(t, ok, name)
	impl.Command = []string{os.Args[0], replicaArg}
	return impl
}

// testScale is slower than the engine's own: these tests share two cores with all the others.
const testScale = 0.08

// engine starts a server and an engine of the test's own: some faults break the server.
func engine(t *testing.T) *Engine {
	t.Helper()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	logs := t.TempDir()
	require.NoError(t, os.Chmod(logs, 0o755))
	server, err := pg.Start(t.Context(), pg.Options{Run: run, Backend: "local", LogDir: logs})
	require.NoError(t, err)
	e, err := New(t.Context(), Config{Run: run, Server: server, LogDir: logs, TimeScale: testScale})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.NoError(t, server.Stop())
	})
	return e
}

func secs(n float64) sim.Duration { return sim.Duration(n * float64(time.Second)) }

func scenario(faults ...sim.Fault) (sim.Scenario, sim.Plan) {
	s := sim.Scenario{
		Name: "t", Replicas: 3, Duration: secs(55), Workload: sim.Workload{Rows: 30, Every: secs(1)},
		Invariants: []string{"one-leader", "no-duplicate-publish", "failover", "probe"},
	}
	return s, sim.Plan{V: 1, Faults: faults, Horizon: s.Duration, Phase: []sim.Duration{0, secs(0.5), secs(1)}}
}

func play(t *testing.T, e *Engine, route sim.Route, impl sim.Implementation, s sim.Scenario, p sim.Plan) (*sim.History, error) {
	t.Helper()
	run := sim.Run{Scenario: s, Plan: p, Route: route, Impl: impl, Seed: 1}
	rec, err := sim.NewRecorder(&bytes.Buffer{}, e.Header(run))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := e.Run(ctx, run, rec); err != nil {
		return nil, err
	}
	h, err := rec.Close()
	require.NoError(t, err)
	return h, nil
}

// Every fault takes effect, is proved, and heals; the reference stands it.
func TestFaults(t *testing.T) {
	t.Parallel()
	leader, at := sim.TargetLeader, secs(20)
	all := []sim.Fault{
		{Kind: sim.Kill, Target: leader, At: at, For: secs(8)},
		{Kind: sim.Restart, Target: leader, At: at, For: secs(5)},
		{Kind: sim.Stop, Target: leader, At: at, For: secs(5)},
		{Kind: sim.StepDown, Target: leader, At: at},
		{Kind: sim.RollingDeploy, At: at, For: secs(5)},
		{Kind: sim.TaskFailure, Target: leader, At: at},
		{Kind: sim.SlowTask, Target: leader, At: at, For: secs(3)},
		{Kind: sim.Pause, Target: leader, At: at, For: secs(5)},
		{Kind: sim.Disconnect, Target: leader, At: at},
		{Kind: sim.BlackHole, Target: leader, At: at, For: secs(5)},
		{Kind: sim.HalfOpen, Target: leader, At: at, For: secs(20)},
		{Kind: sim.Latency, Target: leader, At: at, For: secs(5)},
		{Kind: sim.Slow, Target: leader, At: at, For: secs(5)},
		{Kind: sim.CutReply, Target: leader, At: at, After: &sim.Trigger{Pattern: "lock_guard", Nth: 1}},
		{Kind: sim.Kill, Target: leader, At: at, For: secs(5), Before: &sim.Trigger{Pattern: "lock_guard", Nth: 1}},
		{Kind: sim.Pause, Target: sim.TargetAll, For: secs(5), After: &sim.Trigger{Pattern: "pg_try_advisory_lock", Nth: 1}},
		{Kind: sim.TerminateBackend, Target: leader, At: at},
		{Kind: sim.IdleTimeout, Target: leader, At: at},
		{Kind: sim.Recycle, Target: leader, At: at},
		{Kind: sim.ConnectionsExhausted, At: at, For: secs(10)},
		{Kind: sim.PostgresRestart, At: at},
	}
	pooled := []sim.Fault{
		{Kind: sim.TerminateBackend, Target: leader, At: at}, {Kind: sim.PoolerRestart, At: at},
		{Kind: sim.Recycle, Target: leader, At: at},
		{Kind: sim.PoolerReload, At: at, For: secs(20)}, {Kind: sim.PoolerNoise, At: at, For: secs(10)},
	}
	for route, faults := range map[sim.Route][]sim.Fault{sim.Direct: all, sim.PgBouncerSession: pooled} {
		for i, f := range faults {
			t.Run(fmt.Sprintf("%s %d %s", route, i, f.Kind), func(t *testing.T) {
				t.Parallel()
				s, p := scenario(f)
				h, err := play(t, engine(t), route, implementation(t, "reference"), s, p)
				require.NoError(t, err)
				requireApplied(t, h, f)
				require.Positive(t, h.Count(sim.Publishes))
				for _, v := range invariants.Check(s.Invariants, h) {
					require.NotEqual(t, sim.StatusViolated, v.Status, "%+v", v)
				}
			})
		}
	}
}

// requireApplied looks for the proof of the first fault, and for its heal.
func requireApplied(t *testing.T, h *sim.History, f sim.Fault) {
	t.Helper()
	ops := map[string]sim.Event{}
	for _, ev := range h.Events {
		if ev.Kind == sim.EvFault {
			ops[ev.Op] = ev
		}
	}
	require.NotContains(t, ops, sim.OpFailed, "%s: %+v", f, ops)
	require.Contains(t, ops, sim.OpApplied, "%s: %+v", f, ops)
	require.NotEmpty(t, ops[sim.OpApplied].Text, "the proof of %s", f)
	require.Contains(t, ops, sim.OpHealed, f)
}

// What the list of faults says the engine can do, it does.
func TestEveryFaultOfTheListIsThere(t *testing.T) {
	t.Parallel()
	for _, f := range sim.Faults {
		_, one := onReplica[f.Kind]
		_, all := onWorld[f.Kind]
		require.Equal(t, f.Live, one || all || f.Kind == sim.CutReply, f.Kind)
	}
}

// Statements of the reference take a millisecond, so one that waits is made for the fault to find.
func TestCancelStatement(t *testing.T) {
	t.Parallel()
	impl := implementation(t, "reference")
	// An effect that takes its time: the callback's insert sleeps in a trigger.
	impl.Migrations += `CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END $$;
		CREATE TRIGGER dawdle BEFORE UPDATE ON data_rows FOR EACH ROW EXECUTE FUNCTION dawdle();`
	f := sim.Fault{Kind: sim.CancelStatement, Target: sim.TargetLeader, At: secs(20)}
	s, p := scenario(f)
	h, err := play(t, engine(t), sim.Direct, impl, s, p)
	require.NoError(t, err)
	requireApplied(t, h, f)
}

// A fault with nobody to hit is moot and says why.
func TestMootFault(t *testing.T) {
	t.Parallel()
	s, p := scenario(sim.Fault{Kind: sim.Kill, Target: "1", At: secs(5)}, sim.Fault{Kind: sim.Pause, Target: "1", At: secs(15), For: secs(1)})
	s.Replicas, p.Horizon = 1, secs(35)
	h, err := play(t, engine(t), sim.Direct, implementation(t, "reference"), s, p)
	require.NoError(t, err)
	for _, ev := range h.Events {
		if ev.Kind == sim.EvFault && ev.Fault == 2 {
			require.Equal(t, sim.OpMoot, ev.Op)
			require.NotEmpty(t, ev.Reason)
			return
		}
	}
	t.Fatal("the second fault left no trace")
}

// A program that is no replica is told so, and nothing hangs.
func TestBrokenPrograms(t *testing.T) {
	t.Parallel()
	e := engine(t)
	for script, want := range map[string]string{
		`exit 0`:                               "without a word",
		`echo garbage >&3; sleep 60`:           "no JSON",
		`echo '{"hello":7}' >&3; sleep 60`:     "did not begin with",
		`echo '{"kind":"lead"}' >&3; sleep 60`: "did not begin with",
		`echo '{"hello":1}' >&3; echo '{"kind":"fault"}' >&3; sleep 60`: "does not report",
	} {
		impl := implementation(t, "reference")
		impl.Command = []string{"/bin/sh", "-c", script}
		s, p := scenario()
		s.Replicas = 1
		_, err := play(t, e, sim.Direct, impl, s, p)
		var broken *ProtocolError
		require.ErrorAs(t, err, &broken, script)
		require.Contains(t, broken.Error(), want, script)
	}
}

// The address of the database, and so its password, is in no argument and in no event.
func TestNoAddressInHistory(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	e := engine(t)
	s, p := scenario()
	p.Horizon = secs(12)
	run := sim.Run{Scenario: s, Plan: p, Route: sim.Direct, Impl: implementation(t, "reference"), Seed: 1}
	rec, err := sim.NewRecorder(&b, e.Header(run))
	require.NoError(t, err)
	require.NoError(t, e.Run(t.Context(), run, rec))
	require.NotContains(t, b.String(), "postgres://")
	require.NotContains(t, b.String(), "127.0.0.1")
	require.NotContains(t, strings.Join(run.Impl.Command, " "), "postgres://")
}

// Where a replica is more than one process, all of it is paused: what a shell has in the background is part of it.
func TestPauseOfAllProcesses(t *testing.T) {
	t.Parallel()
	impl := impls.Program("exec:sh", sim.Program{Exec: []string{"/bin/sh", "-c", `echo '{"hello":1}' >&3
		(while sleep 0.01; do echo '{"kind":"note","text":"background"}' >&3; done) & read start; read order; exit 0`}}, "/")
	s, p := scenario(sim.Fault{Kind: sim.Pause, Target: "1", At: secs(10), For: secs(15)})
	s.Replicas, p.Horizon = 1, secs(35)
	h, err := play(t, engine(t), sim.Direct, impl, s, p)
	require.NoError(t, err)
	var paused, resumed sim.Duration
	before, during, after := 0, 0, 0
	for _, e := range h.Events {
		switch {
		case e.Kind == sim.EvPaused:
			paused = e.At
		case e.Kind == sim.EvResumed:
			resumed = e.At
		case e.Text != "background":
		case paused == 0:
			before++
		case resumed == 0 && e.At > paused+secs(0.5): // what was in the pipe is read meanwhile
			during++
		case resumed != 0:
			after++
		}
	}
	require.Positive(t, before)
	require.Positive(t, after)
	require.Zero(t, during)
}

// Every key of a program is watched, and one that it reports as well.
func TestKeysAreWatched(t *testing.T) {
	t.Parallel()
	impl := impls.Program("exec:sh", sim.Program{Keys: []int64{42, 43}, Exec: []string{"/bin/sh", "-c", `echo '{"hello":1}' >&3
		echo '{"kind":"attempt","op":"begin","role":"other","key":44}
{"kind":"attempt","op":"begin","key":43}
{"kind":"attempt","op":"begin"}
{"kind":"attempt","op":"begin","role":"stranger"}' >&3; read start
		(echo 'SELECT pg_advisory_lock(43), pg_advisory_lock(44);'; read order) | PGAPPNAME=r1/1/lease/1 psql -Xq >/dev/null`}}, "/")
	s, p := scenario()
	s.Replicas, p.Horizon = 1, secs(12)
	h, err := play(t, engine(t), sim.Direct, impl, s, p)
	require.NoError(t, err)
	held := map[int64][]string{}
	roles := map[int64]string{}
	var tried []string
	for _, e := range h.Events {
		if e.Kind == sim.EvAttempt {
			tried = append(tried, fmt.Sprint(e.Role, " ", e.Key))
		}
		if e.Kind == sim.EvHeld {
			held[e.Key], roles[e.Key] = append(held[e.Key], e.Session), e.Role
		}
	}
	require.Equal(t, []string{""}, held[42])
	require.Contains(t, held[43], "r1/1/lease/1")
	require.Contains(t, held[44], "r1/1/lease/1")
	require.Equal(t, []string{"other 44", "key 43 43", "publish 42", "stranger 0"}, tried, "the role is that of the key, and the key that of the role")
	require.Equal(t, map[int64]string{42: "publish", 43: "key 43", 44: "key 44"}, roles)
}

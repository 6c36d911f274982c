package virtual_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

var kindFlag = flag.String("kind", "", "one kind of fault")

const (
	ms  = sim.Duration(time.Millisecond)
	sec = sim.Duration(time.Second)
)

// everyFault is a plan with each fault the engine can carry out.
func everyFault() sim.Plan {
	p := sim.Plan{
		V: sim.PlanVersion, Phase: []sim.Duration{0, 357 * ms, 1214 * ms}, Picks: []int{1, 0, 2, 3, 0, 1, 1, 2},
		Delays: [][]sim.Delay{{{Req: 3 * ms, Resp: 4 * ms}, {Req: 1 * ms, Resp: 9 * ms}}, {{Req: 5 * ms, Resp: 2 * ms}}, {{Req: 11 * ms, Resp: 6 * ms}, {Req: 2 * ms, Resp: 2 * ms}}},
	}
	at := 20 * sec
	add := func(f sim.Fault, gap sim.Duration) {
		f.At = at
		p.Faults = append(p.Faults, f)
		at += gap
	}
	add(sim.Fault{Kind: sim.Kill, Target: sim.TargetLeader, For: 10 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.Pause, Target: sim.TargetLeader, For: 45 * sec}, 60*sec)
	add(sim.Fault{Kind: sim.Disconnect, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.TerminateBackend, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.Restart, Target: sim.TargetLeader, For: 3 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.StepDown, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.TaskFailure, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.SlowTask, Target: sim.TargetLeader, For: 3 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.BlackHole, Target: sim.TargetLeader, For: 40 * sec}, 60*sec)
	add(sim.Fault{Kind: sim.HalfOpen, Target: sim.TargetLeader, For: 20 * sec}, 60*sec)
	add(sim.Fault{Kind: sim.Latency, Target: sim.TargetAll, For: 10 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.Slow, Target: sim.TargetStandby, For: 10 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.CutReply, Target: sim.TargetAll, After: &sim.Trigger{Pattern: "commit", Nth: 1}}, 40*sec)
	add(sim.Fault{Kind: sim.CutReply, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.Kill, Target: sim.TargetAll, Before: &sim.Trigger{Pattern: "simrun.ledger", Nth: 1}, For: 5 * sec}, 40*sec)
	add(sim.Fault{Kind: sim.CancelStatement, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.IdleTimeout, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.Recycle, Target: sim.TargetLeader}, 25*sec)
	add(sim.Fault{Kind: sim.ClockSkew, Target: sim.TargetLeader, For: 10 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.ClockJump, Target: sim.TargetStandby}, 25*sec)
	add(sim.Fault{Kind: sim.PostgresRestart}, 40*sec)
	add(sim.Fault{Kind: sim.ConnectionsExhausted, For: 8 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.PoolerRestart}, 40*sec)
	add(sim.Fault{Kind: sim.PoolerNoise, For: 8 * sec}, 25*sec)
	add(sim.Fault{Kind: sim.PoolerReload, For: 40 * sec}, 60*sec)
	add(sim.Fault{Kind: sim.Stop, Target: sim.TargetLeader, For: 5 * sec}, 30*sec)
	add(sim.Fault{Kind: sim.RollingDeploy, For: 3 * sec}, 40*sec)
	p.Horizon = at + 40*sec
	return p
}

func everyFaultRun(route sim.Route) sim.Run {
	name := replica.Reference
	if !route.Stable() {
		name = "naive-pooled" // the reference does not lead there, and most faults would hit nobody
	}
	impl, _ := replica.ByName(name)
	rows := 60
	if route == sim.PgBouncerStatement {
		rows = 1 // there is no transaction to publish in, and each is tried again and again on a new connection
	}
	return sim.Run{
		Scenario: sim.Scenario{Name: "every-fault", Replicas: 3, Duration: everyFault().Horizon, Workload: sim.Workload{Rows: rows, Every: 13 * sec}},
		Plan:     everyFault(), Route: route, Impl: impl, Seed: 1,
	}
}

// TestEveryFault carries one plan with every fault out again and again on every route: always the same history.
func TestEveryFault(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	for _, route := range sim.Routes {
		if *routeFlag != "" && string(route) != *routeFlag {
			continue
		}
		t.Run(string(route), func(t *testing.T) {
			run := everyFaultRun(route)
			if *kindFlag != "" {
				run.Plan.Faults = slices.DeleteFunc(run.Plan.Faults, func(f sim.Fault) bool { return string(f.Kind) != *kindFlag })
				for i := range run.Plan.Faults {
					run.Plan.Faults[i].At = sim.Duration(20+50*i) * sec
				}
				run.Plan.Horizon = sim.Duration(60+50*len(run.Plan.Faults)) * sec
			}
			began := time.Now()
			first, err := carry(t, e, run)
			for _, x := range first.Events {
				if x.Kind == sim.EvFault && x.Op != sim.OpPlanned && x.Op != sim.OpHealed {
					t.Log(x.At, run.Plan.Faults[x.Fault-1].Kind, x.Op, x.Targets, x.Text, x.Reason)
				}
			}
			if *showFlag {
				for _, l := range lines(first) {
					fmt.Fprintln(os.Stderr, l)
				}
			}
			require.NoError(t, err)
			for range *againFlag - 1 {
				h, err := carry(t, e, run)
				require.NoError(t, err)
				same(t, first, h)
			}
			t.Logf("%s a run, %d elections, %+v", time.Since(began)/time.Duration(*againFlag), first.Count(sim.Elections), e.Stats())
			for _, v := range invariants.Check([]string{"one-leader", "no-duplicate-publish", "no-lost-publish"}, first) {
				if v.Status != sim.StatusHeld {
					t.Logf("%s %s %s %v", v.Invariant, v.Status, v.Reason, v.Violations)
				}
			}
		})
	}
}

// TestToxiproxyChangesNothing carries the same plans out with and without a proxy on the way: the same histories.
func TestToxiproxyChangesNothing(t *testing.T) {
	want := map[sim.Route]*sim.History{}
	for _, proxied := range []bool{false, true} { // one after the other, since the plan restarts the server
		e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t), Toxiproxy: proxied})
		require.NoError(t, err)
		for _, route := range sim.Routes {
			h, err := carry(t, e, everyFaultRun(route))
			require.NoError(t, err)
			if !proxied {
				want[route] = h
				continue
			}
			same(t, want[route], h)
		}
		require.Equal(t, proxied, e.Stats().Proxied > 0, "whether the way led through the proxy")
		require.NoError(t, e.Close())
	}
}

package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

var delays = [][]sim.Delay{{{Req: 3 * ms, Resp: 4 * ms}, {Req: 1 * ms, Resp: 9 * ms}}, {{Req: 5 * ms, Resp: 2 * ms}}, {{Req: 11 * ms, Resp: 6 * ms}}}

func TestLeaseRuns(t *testing.T) {
	e := newEngine(t)
	run := world1(2, sim.Plan{Phase: []sim.Duration{10 * ms, 500 * ms}, Delays: delays}, leaseImpl())
	h := twice(t, e, run)
	require.Equal(t, 5, h.Count(sim.Publishes), text(h))
}

// basic is a plan with the first faults.
func basic() sim.Plan {
	return sim.Plan{
		Phase: []sim.Duration{10 * ms, 500 * ms, 770 * ms}, Delays: delays, Picks: []int{1, 0, 2, 1, 1, 0, 3}, Horizon: 180 * sec,
		Faults: []sim.Fault{
			{Kind: sim.Kill, Target: sim.TargetLeader, At: 20 * sec, For: 10 * sec},
			{Kind: sim.Pause, Target: sim.TargetLeader, At: 40 * sec, For: 45 * sec},
			{Kind: sim.Disconnect, Target: sim.TargetLeader, At: 100 * sec},
			{Kind: sim.TerminateBackend, Target: sim.TargetLeader, At: 120 * sec},
		},
	}
}

func TestBasicFaults(t *testing.T) {
	for _, route := range sim.Routes {
		t.Run(string(route), func(t *testing.T) { basicFaults(t, route) })
	}
}

func basicFaults(t *testing.T, route sim.Route) {
	e := newEngine(t)
	run := world1(3, basic(), leaseImpl())
	run.Route = route
	began := time.Now()
	first, err := carry(t, e, run)
	require.NoError(t, err)
	for range 10 {
		h, err := carry(t, e, run)
		require.NoError(t, err)
		same(t, first, h)
	}
	t.Log(time.Since(began)/11, e.Stats())
	if !route.Stable() {
		require.GreaterOrEqual(t, first.Count(sim.FaultsApplied), 3, text(first))
		return
	}
	require.Equal(t, 4, first.Count(sim.FaultsApplied), text(first))
	require.Greater(t, first.Count(sim.Elections), 3, text(first))
}

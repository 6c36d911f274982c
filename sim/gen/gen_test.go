package gen

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

func scenario() sim.Scenario {
	sec := func(n int) sim.Duration { return sim.Duration(n) * sim.Duration(time.Second) }
	return sim.Scenario{
		Name: "t", Replicas: 3, Duration: sec(60),
		Faults: []sim.FaultSpec{
			{Kind: sim.Pause, Target: sim.TargetLeader, Count: sim.IntRange{From: 0, To: 3}, Window: sim.Range{From: sec(10), To: sec(20)}, For: sim.Range{From: sec(1), To: sec(9)}},
			{Kind: sim.Kill, Target: sim.TargetStandby, Weight: 5, Window: sim.Range{From: sec(5), To: sec(25)}},
		},
	}
}

func TestPlanDependsOnSeedScenarioAndIndexOnly(t *testing.T) {
	s := scenario()
	a, b := Plan(s, 1, 4), Plan(s, 1, 4)
	require.Equal(t, a, b)
	other := s
	other.Shows, other.Routes, other.Expect = "other words", []sim.Route{sim.Direct}, []sim.Expect{{Invariant: "x"}}
	require.Equal(t, a, Plan(other, 1, 4), "words, routes and expectations change no plan")

	distinct := map[string]bool{}
	for seed := range uint64(3) {
		for i := range 50 {
			distinct[Plan(s, seed, i).Key()] = true
		}
	}
	require.Greater(t, len(distinct), 140)
}

func TestPlanKeepsToTheScenario(t *testing.T) {
	s := scenario()
	kills, counts := 0, map[int]bool{}
	for i := range 300 {
		p := Plan(s, 7, i)
		require.Len(t, p.Phase, 3)
		require.NotEqual(t, p.Phase[0], p.Phase[1])
		pauses := 0
		for j, f := range p.Faults {
			if j > 0 {
				require.LessOrEqual(t, p.Faults[j-1].At, f.At, "in order of time")
			}
			switch f.Kind {
			case sim.Pause:
				pauses++
				require.True(t, f.At >= s.Faults[0].Window.From && f.At <= s.Faults[0].Window.To, f)
				require.True(t, f.For >= s.Faults[0].For.From && f.For <= s.Faults[0].For.To, f)
			case sim.Kill:
				kills++
			}
		}
		counts[pauses] = true
	}
	require.Equal(t, map[int]bool{0: true, 1: true, 2: true, 3: true}, counts)
	require.InDelta(t, 150, kills, 60, "weight 5 is in about half of the plans")
}

func TestPlanSurvivesJSON(t *testing.T) {
	p := Plan(scenario(), 3, 3)
	b, err := json.Marshal(p)
	require.NoError(t, err)
	var q sim.Plan
	require.NoError(t, json.Unmarshal(b, &q))
	require.Equal(t, p.Key(), q.Key())
}

// A shrink must start from the very plan that failed, and end with what matters only.
func TestShrink(t *testing.T) {
	s := scenario()
	long := func(p sim.Plan) bool {
		for _, f := range p.Faults {
			if f.Kind == sim.Pause && f.For >= sim.Duration(5*time.Second) {
				return true
			}
		}
		return false
	}
	shrunk := 0
	for i := range 30 {
		p := Plan(s, 1, i)
		if !long(p) {
			continue
		}
		first := ""
		got := Shrink(context.Background(), Random, s, 1, i, func(p sim.Plan) bool {
			if first == "" {
				first = p.Key()
			}
			return long(p)
		})
		require.Equal(t, p.Key(), first, "the first plan tried is the one that failed")
		require.True(t, got.Found)
		require.Less(t, got.Runs, 400)
		require.Len(t, got.Plan.Faults, 1)
		require.Equal(t, sim.Fault{Kind: sim.Pause, Target: sim.TargetLeader, At: sim.Duration(10 * time.Second), For: sim.Duration(5 * time.Second)}, got.Plan.Faults[0])
		require.Empty(t, got.Plan.Picks)
		shrunk++
	}
	require.Greater(t, shrunk, 5)
}

func TestShrinkOfAPlanThatHolds(t *testing.T) {
	got := Shrink(context.Background(), Random, scenario(), 1, 0, func(sim.Plan) bool { return false })
	require.False(t, got.Found)
	require.Equal(t, 1, got.Runs)
}

func TestShrinkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	got := Shrink(ctx, Random, scenario(), 1, 0, func(sim.Plan) bool { cancel(); return true })
	require.True(t, got.Found)
	require.Equal(t, 1, got.Runs)
}

// By priorities one replica is undelayed, the delays of the others differ, and a change point puts a replica last.
func TestPCT(t *testing.T) {
	s := scenario()
	changed, first := 0, map[int]bool{}
	for i := range 100 {
		p := Draw(PCT, s, 1, i)
		require.Equal(t, p.Key(), Draw(PCT, s, 1, i).Key())
		require.Len(t, p.Delays, 3)
		starts := map[sim.Duration]int{}
		for r, d := range p.Delays {
			require.Len(t, d, pctRequests)
			starts[d[0].Req]++
			if d[0].Req == 0 {
				first[r] = true
			}
			if d[0] != d[pctRequests-1] {
				changed++
				require.GreaterOrEqual(t, d[pctRequests-1].Req, sim.Duration(3*pctStep), "it falls below all others")
			}
		}
		require.GreaterOrEqual(t, len(starts), 2)
	}
	require.Positive(t, changed)
	require.Len(t, first, 3, "each replica is first in some plan")
}

// What fails only for one fault of three, and only in the second half of its window, becomes that fault at a round time, whatever the
// seed; a time that the scenario does not allow is never tried.
func TestReduce(t *testing.T) {
	t.Parallel()
	secs := func(s float64) sim.Duration { return sim.Duration(s * float64(time.Second)) }
	s := sim.Scenario{Name: "reduce", Replicas: 3, Duration: secs(70), Faults: []sim.FaultSpec{
		{Kind: sim.Pause, Target: sim.TargetLeader, Window: sim.Range{From: secs(11), To: secs(33)}, For: sim.Range{From: secs(4.2), To: secs(28)}},
		{Kind: sim.Kill, Target: "2", Window: sim.Range{From: secs(1), To: secs(60)}},
	}}
	p := sim.Plan{V: 1, Horizon: s.Duration, Faults: []sim.Fault{
		{Kind: sim.Kill, Target: "2", At: secs(3.1)},
		{Kind: sim.Pause, Target: sim.TargetLeader, At: secs(24.3), For: secs(4.7)},
		{Kind: sim.Kill, Target: "2", At: secs(41.7)},
	}}
	runs := 0
	fails := func(p sim.Plan) bool {
		runs++
		for _, f := range p.Faults {
			require.GreaterOrEqual(t, f.At, secs(1))
			if f.Kind == sim.Pause {
				require.GreaterOrEqual(t, f.For, secs(4.2))
				require.LessOrEqual(t, f.At, secs(33))
				if f.At > secs(21) {
					return true
				}
			}
		}
		return false
	}
	got := Reduce(t.Context(), s, p, fails)
	require.Equal(t, []sim.Fault{{Kind: sim.Pause, Target: sim.TargetLeader, At: secs(25), For: secs(10)}}, got.Faults)
	require.LessOrEqual(t, runs, 8, "a live run takes seconds")
}

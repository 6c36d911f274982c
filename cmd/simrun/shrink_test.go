package main

import (
	"context"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/stretchr/testify/require"
)

// Where the smallest schedule needs all replicas, others of its kind are tried with fewer: what fails there may begin at another phase.
func TestSchedulesWithFewerReplicasAreDrawnAnew(t *testing.T) {
	t.Parallel()
	s, ok := scenarios.ByName("kill-leader")
	require.True(t, ok)
	require.Greater(t, s.Replicas, 2)
	fewer := s
	fewer.Replicas = 2
	j := &job{task: task{Scenario: s, Strategy: "random", Seed: 1}}
	smallest := gen.Plan(s, 1, 0)
	late := func(p sim.Plan) bool { return p.Phase[1].D() > 100*time.Millisecond }

	ce := &sim.Counterexample{Scenario: s, Plan: smallest}
	require.True(t, j.drawAnew(context.Background(), ce, fewer, late))
	require.Len(t, ce.Plan.Phase, 2)
	require.True(t, late(ce.Plan))
	require.LessOrEqual(t, ce.Plan.Phase[1].D(), 110*time.Millisecond, "shrunk")

	ce = &sim.Counterexample{Scenario: s, Plan: smallest}
	require.False(t, j.drawAnew(context.Background(), ce, fewer, func(sim.Plan) bool { return false }))
	require.Equal(t, smallest, ce.Plan)

	ce.Plan.Faults = nil // it fails without a fault: with one it is not smaller
	require.False(t, j.drawAnew(context.Background(), ce, fewer, func(p sim.Plan) bool { return len(p.Faults) > 0 }))
	require.Len(t, ce.Plan.Phase, s.Replicas)
}

package virtual_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

var (
	plansFlag = flag.Int("plans", 1, "plans of each scenario")
	againFlag = flag.Int("again", 2, "runs of each plan")
	onlyFlag  = flag.String("only", "", "one scenario")
	routeFlag = flag.String("onroute", "", "one route")
	implFlag  = flag.String("impl", "reference", "implementation")
	tiesFlag  = flag.Bool("ties", false, "no delays, everybody starts at once, faults on whole seconds: as much as possible is due at the same instant")
	showFlag  = flag.Bool("show", false, "print the histories")
)

func carry(t *testing.T, e *virtual.Engine, run sim.Run) (*sim.History, error) {
	t.Helper()
	var buf bytes.Buffer
	rec, err := sim.NewRecorder(&buf, e.Header(run))
	require.NoError(t, err)
	runErr := e.Run(context.Background(), run, rec)
	h, err := rec.Close()
	require.NoError(t, err)
	return h, runErr
}

func lines(h *sim.History) (out []string) {
	for _, e := range h.Events {
		b, _ := json.Marshal(e)
		out = append(out, string(b))
	}
	return out
}

// same fails at the first difference of two histories.
func same(t *testing.T, a, b *sim.History) {
	t.Helper()
	if a.Digest() == b.Digest() {
		return
	}
	bySeq := func(x, y sim.Event) int { return x.Seq - y.Seq } // the order in which they happened shows the cause
	slices.SortFunc(a.Events, bySeq)
	slices.SortFunc(b.Events, bySeq)
	la, lb := lines(a), lines(b)
	for i := range la {
		if i >= len(lb) || la[i] != lb[i] {
			for _, l := range la[max(0, i-15):i] {
				t.Log(l)
			}
			from := func(l []string) string { return strings.Join(l[min(i, len(l)):min(i+5, len(l))], "\n") }
			require.Failf(t, "the histories differ", "at event %d of %d and %d:\n%s\n--- and\n%s", i+1, len(la), len(lb), from(la), from(lb))
		}
	}
}

// TestReference runs the reference through every scenario and route: the same plan gives the same history, and no
// invariant is violated.
func TestReference(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	impl, ok := replica.ByName(*implFlag)
	require.True(t, ok)
	for _, s := range scenarios.All() {
		if *onlyFlag != "" && s.Name != *onlyFlag {
			continue
		}
		for _, route := range s.Routes {
			if *routeFlag != "" && string(route) != *routeFlag {
				continue
			}
			t.Run(s.Name+"/"+string(route), func(t *testing.T) {
				began := time.Now()
				for i := range *plansFlag {
					run := sim.Run{Scenario: s, Plan: gen.Plan(s, 1, i), Route: route, Impl: impl, Seed: 1, Schedule: i}
					if *tiesFlag {
						run.Plan = tied(run.Plan)
					}
					first, err := carry(t, e, run)
					if *showFlag || err != nil {
						for _, l := range lines(first) {
							fmt.Fprintln(os.Stderr, l)
						}
					}
					require.NoError(t, err)
					for range *againFlag - 1 {
						again, err := carry(t, e, run)
						require.NoError(t, err)
						same(t, first, again)
					}
					for _, v := range invariants.Check(s.Invariants, first) {
						if v.Status != sim.StatusHeld {
							t.Logf("plan %d: %s %s %s %v", i, v.Invariant, v.Status, v.Reason, v.Violations)
						}
					}
				}
				t.Logf("%s a run, %+v", time.Since(began)/time.Duration(*plansFlag**againFlag), e.Stats())
			})
		}
	}
}

// A lock that a flawed implementation has stranded in a pool is gone in the next run, on whichever route.
func TestNothingStaysFromTheRunBefore(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	play := func(name, impl string, route sim.Route) *sim.History {
		s, ok := scenarios.ByName(name)
		require.True(t, ok)
		i, ok := replica.ByName(impl)
		require.True(t, ok)
		h, err := carry(t, e, sim.Run{Scenario: s, Plan: gen.Plan(s, 1, 0), Route: route, Impl: i, Seed: 1})
		require.NoError(t, err)
		return h
	}
	alone := play("steady", "reference", sim.Direct)
	require.Positive(t, play("two-leaders-pooler", "naive-pooled", sim.PgBouncerTransaction).Count(sim.Elections))
	same(t, alone, play("steady", "reference", sim.Direct))
}

// What a run leaves behind in the catalog makes the next one start from a new database, behind the same pooler.
func TestTwoRunsThatLeaveSomethingInThePool(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	s, ok := scenarios.ByName("pooler-transaction-idle")
	require.True(t, ok)
	i, ok := replica.ByName("runbook-probe")
	require.True(t, ok)
	for range 3 {
		h, err := carry(t, e, sim.Run{Scenario: s, Plan: gen.Plan(s, 1, 0), Route: sim.PgBouncerTransaction, Impl: i, Seed: 1})
		require.NoError(t, err)
		require.Positive(t, h.Count(sim.Elections))
	}
}

// tied is the plan with as much as possible at the same instant.
func tied(p sim.Plan) sim.Plan {
	p.Delays, p.Phase = nil, nil
	p.Faults = slices.Clone(p.Faults)
	for i := range p.Faults {
		f := &p.Faults[i]
		f.At, f.For = f.At/sec*sec, f.For/sec*sec
	}
	return p
}

// A task is slow for just as long as the scheduler allows a transaction to take, and no statement takes any time: what is due at the same
// instant would be Go's choice.
func TestSlowTaskUntilTheDeadline(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	s, ok := scenarios.ByName("slow-task")
	require.True(t, ok)
	impl, ok := replica.ByName(replica.Reference)
	require.True(t, ok)
	run := sim.Run{Scenario: s, Plan: sim.Plan{V: sim.PlanVersion, Horizon: s.Duration, Phase: []sim.Duration{150 * ms, 7 * ms, 164 * ms}, Faults: []sim.Fault{
		{Kind: sim.SlowTask, Target: sim.TargetLeader, At: 11 * sec, For: 5 * sec},
	}}, Route: sim.Direct, Impl: impl, Seed: 1}
	first, err := carry(t, e, run)
	require.NoError(t, err)
	require.Contains(t, strings.Join(lines(first), "\n"), "infrastructure", "the transaction took too long")
	for range 20 {
		again, err := carry(t, e, run)
		require.NoError(t, err)
		same(t, first, again)
	}
}

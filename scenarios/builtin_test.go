package scenarios

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/replica"
)

func knownImpls() (names []string) {
	for _, i := range replica.All() {
		names = append(names, i.Name)
	}
	return names
}

func knownInvariants() (names []string) {
	for _, i := range invariants.All() {
		names = append(names, i.Name)
	}
	return names
}

func TestBuiltinScenariosAreSound(t *testing.T) {
	files, err := fs.Glob(files, "*.yaml")
	require.NoError(t, err)
	require.Len(t, files, len(Names()), "every file is in the list, and every name has a file")
	for _, name := range Names() {
		src, ok := Source(name)
		require.True(t, ok)
		s, err := Parse(name+".yaml", src, Implementations(knownImpls()...), Invariants(knownInvariants()...))
		require.NoError(t, err)
		require.Equal(t, name, s.Name, "a scenario is called like its file")
		require.NotEmpty(t, s.Promise, name)
		require.NotEmpty(t, s.SeedDocument, name)
		require.NotEmpty(t, s.Require, "nothing passes empty: %s", name)
		for _, r := range s.Routes {
			for _, impl := range append([]string{"reference"}, s.Impls...) {
				require.NotEmpty(t, s.RequireFor(impl, r), "nothing passes empty: %s, %s, %s", name, impl, r)
			}
			require.Empty(t, s.ExpectFor("reference", r), "the reference is expected to hold: %s", name)
		}
		for i, f := range s.Faults {
			if f.Target == sim.TargetAll && (f.Before != nil || f.After != nil) {
				continue // it waits for a statement, whoever sends it: the first election may be what it is about
			}
			require.GreaterOrEqual(t, f.Window.From.Seconds(), 10.0, "%s: fault %d strikes before everybody has had time to elect", name, i+1)
		}
	}
}

func TestEveryTwinIsExpectedSomewhere(t *testing.T) {
	caught := map[string]bool{}
	for _, s := range All() {
		for _, e := range s.Expect {
			caught[e.Impl] = true
		}
	}
	for _, impl := range []string{"naive-pooled", "runbook-probe", "no-heartbeat", "no-fence"} {
		require.True(t, caught[impl], impl)
	}
}

func TestSuites(t *testing.T) {
	require.Equal(t, []string{"core"}, Suites())
	require.NotEmpty(t, Suite("core"))
	require.LessOrEqual(t, len(Suite("core")), len(All()))
	require.Empty(t, Suite("nightly"))
	_, ok := ByName("kill")
	require.False(t, ok)
	_, ok = Source("../doc")
	require.False(t, ok)
	s, ok := ByName("two-leaders-pooler")
	require.True(t, ok)
	require.Equal(t, []string{"one-leader", "probe"}, s.ExpectFor("naive-pooled", sim.PgBouncerTransaction))
	require.True(t, slices.Contains(s.Impls, "reference"))
}

func TestResolve(t *testing.T) {
	s, ok := ByName("pause-leader-terminated")
	require.True(t, ok)
	r := Resolve(s)
	intervals := sim.DefaultIntervals
	intervals.Tick = sim.Duration(2e9)
	require.Equal(t, intervals, r.Intervals)
	require.Equal(t, []string{"reference"}, r.Impls)
	require.Equal(t, "reference", r.Impl)
	require.Equal(t, sim.Range{To: sim.DefaultIntervals.Retry}, r.Phase)
	require.Equal(t, DefaultPoolSize, r.Pool.Size)
	require.Equal(t, 10, r.Faults[0].Weight)
	require.Equal(t, sim.IntRange{From: 1, To: 1}, r.Faults[1].Count)
	require.Zero(t, s.Faults[0].Weight, "the scenario given is left alone")
	require.Equal(t, r, Resolve(r), "resolving twice changes nothing")

	with := Resolve(sim.Scenario{Impl: "no-fence", Faults: []sim.FaultSpec{{Before: &sim.TriggerSpec{Pattern: "commit"}}}})
	require.Equal(t, []string{"no-fence"}, with.Impls)
	require.Equal(t, sim.IntRange{From: 1, To: 1}, with.Faults[0].Before.Nth)
}

func TestQuietTail(t *testing.T) {
	require.Equal(t, 25.0, QuietTail(sim.Intervals{}).Seconds())
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/stretchr/testify/require"
)

// A new scenario is valid as it stands, and runs.
func TestNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, errs, status := simrun(t, dir, "new", "my-kill")
	require.Zero(t, status, out+errs)
	require.Contains(t, out, "simrun run my-kill.yaml")
	out, errs, status = simrun(t, dir, "validate", "my-kill.yaml")
	require.Zero(t, status, out+errs)
	out, errs, status = simrun(t, dir, "run", "my-kill.yaml", "--schedules", "1", "--seed", "1")
	require.Zero(t, status, out+errs)

	_, errs, status = simrun(t, dir, "run", "my-kil.yaml")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, `there is no file my-kil.yaml (did you mean "my-kill.yaml"?)`)

	// The lines that are commented out are valid as well.
	b, err := os.ReadFile(filepath.Join(dir, "my-kill.yaml"))
	require.NoError(t, err)
	lines := strings.Split(string(b), "\n")
	freed := 0
	for i, l := range lines {
		for _, field := range []string{"intervals:", "pool:", "- {kind: terminate", "- {kind: cut", "expect:", "  - {invariant"} {
			if strings.HasPrefix(l, "# "+field) {
				lines[i] = strings.TrimPrefix(l, "# ")
				if strings.HasPrefix(field, "- {kind") {
					lines[i] = "  " + lines[i]
				}
				freed++
			}
		}
	}
	require.Equal(t, 6, freed)
	s, err := scenarios.Parse("x.yaml", []byte(strings.Join(lines, "\n")), scenarios.Implementations(implNames()...), scenarios.Invariants(invariantNames()...))
	require.NoError(t, err)
	require.Equal(t, sim.DefaultIntervals, s.Intervals, "the defaults that it shows are those there are")
	require.Len(t, s.Faults, 3)

	_, errs, status = simrun(t, dir, "new", "my-kill")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "--force")
	_, _, status = simrun(t, dir, "new", "my-kill", "--force")
	require.Zero(t, status)
	for _, args := range [][]string{{"new"}, {"new", "My Kill"}, {"new", "a", "b"}, {"new", "--from", "nowhere.json"}} {
		_, errs, status = simrun(t, dir, args...)
		require.Equal(t, exitUsage, status, args)
		require.NotContains(t, errs, "goroutine")
	}
	_, _, status = simrun(t, dir, "new", "x", "-o", "/proc/version/x.yaml")
	require.Equal(t, exitEnvironment, status)
	out, _, status = simrun(t, dir, "new", "x", "-o", "-")
	require.Zero(t, status)
	require.Contains(t, out, "\nname: x\n")
}

// A counterexample becomes a scenario whose first schedule is its plan, and which therefore fails as it did, whatever the seed.
func TestNewFromACounterexample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A fault is in its smallest schedule, and the scenario expects what it finds.
	_, errs, status := simrun(t, dir, "run", "kill-leader", "--impl", "slow-retry", "--seed", "1", "--no-shrink", "--confirm", "0", "--workers", "1")
	require.Zero(t, status, errs)
	latest := func(pattern string) string {
		file, err := filepath.EvalSymlinks(mustGlob(t, filepath.Join(dir, "simrun-out", "latest", "counterexamples", pattern))[0])
		require.NoError(t, err)
		return file
	}
	expected := latest("*.failover.json")
	// This one nobody expects.
	mine(t, dir, "")
	_, errs, status = simrun(t, dir, "run", "mine.yaml", "--seed", "1", "--no-shrink", "--confirm", "0", "--workers", "1")
	require.Equal(t, exitViolated, status, errs)
	unexpected := latest("*.json")
	for _, command := range []string{"run", "explain", "validate"} { // an easy slip, and one sentence
		_, errs, status = simrun(t, dir, command, unexpected)
		require.Equal(t, exitUsage, status, errs)
		require.Contains(t, errs, "is a counterexample and no scenario: carry it out with simrun replay FILE")
		require.NotContains(t, errs, "unknown field")
	}

	for file, want := range map[string]int{expected: exitOK, unexpected: exitViolated} {
		ce, err := loadCounterexample(file)
		require.NoError(t, err)
		out, errs, status := simrun(t, dir, "new", "--from", file)
		require.Zero(t, status, out+errs)
		name := ce.Scenario.Name + "-" + ce.Invariant + ".yaml"
		require.Contains(t, out, name)
		out, errs, status = simrun(t, dir, "validate", name)
		require.Zero(t, status, out+errs)
		s, err := loadScenario(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, ce.Plan.Key(), gen.Plan(*s, 12345, 0).Key())
		require.NotEqual(t, ce.Plan.Key(), gen.Plan(*s, 12345, 1).Key())

		out, errs, status = simrun(t, dir, "run", name, "--seed", "99", "--confirm", "0", "--workers", "1")
		require.Equal(t, want, status, out+errs)
		e := result(t, dir).Scenarios[0]
		require.Equal(t, 1, e.Schedules, "the plan itself breaks it")
		again, err := loadCounterexample(filepath.Join(dir, "simrun-out", "latest", e.Counterexamples[0].File))
		require.NoError(t, err)
		require.Equal(t, ce.Plan.Key(), again.Plan.Key(), "it is the smallest already")
		require.Equal(t, ce.Text, again.Text)
	}
}

// Whatever is in a counterexample, what is written is a valid scenario or nothing.
func TestPromote(t *testing.T) {
	t.Parallel()
	base := sim.Counterexample{
		V: sim.CounterexampleVersion, Engine: "live", Route: sim.Direct, Impl: "no-fence", Invariant: "one-leader", Text: "it \x1b[31m\nfailed: # so",
		Scenario: sim.Scenario{Name: "pause-leader", Replicas: 3, Routes: sim.Routes, Duration: 1e11, Invariants: []string{"one-leader", "failover"}, Pool: sim.Pool{Size: 3}},
		Plan: sim.Plan{
			V: sim.PlanVersion, Horizon: 1e11, Picks: []int{0, 2}, Phase: []sim.Duration{0, 7e6}, Delays: [][]sim.Delay{{{Req: 1e6}}, {}},
			Faults: []sim.Fault{
				{Kind: sim.Pause, Target: "leader", At: 2e10, For: 1e10},
				{Kind: sim.CutReply, Target: "2", At: 0, After: &sim.Trigger{Pattern: `it's "COMMIT"`, Nth: 3}},
				{Kind: sim.PostgresRestart, At: 2.5e10},
			},
		},
	}
	text, name, err := promote(base, "")
	require.NoError(t, err)
	require.Equal(t, "pause-leader-one-leader", name)
	require.NotContains(t, text, "\x1b")
	require.Contains(t, text, "--engine live")
	_, _, err = promote(base, "another")
	require.NoError(t, err)

	for _, spoil := range []func(*sim.Counterexample){
		func(c *sim.Counterexample) { c.Plan.Faults[0].Target = "\x1b[31m" },
		func(c *sim.Counterexample) { c.Plan.Faults[1].After.Nth = 0 },
		func(c *sim.Counterexample) { c.Plan.Faults[2].At = 9.9e10 },
		func(c *sim.Counterexample) { c.Impl = "nobody" },
		func(c *sim.Counterexample) { c.Plan.Delays[0][0].Resp = -1 },
	} {
		b, err := json.Marshal(base)
		require.NoError(t, err)
		var c sim.Counterexample
		require.NoError(t, json.Unmarshal(b, &c))
		spoil(&c)
		_, _, err = promote(c, "")
		require.Error(t, err)
	}
}

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// What failed, and nothing else, runs again: with its seed, its route and implementation, the failing plan first, the file as it is now; until
// nothing has failed.
func TestLastFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, errs, status := simrun(t, dir, "run", "--last-failed")
	require.Equal(t, exitUsage, status, "there is no last run")
	require.Contains(t, errs, "simrun-out/latest")

	mine(t, dir, "")
	quick := []string{"--schedules", "2", "--confirm", "0", "--workers", "1"}
	out, errs, status := simrun(t, dir, append([]string{"run", "steady", "mine.yaml", "--seed", "7"}, quick...)...)
	require.Equal(t, exitViolated, status, out+errs)
	first := result(t, dir)
	require.Len(t, first.Scenarios, 3)

	out, errs, status = simrun(t, dir, append([]string{"run", "--last-failed"}, quick...)...)
	require.Equal(t, exitViolated, status, out+errs)
	require.Contains(t, out, "seed 7 ")
	require.Contains(t, out, "again: 1 of the last run's 3")
	again := result(t, dir)
	require.Len(t, again.Scenarios, 1)
	e := again.Scenarios[0]
	require.Equal(t, []string{"mine", "mine.yaml", "naive-pooled", "virtual"}, []string{e.Name, e.File, e.Impl, e.Engine})
	require.Equal(t, sim.PgBouncerTransaction, e.Route)
	require.Equal(t, 1, e.Past, "the plan that failed is tried first")
	require.Equal(t, 1, e.Schedules, "and it is enough")
	require.Equal(t, -1, e.Verdicts[1].Violations[0].Schedule)

	mine(t, dir, "expect: [{invariant: one-leader}]\n") // this mends it
	out, errs, status = simrun(t, dir, append([]string{"run", "--last-failed"}, quick...)...)
	require.Zero(t, status, out+errs)

	folders := mustGlob(t, filepath.Join(dir, "simrun-out", "*"))
	out, _, status = simrun(t, dir, "run", "--last-failed")
	require.Equal(t, exitNothing, status)
	require.Contains(t, out, "\nexit 5: nothing failed in simrun-out/latest\nDONE 0 scenarios")
	require.Equal(t, folders, mustGlob(t, filepath.Join(dir, "simrun-out", "*")), "no folder for nothing")
}

// A past plan is carried out with as many replicas as it failed with, and its counterexample says so.
func TestAPastPlanKeepsItsReplicas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine(t, dir, "")
	quick := []string{"--schedules", "1", "--seed", "1", "--confirm", "0", "--workers", "1"}
	_, _, status := simrun(t, dir, append([]string{"run", "mine.yaml", "--replicas", "4"}, quick...)...)
	require.Equal(t, exitViolated, status)
	require.Equal(t, 2, result(t, dir).Scenarios[0].Counterexamples[0].Replicas, "shrunk")
	_, _, status = simrun(t, dir, append([]string{"run", "--last-failed", "--replicas", "5"}, quick...)...)
	require.Equal(t, exitViolated, status)
	e := result(t, dir).Scenarios[0]
	require.Equal(t, 1, e.Past)
	require.Equal(t, 2, e.Counterexamples[0].Replicas)
	ce, err := loadCounterexample(filepath.Join(dir, "simrun-out", "latest", e.Counterexamples[0].File))
	require.NoError(t, err)
	require.Equal(t, 2, ce.Scenario.Replicas)
}

// What ran last must still be there.
func TestScenarioAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine(t, dir, "")
	file := filepath.Join(dir, "mine.yaml")
	c, err := scenarioAgain(sim.Entry{Name: "mine", File: file})
	require.NoError(t, err)
	require.Equal(t, choice{c.Scenario, file}, c)
	_, err = scenarioAgain(sim.Entry{Name: "another", File: file})
	require.ErrorContains(t, err, "holds mine now")
	require.Equal(t, exitUsage, statusOf(err))
	require.NoError(t, os.Remove(file))
	_, err = scenarioAgain(sim.Entry{Name: "mine", File: file})
	require.Equal(t, exitUsage, statusOf(err))
	_, err = scenarioAgain(sim.Entry{Name: "kil-leader"})
	require.ErrorContains(t, err, `did you mean "kill-leader"?`)
	c, err = scenarioAgain(sim.Entry{Name: "kill-leader"})
	require.NoError(t, err)
	require.Empty(t, c.file)
}

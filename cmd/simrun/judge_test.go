package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// A group of histories is judged as a run's entry is: expected violations are told from collateral ones, and must be there.
func TestJudgedTogether(t *testing.T) {
	t.Parallel()
	found := func(names ...string) map[string]bool {
		m := map[string]bool{}
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	for _, c := range []struct {
		name string
		g    judged
		want int
	}{
		{"held", judged{found: found()}, exitOK},
		{"violated", judged{found: found("a")}, exitViolated},
		{"inconclusive", judged{found: found(), inconclusive: true}, exitInconclusive},
		{"violated and inconclusive", judged{found: found("a"), inconclusive: true}, exitViolated},
		{"as expected", judged{expected: []string{"a"}, found: found("a"), whole: true}, exitOK},
		{"collateral", judged{expected: []string{"a"}, found: found("a", "b"), inconclusive: true, whole: true}, exitOK},
		{"only collateral", judged{expected: []string{"a"}, found: found("b")}, exitViolated},
		{"not found in the whole", judged{expected: []string{"a"}, found: found(), whole: true}, exitViolated},
		{"not found in one history", judged{expected: []string{"a"}, found: found()}, exitOK},
	} {
		status, _ := c.g.status()
		require.Equal(t, c.want, status, c.name)
	}
}

func TestJudgePrintsWhatIsExpected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, errs, status := simrun(t, dir, "run", "two-leaders-pooler", "--impl", "naive-pooled", "--seed", "1", "--no-shrink", "--confirm", "0", "--schedules", "2", "--workers", "1")
	require.Zero(t, status, out+errs)
	folder := filepath.Join(dir, "simrun-out", "latest")
	out, errs, status = simrun(t, dir, "judge", folder)
	require.Zero(t, status, out+errs)
	require.Regexp(t, `violated +one-leader +\S+, as expected`, out)
	out, _, status = simrun(t, dir, "judge", folder, "--invariant", "one-leader", "--invariant", "no-churn")
	require.Zero(t, status, out)
	out, _, status = simrun(t, dir, "judge", folder, "--invariant", "no-residue")
	require.NotContains(t, out, "as expected", "it is not among what is judged")
	require.Contains(t, []int{exitOK, exitViolated, exitInconclusive}, status)

	// Once the judge no longer sees it, a results folder says so.
	var b bytes.Buffer
	g := judged{name: "x", expected: []string{"one-leader"}, whole: true, found: map[string]bool{}}
	h, err := readHistoryFile(mustGlob(t, filepath.Join(folder, "histories", "*.jsonl"))[0])
	require.NoError(t, err)
	g.print(&b, "x.jsonl", h, []string{"probe"})
	_, why := g.status()
	require.Equal(t, "expected a violation of one-leader and found none", why)
	require.Contains(t, b.String(), "probe  x.jsonl, besides what was expected")
	require.Equal(t, sim.Route("pgbouncer-transaction"), h.Header.Route)
	require.NoError(t, os.RemoveAll(folder))
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	return files
}

// A live plan that shows its violation now and then is judged by k of n, in no more runs than that takes.
func TestOften(t *testing.T) {
	t.Parallel()
	for outcomes, want := range map[string]bool{"yy": true, "yny": true, "nyy": true, "nn": false, "ynn": false, "nyn": false, "y!": false} {
		ran := 0
		got := often(t.Context(), 2, 3, func() (bool, bool) {
			ran++
			return outcomes[ran-1] == 'y', outcomes[ran-1] != '!'
		})
		require.Equal(t, want, got, outcomes)
		require.Equal(t, len(outcomes), ran, outcomes)
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// Several folders become one page, each of them once, and what is no result is passed over.
func TestReportOfSeveralRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	results := filepath.Join(dir, "simrun-out")
	for name, status := range map[string]string{"20260301T120000Z-1": sim.Passed, "20260302T120000Z-1": sim.FailedEntry} {
		r := sim.Result{Schema: sim.ResultVersion, Seed: 1, Scenarios: []sim.Entry{{Name: "mine", Route: sim.Direct, Impl: "reference", Engine: "virtual", Status: status}}}
		r.StartedAt, _ = time.Parse("20060102T150405Z", strings.TrimSuffix(name, "-1"))
		if status != sim.Passed {
			r.ExitStatus = exitViolated
		}
		b, err := json.Marshal(r)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(results, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(results, name, "result.json"), b, 0o644))
	}
	require.NoError(t, os.Symlink("20260302T120000Z-1", filepath.Join(results, "latest")))
	replay := filepath.Join("simrun-out", "20260303T120000Z-1")
	require.NoError(t, os.Mkdir(filepath.Join(dir, replay), 0o755))

	old, newer := filepath.Join("simrun-out", "20260301T120000Z-1"), filepath.Join("simrun-out", "20260302T120000Z-1")
	out, errs, status := simrun(t, dir, "report", newer, old, filepath.Join("simrun-out", "latest"), replay, "-o", "runs.html")
	require.Zero(t, status, out+errs)
	require.Equal(t, "report: runs.html\n", out)
	require.Contains(t, errs, replay+" has no result.json and is passed over")
	b, err := os.ReadFile(filepath.Join(dir, "runs.html"))
	require.NoError(t, err)
	require.Contains(t, string(b), "<title>FAIL · simrun, 2 runs</title>")
	require.Contains(t, string(b), "The newest run: 1 newly failing")

	out, _, status = simrun(t, dir, "report", newer, filepath.Join("simrun-out", "latest"), "-o", "-")
	require.Zero(t, status)
	require.Contains(t, out, "<title>FAIL · simrun, seed 1</title>", "one run is its own page")
	for _, args := range [][]string{{replay, replay}, {replay}, {"nowhere"}, {old, "nowhere"}, {}} {
		out, errs, status = simrun(t, dir, append([]string{"report"}, args...)...)
		require.Equal(t, exitUsage, status, out+errs)
	}
}

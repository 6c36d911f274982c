package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// In GitHub Actions a violation is an annotation at the line that names the invariant, and the job's summary begins with the replay
// command, after what earlier commands wrote. DONE stays the last line, and --json leaves stdout to the data.
func TestGitHubActions(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--json"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			repository := t.TempDir()
			dir := filepath.Join(repository, "ci")
			require.NoError(t, os.Mkdir(dir, 0o755))
			mine(t, dir, "")
			summary := filepath.Join(repository, "summary.md")
			require.NoError(t, os.WriteFile(summary, []byte("from before\n"), 0o644))
			out, errs, status := simrunWith(t, dir, []string{"GITHUB_ACTIONS=true", "GITHUB_WORKSPACE=" + repository, "GITHUB_STEP_SUMMARY=" + summary},
				append([]string{"run", "mine.yaml", "--schedules", "1", "--seed", "1", "--no-shrink", "--confirm", "0", "--workers", "1"}, flags...)...)
			require.Equal(t, exitViolated, status, out+errs)
			talk := out
			if flags != nil {
				talk = errs
				require.True(t, strings.HasPrefix(out, "{"), out)
				require.NotContains(t, out, "::error")
			}
			require.Contains(t, talk, "\n::error file=ci/mine.yaml,line=9,title=mine%2C pgbouncer-transaction%2C naive-pooled::one-leader violated: ")
			require.Equal(t, 1, strings.Count(talk, "::error"))
			require.Contains(t, lastLine(talk), "DONE 1 scenarios")
			b, err := os.ReadFile(summary)
			require.NoError(t, err)
			require.Regexp(t, "^from before\n```sh\n[^\n]*simrun replay simrun-out/[^\n]*one-leader.json\n```\n", string(b))
		})
	}
}

// A summary that cannot be written is said, and changes no verdict; outside of GitHub nothing of it is seen.
func TestGitHubSummaryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine(t, dir, "expect: [{invariant: one-leader}]\n")
	args := []string{"run", "mine.yaml", "--schedules", "1", "--seed", "1", "--no-shrink", "--confirm", "0", "--workers", "1"}
	out, errs, status := simrunWith(t, dir, []string{"GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY=/proc/version/x"}, args...)
	require.Zero(t, status, out+errs)
	require.Contains(t, errs, "GitHub is not told everything")
	require.NotContains(t, out, "::error")

	full := filepath.Join(dir, "full.md")
	require.NoError(t, os.WriteFile(full, make([]byte, maxUpload-10), 0o644))
	require.ErrorContains(t, jobSummary(full, nil), "full")
}

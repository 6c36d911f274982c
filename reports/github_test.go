package reports

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/rhysd/actionlint"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

func annotations(t *testing.T, r *sim.Result, where func(sim.Entry, string) Place) []string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Annotations(&b, r, where))
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func TestAnnotations(t *testing.T) {
	r := sample(t).Result
	golden(t, "annotations.txt", []byte(strings.Join(annotations(t, r, func(_ sim.Entry, invariant string) Place {
		if invariant == "one-leader" {
			return Place{"ci/a, b: 100%.yaml", 12}
		}
		return Place{}
	}), "\n")+"\n"))
}

// GitHub drops what comes after the tenth annotation of a step, so there are never more than nine, and the last one counts the rest.
func TestAtMostNineAnnotations(t *testing.T) {
	for n := range 30 {
		r := &sim.Result{ExitStatus: 1}
		for i := range n {
			r.Scenarios = append(r.Scenarios, sim.Entry{Name: fmt.Sprintf("s%d", i), Status: sim.ErrorEntry, Reason: "broken"}, sim.Entry{Name: "fine", Status: sim.Passed})
		}
		got := annotations(t, r, nil)
		require.Len(t, got, max(1, min(n, 9)), n)
		if n > 9 {
			require.Equal(t, fmt.Sprintf("::error title=simrun::and %d more; see the job's summary", n-8), got[8])
			require.NotContains(t, strings.Join(got[:8], ""), "more")
		}
	}
	require.Equal(t, []string{""}, annotations(t, &sim.Result{}, nil), "nothing is wrong")
	require.Equal(t, []string{"::error title=simrun::exit 5: nothing ran"}, annotations(t, &sim.Result{ExitStatus: 5, ExitReason: "nothing ran"}, nil))
}

// No text from outside begins a workflow command of its own, ends a property early, or becomes markup.
func TestGitHubOfHostileText(t *testing.T) {
	evil := "a\n::set-output name=x::y\r::error::z %0A,line=1::\x1b[31m <img src=x> [l](http://x) @all `c` |\n# h www.x.y"
	r := &sim.Result{ExitStatus: 1, ExitReason: evil, Scenarios: []sim.Entry{{
		Name: evil, Route: sim.Route(evil), Impl: evil, Status: sim.FailedEntry, Reason: evil,
		Verdicts:        []sim.EntryVerdict{{Invariant: evil, Status: sim.StatusViolated, Violations: []sim.EntryViolation{{Text: evil, Cause: evil}}}},
		Counterexamples: []sim.CounterSummary{{Invariant: evil, Schedule: []string{evil}, Replay: evil}},
	}, {Name: evil, Status: evil, Reason: evil}}}
	got := annotations(t, r, func(sim.Entry, string) Place { return Place{evil, 3} })
	require.Len(t, got, 2)
	for _, line := range got {
		properties, _, ok := strings.Cut(strings.TrimPrefix(line, "::error "), "::")
		require.True(t, ok, line)
		fields := strings.Split(properties, ",")
		require.Len(t, fields, 3, line)
		require.NotContains(t, fields[0], ":")
		require.Equal(t, "line=3", fields[1])
		require.NotContains(t, line, "\x1b")
		require.NotContains(t, line, "\r")
		require.Contains(t, line, "%250A", "a percent sign of the text stays one")
	}
	var b bytes.Buffer
	require.NoError(t, JobSummary(&b, r, maxSummary))
	text := b.String()
	require.NotContains(t, text, "\x1b")
	fence := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fence = !fence
			continue
		}
		if fence {
			continue
		}
		for _, raw := range []string{"<img", "](", "@all", "`c`", "http:", "www.x"} {
			require.NotContains(t, line, raw)
		}
	}
	require.False(t, fence)
}

func TestJobSummary(t *testing.T) {
	var b bytes.Buffer
	r := sample(t).Result
	require.NoError(t, JobSummary(&b, r, maxSummary))
	golden(t, "job-summary.md", b.Bytes())
	require.True(t, strings.HasPrefix(b.String(), "```sh\nsimrun replay "), "the replay line comes first")

	b.Reset()
	require.NoError(t, JobSummary(&b, &sim.Result{ExitReason: "every verdict as expected", Scenarios: []sim.Entry{{Name: "steady", Status: sim.Passed}}}, maxSummary))
	require.NotContains(t, b.String(), "replay")
	require.Contains(t, b.String(), "| PASS | steady |")
}

// However much there is to say, and however little room is left, the summary stays within it and says that it was cut.
func TestJobSummaryIsBounded(t *testing.T) {
	r := &sim.Result{ExitStatus: 1, ExitReason: "because"}
	for i := range 5000 {
		r.Scenarios = append(r.Scenarios, sim.Entry{Name: fmt.Sprintf("s%d", i), Status: sim.FailedEntry, Reason: strings.Repeat("a long story ", 20)})
	}
	for _, limit := range []int{1000, 50_000, 1 << 30} {
		var b bytes.Buffer
		require.NoError(t, JobSummary(&b, r, limit))
		require.LessOrEqual(t, b.Len(), min(limit, 200<<10))
		require.Greater(t, b.Len(), min(limit, 200<<10)/2)
		require.Contains(t, b.String(), "did not fit")
	}
}

// The workflow in the documentation is one that GitHub accepts, and it keeps the results of a run that failed.
func TestExampleWorkflow(t *testing.T) {
	const file = "../docs/github-actions.yml"
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	require.NoError(t, err)
	found, err := linter.Lint(file, src, nil)
	require.NoError(t, err)
	require.Empty(t, found)
	broken, err := linter.Lint(file, bytes.Replace(src, []byte("runs-on:"), []byte("run-on:"), 1), nil)
	require.NoError(t, err)
	require.NotEmpty(t, broken, "the linter does look")

	var flow struct {
		Jobs map[string]struct {
			Steps []struct {
				If, Uses, Run string
				With          map[string]any
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(src, &flow))
	runs, uploads := 0, 0
	for _, job := range flow.Jobs {
		for _, s := range job.Steps {
			if strings.Contains(s.Run, "simrun run") {
				runs++
			}
			if strings.HasPrefix(s.Uses, "actions/upload-artifact@") {
				uploads++
				require.Equal(t, "${{ !cancelled() }}", s.If, "also when the step before has failed")
				require.Contains(t, s.With["path"], "simrun-out")
			}
		}
	}
	require.Equal(t, []int{1, 1}, []int{runs, uploads})
}

package reports

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// run is a run of day n with entries of the given statuses, by name.
func runOn(n int, statuses map[string]string) Page {
	r := &sim.Result{Schema: 1, Seed: uint64(n), StartedAt: time.Date(2026, 3, n, 12, 0, 0, 0, time.UTC), Versions: sim.Versions{Simrun: "0.1.0", Go: "go1.26", Postgres: "15.18", PgBouncer: "1.18.0"}}
	for _, name := range []string{"a", "b", "c", "d"} {
		if s := statuses[name]; s != "" {
			r.Scenarios = append(r.Scenarios, sim.Entry{Name: name, Route: sim.Direct, Impl: "reference", Engine: "virtual", Status: s})
			if s != sim.Passed {
				r.ExitStatus, r.ExitReason = 1, name+" went wrong"
			}
		}
	}
	return Page{Result: r, Folder: fmt.Sprintf("run-%d", n)}
}

func renderRuns(t testing.TB, runs []Page) string {
	var b bytes.Buffer
	require.NoError(t, RunsHTML(&b, runs))
	return b.String()
}

// changes are a run's changes in short.
func changes(v runView) (list []string) {
	for _, c := range v.Changes {
		for _, x := range c.List {
			list = append(list, c.What+" "+strings.Split(x.Text, " ")[0])
		}
	}
	return list
}

// What changed is told against the last run that had the entry, whatever order the folders are given in.
func TestWhatChangedBetweenRuns(t *testing.T) {
	t.Parallel()
	one := runOn(1, map[string]string{"a": sim.Passed, "b": sim.FailedEntry, "c": sim.Passed})
	two := runOn(2, map[string]string{"a": sim.FailedEntry, "b": sim.FailedEntry})
	three := runOn(3, map[string]string{"a": sim.ErrorEntry, "b": sim.Passed, "c": sim.InconclusiveEntry, "d": sim.FailedEntry})
	four := runOn(4, map[string]string{"a": sim.ErrorEntry, "b": sim.Passed, "c": sim.FailedEntry})
	four.Result.Versions.Postgres = "16.2"
	v := newRunsView(byTime([]Page{three, one, four, two}), 1)
	require.Len(t, v.Runs, 4)
	require.Equal(t, []string{"newly failing c"}, changes(v.Runs[0]))
	require.Equal(t, []string{"newly undecided c", "newly passing b", "failing from the first d"}, changes(v.Runs[1]), "one that fails in another way is not newly failing")
	require.Equal(t, []string{"newly failing a"}, changes(v.Runs[2]), "c was not run, which is no change")
	require.Equal(t, []string{"failing from the first b"}, changes(v.Runs[3]))
	require.Equal(t, "The newest run: 1 newly failing", v.Headline)
	require.Equal(t, []versionView{{"simrun 0.1.0", false}, {"Go go1.26", false}, {"Postgres 16.2", true}, {"PgBouncer 1.18.0", false}}, v.Runs[0].Versions)
	require.Equal(t, []statusView{{1, "passed", "pass"}, {1, "failed", "fail"}, {1, "error", "error"}}, v.Runs[0].Statuses)

	html := renderRuns(t, []Page{one, two})
	has(t, html, "<title>FAIL · simrun, 2 runs</title>")
	has(t, html, `<a href="#e1x0">a · direct · reference · virtual</a>`)
	has(t, html, `id="e1x0"`)
	has(t, html, "2026-03-02 12:00:00 UTC")
	has(t, html, "run-2")
	has(t, html, "b went wrong")
	require.Equal(t, "The newest run changed nothing", newRunsView(byTime([]Page{two, two}), 1).Headline)
}

func TestRunsHTMLIsBounded(t *testing.T) {
	t.Parallel()
	var runs []Page
	for range 70 {
		runs = append(runs, sample(t))
	}
	lots := make([]sim.EntryViolation, 1000)
	for i := range lots {
		lots[i].Text = strings.Repeat("<", 1000)
	}
	many := sample(t)
	for i := range 450 {
		e := many.Result.Scenarios[1]
		e.Name = fmt.Sprintf("scenario-%d", i)
		for range 20 {
			e.Verdicts = append(e.Verdicts, sim.EntryVerdict{Invariant: "x", Status: sim.StatusViolated, Violations: lots})
		}
		many.Result.Scenarios = append(many.Result.Scenarios, e)
	}
	many.Result.StartedAt = time.Now()
	html := renderRuns(t, append(runs, many))
	require.LessOrEqual(t, len(html), maxPageBytes)
	has(t, html, "are left out")
	has(t, html, "scenario-0")
	html = renderRuns(t, []Page{long(t, 12_000), long(t, 12_000), long(t, 12_000)})
	require.LessOrEqual(t, len(html), maxPageBytes)
	has(t, html, "r1 begins to lead, in term 1")
}

func TestRunsHTMLOfNothing(t *testing.T) {
	t.Parallel()
	require.Error(t, RunsHTML(&bytes.Buffer{}, nil))
	require.Error(t, RunsHTML(&bytes.Buffer{}, []Page{{}}))
	require.ErrorIs(t, RunsHTML(broken{}, []Page{sample(t)}), errBroken)
	has(t, renderRuns(t, []Page{{Result: &sim.Result{}}, {Result: &sim.Result{ExitStatus: 5}}}), "None was run.")
	first, second := renderRuns(t, []Page{sample(t), sample(t)}), renderRuns(t, []Page{sample(t), sample(t)})
	require.True(t, first == second, "it is the same each time")
}

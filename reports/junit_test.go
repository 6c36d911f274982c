package reports

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strconv"
	"strings"
	"testing"

	"github.com/jstemmer/go-junit-report/v2/junit"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, JUnit(&b, sample(t).Result))
	golden(t, "junit.xml", b.Bytes())
}

// What servers read: GitLab shows classname as the suite, drops a case whose classname and name it has seen, and adds up the times
// of the cases; Jenkins needs the counts and a timestamp without a zone or in UTC.
func TestJUnitAttributes(t *testing.T) {
	r := sample(t).Result
	var b bytes.Buffer
	require.NoError(t, JUnit(&b, r))
	var got junit.Testsuites
	require.NoError(t, xml.Unmarshal(b.Bytes(), &got))
	seen := map[string]bool{}
	for i, s := range got.Suites {
		require.NotEmpty(t, s.Name)
		require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, s.Timestamp)
		total, failures, errs := 0.0, 0, 0
		for _, c := range s.Testcases {
			require.NotEmpty(t, c.Name)
			require.Equal(t, s.Name, c.Classname)
			require.False(t, seen[c.Classname+"\n"+c.Name], "a case that GitLab would drop: %+v", c)
			seen[c.Classname+"\n"+c.Name] = true
			require.NotContains(t, c.Classname+c.Name, "20261129", "nothing of this very run is in a name")
			seconds, err := strconv.ParseFloat(c.Time, 64)
			require.NoError(t, err)
			total += seconds
			if c.Failure != nil {
				failures++
				require.NotEmpty(t, c.Failure.Message)
				require.NotEmpty(t, c.Failure.Type)
			}
			if c.Error != nil {
				errs++
				require.NotEmpty(t, c.Error.Message)
			}
		}
		require.Equal(t, []int{len(s.Testcases), failures, errs}, []int{s.Tests, s.Failures, s.Errors})
		require.InDelta(t, r.Scenarios[i].WallSeconds, total, 0.001)
	}
}

// What CI shows must agree with what simrun says: a suite is clean exactly when its entry passed.
func TestJUnitAgreesWithTheStatus(t *testing.T) {
	r := sample(t).Result
	for _, status := range []string{sim.Passed, sim.FailedEntry, sim.InconclusiveEntry, sim.ErrorEntry} {
		for _, expected := range [][]string{nil, {"a"}} {
			for _, verdict := range []sim.Status{sim.StatusHeld, sim.StatusInconclusive, sim.StatusViolated} {
				if status == sim.Passed && (expected == nil && verdict != sim.StatusHeld || expected != nil && verdict != sim.StatusViolated) {
					continue // no such entry passes
				}
				r.Scenarios = append(r.Scenarios, sim.Entry{Name: "x", Status: status, Expected: expected, Verdicts: []sim.EntryVerdict{{Invariant: "a", Status: verdict}, {Invariant: "b", Status: sim.StatusHeld}}})
			}
		}
	}
	var b bytes.Buffer
	require.NoError(t, JUnit(&b, r))
	var got junit.Testsuites
	require.NoError(t, xml.Unmarshal(b.Bytes(), &got))
	require.Len(t, got.Suites, len(r.Scenarios))
	for i, s := range got.Suites {
		require.Equal(t, r.Scenarios[i].Status == sim.Passed, s.Failures+s.Errors == 0, "%+v\n%+v", r.Scenarios[i], s)
		require.Zero(t, s.Skipped)
	}
}

// A run that failed as a whole is no file without failures.
func TestJUnitOfARunThatFailed(t *testing.T) {
	for _, entries := range [][]sim.Entry{nil, {{Name: "x", Status: sim.Passed, Verdicts: []sim.EntryVerdict{{Invariant: "a", Status: sim.StatusHeld}}}}} {
		for status, errors := range map[int]int{0: 0, 5: 1, 6: 1, 130: 1} {
			var b bytes.Buffer
			require.NoError(t, JUnit(&b, &sim.Result{ExitStatus: status, ExitReason: "because", Scenarios: entries}))
			var got junit.Testsuites
			require.NoError(t, xml.Unmarshal(b.Bytes(), &got))
			require.Equal(t, errors, got.Errors)
			require.Len(t, got.Suites, len(entries)+errors)
			if errors > 0 {
				require.Equal(t, "because", got.Suites[len(entries)].Testcases[0].Error.Message)
			}
		}
	}
}

func TestJUnitOfHostileText(t *testing.T) {
	evil := "]]><x>&\x00\x1b[31m\ufffe\n\"'"
	r := &sim.Result{Scenarios: []sim.Entry{{
		Name: evil, Route: sim.Route(evil), Impl: evil, Engine: evil, Status: sim.FailedEntry, Reason: evil,
		Verdicts: []sim.EntryVerdict{
			{Invariant: evil, Status: sim.StatusViolated, Violations: []sim.EntryViolation{{Text: evil, Cause: evil}}},
			{Invariant: "b", Reason: evil},
		},
		Counterexamples: []sim.CounterSummary{{Invariant: evil, Schedule: []string{evil}, Replay: evil}},
		Require:         map[string]sim.Count{evil: {AtLeast: 1}},
	}}}
	var b bytes.Buffer
	require.NoError(t, JUnit(&b, r))
	var got junit.Testsuites
	require.NoError(t, xml.Unmarshal(b.Bytes(), &got), b.String())
	require.Equal(t, 1, got.Failures)
	require.NotContains(t, b.String(), "\x1b")
}

func TestReplayCommandIsSafeToPaste(t *testing.T) {
	got := replayOf(sim.Entry{Name: "a;rm -rf ~", Impl: "exec:./it's", Engine: "live", Route: sim.Direct}, 7)
	require.Equal(t, `simrun run 'a;rm -rf ~' --engine live --route direct --impl 'exec:./it'\''s' --seed 7`, got)
}

func TestJSONHasNoNulls(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, JSON(&b, &sim.Result{Schema: 1, Scenarios: []sim.Entry{{
		Name: "x", Verdicts: []sim.EntryVerdict{{Invariant: "a", Violations: []sim.EntryViolation{{Text: "t"}}}}, Counterexamples: []sim.CounterSummary{{}},
	}}}))
	require.NotContains(t, b.String(), "null")
	var back sim.Result
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, "x", back.Scenarios[0].Name)
	b.Reset()
	require.NoError(t, JSON(&b, &sim.Result{}))
	require.True(t, strings.Contains(b.String(), `"scenarios": []`))
}

package reports

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

const evil = `</script></style></title><script>window.evil=1</script><img src=x onerror="window.evil=2"><b class=evil>" onload='window.evil=3' {{.}} ${evil} javascript:alert(1)` + "\x00\x1b[31m\u202e\u2028"

// hostilePage has an attack in every text that comes from outside.
func hostilePage(t testing.TB) Page {
	w := &writer{header: headerOf(t, "kill-leader", evil, evil, sim.Route(evil), []sim.Fault{{Kind: sim.FaultKind(evil), Target: evil, At: at(1), For: at(2)}, {Kind: evil, Before: &sim.Trigger{Pattern: evil}}}, 3)}
	w.header.Scenario.Name, w.header.Scenario.Shows, w.header.Impl = evil, evil, evil
	kinds := []sim.EventKind{
		sim.EvUp, sim.EvPaused, sim.EvResumed, sim.EvSession, sim.EvProbe, sim.EvAttempt, sim.EvLead, sim.EvBeat, sim.EvTick, sim.EvEffect,
		sim.EvTerm, sim.EvHeld, sim.EvFault, sim.EvStatement, sim.EvNote, sim.EvUnlock, sim.EvEnd, sim.EvIdle, evil, sim.EvDown,
	}
	s := 0.0
	for _, k := range kinds {
		for _, op := range []string{"", sim.OpBegin, sim.OpEnd, sim.OpApplied, sim.OpMoot, evil} {
			s += 0.01
			w.add(s, evil, sim.Event{
				Kind: k, Op: op, Replica: 1, Incarnation: 1, Session: evil, Use: evil, Route: sim.Route(evil), Role: evil, Answer: evil, Outcome: evil,
				Reason: evil, Fault: 1, Targets: []int{-1, 1 << 40}, Text: evil, SQL: evil, BlockedBy: []string{evil}, Row: -1, Trusted: -5, Lasts: at(0.001),
			})
		}
	}
	h, _ := w.history(t)
	r := &sim.Result{
		ExitStatus: 1, ExitReason: evil, Backend: evil, Versions: sim.Versions{Simrun: evil, Go: evil, Postgres: evil, PgBouncer: evil},
		Scenarios: []sim.Entry{{
			Name: evil, Shows: evil, Route: sim.Route(evil), Impl: evil, Engine: evil, Status: sim.FailedEntry, Reason: evil, Expected: []string{"x"}, Digest: evil,
			Require: map[string]sim.Count{evil: {AtLeast: 1}},
			Verdicts: []sim.EntryVerdict{{
				Invariant: evil, Status: sim.StatusViolated, Reason: evil, Measures: []sim.Measure{{Name: evil, Value: 1, Bound: 2}},
				Violations: []sim.EntryViolation{{Text: evil, Cause: evil, AtSeconds: 0.5}},
			}},
			Counterexamples: []sim.CounterSummary{{Invariant: evil, File: evil, Schedule: []string{evil}, Reproduced: evil, Live: evil, Replay: evil, History: evil}},
			Histories:       []string{evil},
		}, {Name: evil, Status: evil}},
	}
	return Page{Result: r, Histories: map[string]*sim.History{evil: h}}
}

// long is a passing run of many events.
func long(t testing.TB, n int) Page {
	w := &writer{header: headerOf(t, "steady", "reference", "virtual", sim.Direct, nil, 600)}
	w.up(0.1, 1, 1, 0)
	w.lead(0.5, 1, 1, 1, 20)
	text := "select lock_guard($1,$2,$3); commit; " + strings.Repeat("a statement that goes on and on ", 20)
	for i := range n {
		w.sql(1+float64(i)*0.02, sim.SessionName(1, 1, sim.UseEffect, 1), text, "COMMIT", 0.004)
	}
	h, _ := w.history(t)
	p := passing(t)
	p.Histories = map[string]*sim.History{p.Result.Scenarios[0].Histories[0]: h}
	return p
}

func render(t testing.TB, p Page) string {
	var b bytes.Buffer
	require.NoError(t, HTML(&b, p))
	return b.String()
}

// has is require.Contains without a failure of five megabytes.
func has(t testing.TB, html, want string) {
	t.Helper()
	require.True(t, strings.Contains(html, want), "the page does not say %q", want)
}

func TestHTMLIsBounded(t *testing.T) {
	html := render(t, long(t, 12_000))
	require.LessOrEqual(t, len(html), maxPageBytes)
	has(t, html, "; all are in <code>histories/")
	has(t, html, "r1 begins to lead, in term 1") // the story is kept, whatever is left out

	many, lots := sample(t), make([]sim.EntryViolation, 1000)
	for i := range 450 {
		e := many.Result.Scenarios[1]
		e.Name = fmt.Sprintf("scenario-%d", i)
		for range 20 {
			e.Verdicts = append(e.Verdicts, sim.EntryVerdict{Invariant: "x", Status: sim.StatusViolated, Violations: lots})
		}
		many.Result.Scenarios = append(many.Result.Scenarios, e)
	}
	require.LessOrEqual(t, len(render(t, many)), maxPageBytes)
}

func TestHTMLOfNothing(t *testing.T) {
	require.Error(t, HTML(&bytes.Buffer{}, Page{}))
	html := render(t, Page{Result: &sim.Result{ExitStatus: 5, ExitReason: "nothing ran"}})
	has(t, html, "Nothing was run")
	has(t, render(t, passing(t)), "kill while idle 14, kill while publishing 6")
	explored := passing(t)
	explored.Result.Scenarios[0].Exploration = &sim.Exploration{Within: 4, Depth: 8, Interleavings: 9, Equivalent: 30}
	has(t, render(t, explored), "all interleavings of the first 4 choices; of the first 8 so far 9, and 30 equivalent to one of them left out")
	has(t, html, "nothing ran")

	empty := passing(t)
	for name := range empty.Histories {
		empty.Histories[name] = &sim.History{}
	}
	has(t, render(t, empty), "Every verdict is as expected")
	for name := range empty.Histories {
		empty.Histories[name] = nil
	}
	require.False(t, strings.Contains(render(t, empty), "<figure"))
}

func TestHTMLVerdicts(t *testing.T) {
	for status, want := range map[string]string{sim.Passed: "PASS", sim.FailedEntry: "FAIL", sim.InconclusiveEntry: "????", sim.ErrorEntry: "ERROR"} {
		code := map[string]int{sim.FailedEntry: 1, sim.InconclusiveEntry: 2, sim.ErrorEntry: 6}[status]
		html := render(t, Page{Result: &sim.Result{ExitStatus: code, ExitReason: "because", Scenarios: []sim.Entry{{Name: "x", Status: status}}}})
		has(t, html, "<title>"+want+" ")
	}
	// Entries that passed do not make a run green that ended badly.
	html := render(t, Page{Result: &sim.Result{ExitStatus: 70, ExitReason: "panic", Scenarios: []sim.Entry{{Name: "x", Status: sim.Passed}}}})
	require.False(t, strings.Contains(html, "<title>PASS"))
}

func TestHTMLIsTheSameEachTime(t *testing.T) {
	first, second := render(t, sample(t)), render(t, sample(t))
	require.True(t, first == second) // not Equal: a page is megabytes
}

type broken struct{}

var errBroken = errors.New("the disk is full")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteErrorsAreReported(t *testing.T) {
	p := sample(t)
	require.ErrorIs(t, HTML(broken{}, p), errBroken)
	require.ErrorIs(t, JSON(broken{}, p.Result), errBroken)
	require.ErrorIs(t, JUnit(broken{}, p.Result), errBroken)
}

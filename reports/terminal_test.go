package reports

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

func TestTerminal(t *testing.T) {
	r := sample(t).Result
	show := func(opts ...TerminalOption) []byte {
		var b bytes.Buffer
		term := NewTerminal(&b, opts...)
		for i, e := range r.Scenarios {
			term.Progress(i, len(r.Scenarios), e.Name)
			term.Entry(e)
		}
		term.Progress(1, 1, "shrinking")
		term.Done(r)
		return b.Bytes()
	}
	plain := show()
	golden(t, "terminal.txt", plain)
	require.NotContains(t, string(plain), "\x1b", "no colour and no redrawing where the writer is no terminal")
	coloured := show(Colour(true), Redraw(true))
	golden(t, "terminal-colour.txt", coloured)
	require.Contains(t, string(coloured), "\x1b[")
}

// Where a time is given instead of a number, no bar says how much is left.
func TestProgressWithoutATotal(t *testing.T) {
	var b bytes.Buffer
	NewTerminal(&b, Redraw(true)).Progress(7, 0, "steady")
	require.Equal(t, "\r\x1b[K7 steady", b.String())
}

func TestDoneLine(t *testing.T) {
	var b bytes.Buffer
	r := &sim.Result{Seconds: 41.2, ExitStatus: 1, ExitReason: "because"}
	for i := range 12 {
		e := sim.Entry{Status: sim.Passed}
		if i == 3 {
			e.Status = sim.FailedEntry
		}
		r.Scenarios = append(r.Scenarios, e)
	}
	NewTerminal(&b).Done(r)
	require.Equal(t, "exit 1: because\nDONE 12 scenarios, 11 passed, 1 failed, 0 inconclusive in 41.2s\n", b.String())

	b.Reset()
	NewTerminal(&b).Done(&sim.Result{Scenarios: []sim.Entry{{Status: sim.ErrorEntry}, {Status: "nonsense"}, {Status: sim.InconclusiveEntry}}})
	require.Equal(t, "2 scenarios could not be carried out, counted as failed\nDONE 3 scenarios, 0 passed, 2 failed, 1 inconclusive in 0.0s\n", b.String())
}

// That a program is judged by less than it could be is said, also when all is well.
func TestTerminalSaysHowAProgramWasJudged(t *testing.T) {
	var b bytes.Buffer
	e := sim.Entry{Name: "steady", Route: sim.Direct, Impl: "exec:./mine", Status: sim.Passed, Verdicts: []sim.EntryVerdict{
		{Invariant: "one-leader", Status: sim.StatusHeld, Note: "it reports no beliefs"}, {Invariant: "failover", Status: sim.StatusHeld, Note: "2 failovers: 1s"},
	}}
	NewTerminal(&b).Entry(e)
	require.Contains(t, b.String(), "one-leader: it reports no beliefs\n")
	require.NotContains(t, b.String(), "failovers")
	b.Reset()
	e.Impl = "reference"
	NewTerminal(&b).Entry(e)
	require.NotContains(t, b.String(), "beliefs")
}

func TestTerminalShowsNothingRaw(t *testing.T) {
	var b bytes.Buffer
	evil := "\x1b]0;owned\x07\n\u202eevil"
	term := NewTerminal(&b)
	term.Entry(sim.Entry{
		Name: evil, Route: sim.Route(evil), Impl: evil, Status: sim.FailedEntry, Reason: evil,
		Verdicts:        []sim.EntryVerdict{{Invariant: evil, Status: sim.StatusViolated, Violations: []sim.EntryViolation{{Text: evil, Cause: evil}}}},
		Counterexamples: []sim.CounterSummary{{Invariant: evil, Schedule: []string{evil}, Replay: evil}},
	})
	term.Progress(1, 2, evil)
	term.Done(&sim.Result{ExitReason: evil})
	for _, r := range b.String() {
		require.True(t, r == '\n' || r >= ' ' && r != '\u202e' && r != 0x7f, "%q", r)
	}
	require.Equal(t, 8, strings.Count(b.String(), "\n"), "an item stays one line:\n%s", b.String())
}

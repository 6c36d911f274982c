package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// mine is a scenario of a user's own, with more lines where a test wants them.
func mine(t *testing.T, dir, more string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(`name: mine
shows: A team's own scenario.
replicas: 2
routes: [pgbouncer-transaction]
impl: naive-pooled
duration: 45s
invariants:
  - no-duplicate-publish
  - one-leader
`+more), 0o644))
}

// Each status of the contract, as a script sees it, with its reason on the line before DONE. 130 and 143 are in TestInterrupted, 70 below.
func TestEachExitStatus(t *testing.T) {
	t.Parallel()
	quick := []string{"run", "mine.yaml", "--schedules", "1", "--seed", "1", "--no-shrink", "--confirm", "0", "--workers", "1"}
	for _, c := range []struct {
		name   string
		more   string
		env    string
		args   []string
		want   int
		reason string
	}{
		{"as expected", "expect: [{invariant: one-leader}]\n", "", quick, exitOK, "exit 0: every verdict as expected"},
		{"violated", "", "", quick, exitViolated, "exit 1: mine, pgbouncer-transaction, naive-pooled: violated: one-leader"},
		{"expected and not found", "expect: [{invariant: no-duplicate-publish}]\n", "", append(quick, "--impl", "reference"), exitViolated, "exit 1: mine, pgbouncer-transaction, reference: expected a violation"},
		{"inconclusive", "require: [{what: elections, at_least: 1}]\n", "", append(quick, "--impl", "reference"), exitInconclusive, "exit 2: mine, pgbouncer-transaction, reference: "},
		{"usage", "", "", append(quick, "--engine", "quantum"), exitUsage, ""},
		{"an invalid scenario", "nonsense: 1\n", "", quick, exitUsage, ""},
		{"nothing ran", "", "", []string{"hunt", "reference"}, exitNothing, ""},
		{"environment", "", "SIMRUN_PG_BIN=/nowhere", append(quick, "--postgres", "local"), exitEnvironment, "exit 6: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			mine(t, dir, c.more)
			out, errs, status := simrunWith(t, dir, []string{c.env}, c.args...)
			require.Equal(t, c.want, status, out+errs)
			if c.reason != "" {
				require.Contains(t, out, "\n"+c.reason)
				require.Regexp(t, `\nexit \d+: [^\n]+\nDONE [^\n]+\n$`, out)
			}
		})
	}
}

// A panic is a defect of simrun and says so; Go's own status would mean "inconclusive".
func TestAPanicIsStatus70(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	root := &cobra.Command{Use: "simrun", RunE: func(*cobra.Command, []string) error { panic("a slip") }}
	root.SetArgs(nil)
	require.Equal(t, exitInternal, execute(t.Context(), root, &errs))
	require.Contains(t, errs.String(), "internal error: a slip")
	require.Contains(t, errs.String(), "please report it")
	plain := &cobra.Command{Use: "simrun", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return errors.New("a defect") }}
	plain.SetArgs(nil)
	require.Equal(t, exitInternal, execute(t.Context(), plain, &errs))
}

// The worst status wins, in the order of the contract: 70 > 130, 143 > 1 > 6 > 2 > 5 > 0.
func TestTheWorstStatusWins(t *testing.T) {
	t.Parallel()
	order := []int{0, 5, 2, 6, 1, 143, 130, 70}
	for i, low := range order {
		for _, high := range order[i:] {
			require.Equal(t, high, worse(low, high))
			require.Equal(t, high, worse(high, low))
		}
	}
}

func TestExitStatusOfEntries(t *testing.T) {
	t.Parallel()
	entry := func(status string) sim.Entry { return sim.Entry{Status: status, Reason: "because"} }
	for _, c := range []struct {
		entries []sim.Entry
		fatal   error
		want    int
	}{
		{nil, nil, 5},
		{[]sim.Entry{entry(sim.Passed)}, nil, 0},
		{[]sim.Entry{entry(sim.Passed), entry(sim.InconclusiveEntry)}, nil, 2},
		{[]sim.Entry{entry(sim.ErrorEntry), entry(sim.InconclusiveEntry)}, nil, 6},
		{[]sim.Entry{entry(sim.ErrorEntry), entry(sim.FailedEntry)}, nil, 1},
		{[]sim.Entry{entry(sim.Passed)}, errInterrupted, 130},
		{[]sim.Entry{entry(sim.FailedEntry)}, fmt.Errorf("x: %w", errTerminated), 143},
		{nil, &sim.EnvironmentError{Problem: "no postgres"}, 6},
		{[]sim.Entry{entry(sim.Passed)}, errors.New("a defect"), 70},
	} {
		got, why := exitStatus(c.entries, c.fatal)
		require.Equal(t, c.want, got, "%v %v", c.entries, c.fatal)
		require.NotEmpty(t, why)
	}
}

// An entry passes only when something was judged, everything held, and what was required happened.
func TestStatusOfAnEntry(t *testing.T) {
	t.Parallel()
	v := func(s sim.Status) sim.EntryVerdict {
		return sim.EntryVerdict{Invariant: "one-leader", Status: s, Reason: "r"}
	}
	for _, c := range []struct {
		name    string
		entry   sim.Entry
		missing []string
		err     error
		want    string
	}{
		{"held", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.Passed},
		{"nothing judged", sim.Entry{}, nil, nil, sim.InconclusiveEntry},
		{"inconclusive", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusInconclusive)}}, nil, nil, sim.InconclusiveEntry},
		{"violated", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusViolated)}}, nil, nil, sim.FailedEntry},
		{"not enough happened", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, []string{"x"}, nil, sim.InconclusiveEntry},
		{"a fault failed", sim.Entry{Faults: sim.FaultCounts{Failed: 1}, Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.InconclusiveEntry},
		{"no fault took effect", sim.Entry{Faults: sim.FaultCounts{Moot: 2}, Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.InconclusiveEntry},
		{"some faults took effect", sim.Entry{Faults: sim.FaultCounts{Applied: 1, Moot: 2}, Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.Passed},
		{"expected and found", sim.Entry{Expected: []string{"one-leader"}, Verdicts: []sim.EntryVerdict{v(sim.StatusViolated)}}, nil, nil, sim.Passed},
		{"expected, not found", sim.Entry{Expected: []string{"one-leader"}, Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.FailedEntry},
		{"expected, inconclusive", sim.Entry{Expected: []string{"one-leader"}, Verdicts: []sim.EntryVerdict{v(sim.StatusInconclusive)}}, nil, nil, sim.FailedEntry},
		{"expected, nothing broken", sim.Entry{Expected: []string{"one-leader"}, Faults: sim.FaultCounts{Moot: 1}, Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.InconclusiveEntry},
		{"expected, something broken", sim.Entry{Expected: []string{"one-leader"}, Faults: sim.FaultCounts{Moot: 1, Applied: 1}, Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.FailedEntry},
		{"harness", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, errors.New("x"), sim.ErrorEntry},
		{"self-check", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, &divergence{}, sim.InconclusiveEntry},
	} {
		got, why := status(&c.entry, c.missing, c.err)
		require.Equal(t, c.want, got, c.name)
		require.Equal(t, got == sim.Passed, why == "", c.name)
	}
}

// Only what took effect was exercised, in the state in which its target was just before.
func TestCoverage(t *testing.T) {
	t.Parallel()
	h := &sim.History{Header: sim.Header{Plan: sim.Plan{Faults: []sim.Fault{
		{Kind: sim.Kill}, {Kind: sim.Pause}, {Kind: sim.PostgresRestart}, {Kind: sim.CutReply, After: &sim.Trigger{}},
	}}}}
	fault := func(op string, n int, targets ...int) sim.Event {
		return sim.Event{Kind: sim.EvFault, Op: op, Fault: n, Targets: targets}
	}
	h.Events = []sim.Event{
		{Kind: sim.EvUp, Replica: 1}, fault(sim.OpPlanned, 4), {Kind: sim.EvLead, Replica: 1},
		fault(sim.OpPlanned, 1, 1), {Kind: sim.EvDown, Replica: 1}, fault(sim.OpApplied, 1, 1),
		fault(sim.OpPlanned, 2, 1), fault(sim.OpMoot, 2, 1),
		{Kind: sim.EvUp, Replica: 1}, {Kind: sim.EvTick, Op: sim.OpBegin, Replica: 1}, fault(sim.OpApplied, 4, 1),
		fault(sim.OpPlanned, 3), fault(sim.OpApplied, 3),
	}
	var c sim.Coverage
	cover(&c, h)
	require.Equal(t, map[string]int{"kill": 1, "postgres-restart": 1, "cut-reply": 1}, c.Faults)
	require.Equal(t, map[string]int{"kill while leading": 1, "cut-reply while publishing": 1}, c.States)
}

// How it was judged is said of an entry where it was the same in all schedules.
func TestTheNoteOfAVerdict(t *testing.T) {
	t.Parallel()
	var e sim.Entry
	merge(&e, sim.Verdict{Invariant: "a", Note: "by the fence alone"}, 0)
	merge(&e, sim.Verdict{Invariant: "a", Note: "by the fence alone"}, 1)
	merge(&e, sim.Verdict{Invariant: "b", Note: "1 failover"}, 0)
	merge(&e, sim.Verdict{Invariant: "b", Note: "2 failovers"}, 1)
	require.Equal(t, "by the fence alone", e.Verdicts[0].Note)
	require.Empty(t, e.Verdicts[1].Note)
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	require.Equal(t, "simrun-out/latest/x.json", sim.ShellQuote("simrun-out/latest/x.json"))
	require.Equal(t, `'a b'`, sim.ShellQuote("a b"))
	require.Equal(t, `'it'\''s $(rm)'`, sim.ShellQuote("it's $(rm)"))
	require.Regexp(t, `^exec__rm_-rf__-[0-9a-f]{6}$`, fileName("exec:'rm -rf /"))
	require.NotEqual(t, fileName("exec:a b"), fileName("exec:a_b"))
	require.NotEqual(t, fileName(strings.Repeat("a", 300)+"b"), fileName(strings.Repeat("a", 300)+"c"))
	require.Len(t, fileName(strings.Repeat("a", 300)), maxFileName)
	require.Equal(t, "no-fence", fileName("no-fence"))
}

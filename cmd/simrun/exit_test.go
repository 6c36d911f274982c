package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

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
		{"expected and found", sim.Entry{Expected: []string{"one-leader"}, Verdicts: []sim.EntryVerdict{v(sim.StatusViolated)}}, nil, nil, sim.Passed},
		{"expected, not found", sim.Entry{Expected: []string{"one-leader"}, Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, nil, sim.FailedEntry},
		{"expected, inconclusive", sim.Entry{Expected: []string{"one-leader"}, Verdicts: []sim.EntryVerdict{v(sim.StatusInconclusive)}}, nil, nil, sim.FailedEntry},
		{"harness", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, errors.New("x"), sim.ErrorEntry},
		{"self-check", sim.Entry{Verdicts: []sim.EntryVerdict{v(sim.StatusHeld)}}, nil, &divergence{}, sim.InconclusiveEntry},
	} {
		got, why := status(&c.entry, c.missing, c.err)
		require.Equal(t, c.want, got, c.name)
		require.Equal(t, got == sim.Passed, why == "", c.name)
	}
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

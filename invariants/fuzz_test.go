package invariants

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-aafb3a99/simrun/sim"
)

func names() (all []string) {
	for _, i := range All() {
		all = append(all, i.Name)
	}
	return all
}

// FuzzCheck judges whatever can be read as a history. Its seeds are the histories of testdata.
func FuzzCheck(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.txt")
	require.NoError(f, err)
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(f, err)
		s, err := parseSample(string(src))
		require.NoError(f, err)
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		require.NoError(f, enc.Encode(s.h.Header))
		for _, e := range s.h.Events {
			require.NoError(f, enc.Encode(e))
		}
		_, err = sim.ReadHistory(bytes.NewReader(buf.Bytes()))
		require.NoError(f, err, "a seed that is not read would examine nothing")
		f.Add(buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := sim.ReadHistory(bytes.NewReader(data))
		if err != nil || len(h.Events) > 300 || h.Header.Scenario.Workload.Rows > 1000 {
			return // no history, or one too long to be judged thousands of times
		}
		for _, v := range Check(names(), h) {
			sane(t, h, v)
		}
	})
}

type tester interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// sane is what holds of every verdict.
func sane(t tester, h *sim.History, v sim.Verdict) {
	t.Helper()
	require.NotContains(t, v.Reason, "a bug of simrun", "a judge panicked")
	require.Equal(t, len(v.Violations) > 0, v.Status == sim.StatusViolated)
	require.Equal(t, v.Status == sim.StatusInconclusive, v.Reason != "")
	if v.Status == sim.StatusHeld {
		require.Positive(t, v.Examined)
		require.Empty(t, unfit(h))
	}
	for _, x := range v.Violations {
		require.NotEmpty(t, x.Text)
		require.NotContains(t, x.Text, "%!", "a sentence with a hole")
		require.NotEmpty(t, x.Cause)
	}
}

// TestAnyEvents: on any list of events the judges do not panic, change nothing, and say the same of the same history, in whatever
// order its events come and whatever notes are in it.
func TestAnyEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := anyHistory().Draw(t, "history")
		before := asJSON(t, h)
		verdicts := Check(names(), h)
		require.Equal(t, before, asJSON(t, h), "the history was changed")
		for _, v := range verdicts {
			sane(t, h, v)
		}
		other := *h
		other.Events = slices.Clone(h.Events)
		if n := len(h.Events); n > 0 {
			note := sim.Event{Seq: n + 1, At: h.Events[rapid.IntRange(0, n-1).Draw(t, "note")].At, Source: sim.FromEngine, Kind: sim.EvNote, Text: "%d%s<b>"}
			other.Events = rapid.Permutation(append(other.Events, note)).Draw(t, "order")
		}
		for i, v := range Check(names(), &other) {
			if v.Invariant == "no-lost-publish" {
				continue // its violation rests on the last event
			}
			require.Equal(t, verdicts[i], v)
		}
	})
}

func asJSON(t tester, h *sim.History) string {
	b, err := json.Marshal(h)
	require.NoError(t, err)
	return string(b)
}

func anyHistory() *rapid.Generator[*sim.History] {
	return rapid.Custom(func(t *rapid.T) *sim.History {
		iv := sim.DefaultIntervals
		if rapid.Bool().Draw(t, "no ttl") {
			iv.TTL = -1
		}
		h := &sim.History{Complete: rapid.Bool().Draw(t, "complete"), Header: sim.Header{
			V: 1, Engine: rapid.SampledFrom([]string{"virtual", "live"}).Draw(t, "engine"), Route: rapid.SampledFrom(sim.Routes).Draw(t, "route"),
			Impl: rapid.SampledFrom([]string{"reference", "exec:x"}).Draw(t, "impl"), Terms: rapid.Bool().Draw(t, "terms"), TimeScale: 1,
			Allowance: seconds(t, "allowance") / 10, Intervals: iv,
			Scenario: sim.Scenario{Workload: sim.Workload{Rows: 3, Every: sim.Duration(time.Second)}},
		}}
		kinds := []sim.FaultKind{sim.Kill, sim.Pause, sim.TerminateBackend, sim.PoolerReload, sim.SlowTask, sim.PostgresRestart, sim.Latency}
		for _, k := range rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 3).Draw(t, "faults") {
			h.Header.Plan.Faults = append(h.Header.Plan.Faults, sim.Fault{Kind: k, At: seconds(t, "at"), For: seconds(t, "for")})
		}
		h.Events = rapid.SliceOfN(anyEvent(), 0, 60).Draw(t, "events")
		for i := range h.Events {
			h.Events[i].Seq = i + 1
		}
		return h
	})
}

func seconds(t *rapid.T, label string) sim.Duration {
	return within(time.Duration(rapid.IntRange(0, 120).Draw(t, label))*time.Second/2, time.Hour)
}

// anyEvent draws from few values, so that events have something to do with each other.
func anyEvent() *rapid.Generator[sim.Event] {
	kinds := []sim.EventKind{sim.EvUp, sim.EvDown, sim.EvPaused, sim.EvResumed, sim.EvSession, sim.EvProbe, sim.EvAttempt, sim.EvLead, sim.EvBeat, sim.EvEnd,
		sim.EvIdle, sim.EvUnlock, sim.EvTick, sim.EvEffect, sim.EvTerm, sim.EvHeld, sim.EvFault, sim.EvStatement, sim.EvCancel, "odd"}
	words := map[sim.EventKind][]string{
		sim.EvSession: {sim.OpOpen, sim.OpClose}, sim.EvTick: {sim.OpBegin, sim.OpListed, sim.OpEnd}, sim.EvEffect: {sim.OpBegin, sim.OpEnd, sim.OpCommit},
		sim.EvFault: {sim.OpPlanned, sim.OpApplied, sim.OpMoot, sim.OpHealed, sim.OpApplied, sim.OpFailed},
	}
	answers := []string{"", sim.Stable, sim.Unstable, sim.Inconclusive, sim.Acquired, sim.Busy, sim.Shared, sim.Failed, sim.Unlocked, sim.NotHeld, sim.BeatOK, sim.BeatLost}
	return rapid.Custom(func(t *rapid.T) sim.Event {
		e := sim.Event{At: seconds(t, "at"), Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Source: sim.FromReplica, Role: "publish"}
		e.Replica, e.Incarnation = rapid.IntRange(0, 3).Draw(t, "replica"), rapid.IntRange(1, 2).Draw(t, "incarnation")
		ops := words[e.Kind]
		if ops == nil {
			ops = []string{sim.OpBegin, sim.OpEnd}
		}
		e.Op = rapid.SampledFrom(ops).Draw(t, "op")
		e.Answer = rapid.SampledFrom(answers).Draw(t, "answer")
		e.Outcome = rapid.SampledFrom([]string{"", sim.OutcomeDone, sim.OutcomeRefused, sim.OutcomeUnknown, sim.OutcomeOK}).Draw(t, "outcome")
		e.Term, e.Key, e.Row = rapid.Int64Range(0, 3).Draw(t, "term"), rapid.Int64Range(7, 8).Draw(t, "key"), rapid.Int64Range(1, 3).Draw(t, "row")
		e.Fault, e.Commit = rapid.IntRange(0, 4).Draw(t, "fault"), rapid.Int64Range(0, 5).Draw(t, "commit")
		use := sim.UseLease
		switch e.Kind {
		case sim.EvUp, sim.EvDown, sim.EvPaused, sim.EvResumed, sim.EvFault:
			e.Source = sim.FromEngine
		case sim.EvHeld:
			e.Source = sim.FromObserver
		case sim.EvEffect:
			use = sim.UseEffect
		}
		e.Session = rapid.SampledFrom([]string{"", "?", sim.SessionName(e.Replica, e.Incarnation, use, 1), sim.SessionName(e.Replica, e.Incarnation, use, 2)}).Draw(t, "session")
		if rapid.IntRange(0, 4).Draw(t, "interval") == 0 {
			e.AtLo, e.AtHi = e.At-sim.Duration(time.Second), e.At
		}
		e.Trusted, e.Lasts = seconds(t, "trusted"), seconds(t, "lasts")
		if rapid.Bool().Draw(t, "targets") {
			e.Targets = []int{rapid.IntRange(1, 3).Draw(t, "target")}
		}
		return e
	})
}

// TestSentencesAreOneLine: a sentence fits into a line of a report and of a terminal.
func TestSentencesAreOneLine(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/violated-*.txt")
	require.NoError(t, err)
	for _, file := range files {
		for _, text := range readSample(t, file).says {
			require.False(t, strings.ContainsAny(text, "\n\t") || strings.HasSuffix(text, "."), text)
		}
	}
}

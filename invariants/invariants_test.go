package invariants

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// TestSamples judges every history of testdata: the directory is the invariant's name.
func TestSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.txt")
	require.NoError(t, err)
	seen := map[string]map[string]bool{}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		s := readSample(t, file)
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		seen[name][s.status] = true
		t.Run(name+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			require.True(t, Known(name), "testdata/%s is named after no invariant", name)
			checkSample(t, s, Check([]string{name}, s.h)[0])
		})
	}
	for _, info := range All() {
		for _, status := range []string{"held", "violated", "inconclusive"} {
			assert.True(t, seen[info.Name][status], "testdata holds no %s history for %s", status, info.Name)
		}
	}
}

func checkSample(t *testing.T, s *sample, v sim.Verdict) {
	t.Helper()
	var texts, causes, measures []string
	for _, x := range v.Violations {
		texts, causes = append(texts, x.Text), append(causes, x.Cause)
		assert.NotEmpty(t, x.Events, "a violation rests on events")
		assert.NotEmpty(t, x.Cause, "a violation has a cause")
	}
	for _, m := range v.Measures {
		measures = append(measures, fmt.Sprintf("%s = %s of %s", m.Name, sec(m.Value), sec(m.Bound)))
	}
	assert.Equal(t, s.status, v.Status.String(), "reason: %s\n%s", v.Reason, strings.Join(texts, "\n"))
	switch s.status {
	case "violated":
		assert.Equal(t, s.says, texts)
	case "inconclusive":
		assert.Equal(t, strings.Join(s.says, "; "), v.Reason)
	default:
		assert.Empty(t, texts)
	}
	for i, part := range s.because {
		if assert.Less(t, i, len(causes)) {
			assert.Contains(t, causes[i], part)
		}
	}
	if s.examined >= 0 {
		assert.Equal(t, s.examined, v.Examined, "examined")
	}
	if len(s.notes) > 0 {
		assert.Equal(t, strings.Join(s.notes, "; "), v.Note)
	}
	if len(s.measures) > 0 {
		assert.Equal(t, s.measures, measures)
	}
}

func TestUnknownNameIsInconclusive(t *testing.T) {
	t.Parallel()
	vs := Check([]string{"one-leeder"}, &sim.History{Complete: true})
	require.Len(t, vs, 1)
	require.Equal(t, sim.StatusInconclusive, vs[0].Status)
	require.Equal(t, `there is no invariant named "one-leeder"`, vs[0].Reason)
	require.False(t, Known("one-leeder"))
}

func TestPanickingJudgeIsInconclusive(t *testing.T) {
	t.Parallel()
	j := judge{Info{Name: "odd"}, func(*world) finding { panic("index out of range") }}
	v := ask(j, newWorld(&sim.History{Complete: true}))
	require.Equal(t, sim.StatusInconclusive, v.Status)
	require.Equal(t, "the judge of odd failed, which is a bug of simrun: index out of range", v.Reason)
}

func TestNoHistoryIsInconclusive(t *testing.T) {
	t.Parallel()
	for _, v := range Check([]string{"one-leader", "failover"}, nil) {
		require.Equal(t, sim.StatusInconclusive, v.Status)
		require.Contains(t, v.Reason, "reading the history failed")
	}
}

// TestCutShort: whatever holds in a whole history is inconclusive in one that was cut short or in which a fault failed, and what
// is violated stays violated.
func TestCutShort(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		for what, spoil := range map[string]func(*sim.History){
			"the history was cut short: its closing line is missing": func(h *sim.History) { h.Complete = false },
			"the harness could not carry out fault 99: no permission": func(h *sim.History) {
				h.Events = append(h.Events, sim.Event{Seq: len(h.Events) + 1, Source: sim.FromEngine, Kind: sim.EvFault, Op: sim.OpFailed, Fault: 99, Reason: "no permission"})
			},
		} {
			s, err := parseSample(string(src))
			require.NoError(t, err)
			spoil(s.h)
			v := Check([]string{name}, s.h)[0]
			switch s.status {
			case "violated":
				require.Equal(t, sim.StatusViolated, v.Status, file)
			case "held":
				require.Equal(t, sim.StatusInconclusive, v.Status, file)
				require.Equal(t, what, v.Reason, file)
			default:
				require.Equal(t, sim.StatusInconclusive, v.Status, file)
			}
		}
	}
}

// Of several faults that failed the first by number of its event is told, in whatever order they were written.
func TestTheFirstFailedFault(t *testing.T) {
	t.Parallel()
	failed := func(seq, fault int) sim.Event {
		return sim.Event{Seq: seq, Source: sim.FromEngine, Kind: sim.EvFault, Op: sim.OpFailed, Fault: fault, Reason: "no permission"}
	}
	for _, events := range [][]sim.Event{{failed(1, 2), failed(2, 1)}, {failed(2, 1), failed(1, 2)}} {
		require.Equal(t, "the harness could not carry out fault 2: no permission", unfit(&sim.History{Complete: true, Events: events}))
	}
}

func TestInfos(t *testing.T) {
	t.Parallel()
	require.Len(t, All(), len(judges))
	for _, info := range All() {
		require.NotEmpty(t, info.Holds)
		require.False(t, strings.HasSuffix(info.Holds, "."), "%s: a part of a sentence", info.Name)
	}
}

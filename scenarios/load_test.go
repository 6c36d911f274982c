package scenarios

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

const smallest = `name: smallest
shows: All that a scenario must say.
replicas: 1
routes: [direct]
duration: 60s
invariants: [one-leader]
`

const everything = `name: everything
shows: |
  Every field there is.
seed_document: a page
promise: a promise
replicas: 2
phase: 0s..4s
routes: [direct, pgbouncer-session]
impls: [reference, "exec:./mine --now"]
intervals: {retry: 4s, beat: 10s, beat_deadline: 4s, probe_wait: 2s, tick: 8s, ttl: -1s, stop_grace: 3s}
pool: {size: 7, round_robin: true}
workload: {rows: 10, every: 500ms}
faults:
  - kind: pause
    target: 2
    weight: 5
    count: 0..2
    window: 10s..20s
    for: 1s..2s
    before: {pattern: commit, nth: 2..3}
duration: 60s
belief_overlap: 250ms
invariants: [one-leader, probe]
require:
  - {what: publishes, at_least: 3, impl: any, route: direct}
expect:
  - {invariant: probe, impl: "exec:./mine --now", route: pgbouncer-session}
starts_at: "2026-03-08T01:30:00-05:00"
`

func TestParse(t *testing.T) {
	s, err := Parse("smallest.yaml", []byte(smallest))
	require.NoError(t, err)
	require.Equal(t, "smallest", s.Name)

	s, err = Parse("everything.yaml", []byte(everything), Implementations("reference"), Invariants("one-leader", "probe"))
	require.NoError(t, err)
	overlap := sim.Duration(250e6)
	require.Equal(t, &sim.Scenario{
		Name: "everything", Shows: "Every field there is.\n", SeedDocument: "a page", Promise: "a promise",
		Replicas: 2, Phase: sim.Range{To: 4e9}, Routes: []sim.Route{sim.Direct, sim.PgBouncerSession},
		Impls:     []string{"reference", "exec:./mine --now"},
		Intervals: sim.Intervals{Retry: 4e9, Beat: 10e9, BeatDeadline: 4e9, ProbeWait: 2e9, Tick: 8e9, TTL: -1e9, StopGrace: 3e9},
		Pool:      sim.Pool{Size: 7, RoundRobin: true}, Workload: sim.Workload{Rows: 10, Every: 5e8},
		Faults: []sim.FaultSpec{{
			Kind: sim.Pause, Target: "2", Weight: 5, Count: sim.IntRange{To: 2}, Window: sim.Range{From: 10e9, To: 20e9},
			For: sim.Range{From: 1e9, To: 2e9}, Before: &sim.TriggerSpec{Pattern: "commit", Nth: sim.IntRange{From: 2, To: 3}},
		}},
		Duration: 60e9, BeliefOverlap: &overlap, Invariants: []string{"one-leader", "probe"},
		Require:  []sim.Require{{What: sim.Publishes, AtLeast: 3, Impl: "any", Route: sim.Direct}},
		Expect:   []sim.Expect{{Invariant: "probe", Impl: "exec:./mine --now", Route: sim.PgBouncerSession}},
		StartsAt: "2026-03-08T01:30:00-05:00",
	}, s)
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	a := write("a.yaml", smallest)
	b := write("b.yaml", strings.Replace(smallest, "replicas: 1", "replicas: none", 1))
	s, err := Load(a)
	require.NoError(t, err)
	require.Equal(t, "smallest", s.Name)

	_, err = Load(filepath.Join(dir, "none.yaml"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Load(dir)
	require.Error(t, err)

	list, err := LoadAll([]string{a})
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = LoadAll([]string{a, b, filepath.Join(dir, "none.yaml")})
	require.ErrorIs(t, err, fs.ErrNotExist)

	_, err = LoadAll([]string{a, b})
	var p *Problems
	require.ErrorAs(t, err, &p)
	require.Len(t, p.List, 2, "the problems of all files, and a name that two of them use")
	require.Contains(t, p.List[0].Text, `the name "smallest" is taken by `+a)
	require.Equal(t, b, p.List[1].File)

	large := write("large.yaml", strings.Repeat("# nothing\n", 200_000))
	_, err = Load(large)
	require.ErrorAs(t, err, &p)
	require.Equal(t, "the file is larger than 1024 KiB, which no scenario is", p.List[0].Text)
}

// hostile is what people with bad intentions, or a bad disk, put into a file.
func hostile() map[string]string {
	n := 200_000
	indented := func() string {
		var b strings.Builder
		for i := range 1000 {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ",") + "]\n"
	}
	return map[string]string{
		"brackets": strings.Repeat("[", n), "braces": strings.Repeat("{a: ", n), "dashes": strings.Repeat("- ", n),
		"questions": strings.Repeat("? ", n), "tags": strings.Repeat("!a ", n), "anchors": strings.Repeat("&a ", n),
		"bomb": bomb, "indented": indented(), "many lines": strings.Repeat("a: b\n", n), "one line": "name: " + strings.Repeat("x", n),
		"documents": strings.Repeat("---\n", n), "open quote": "name: \"" + strings.Repeat("x\n", n), "colons": strings.Repeat("a:", n),
		"binary": string([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0xff, 0xfe}), "utf-16": "\xff\xfen\x00a\x00", "zeros": strings.Repeat("\x00", 100),
		"escape": "name: \x1b[2J", "deep block": strings.Repeat("- - ", 50) + "a", "block scalars": strings.Repeat("a: |\n  x\n", 20_000),
		"merge": "<<: *a", "percent": "%YAML 9.9\n---\na", "directive": "%", "only colon": ":", "dots": "...", "star": "*", "amp": "&", "bang": "!",
		"flow": "{a: [b, {c: d}", "at": "@x", "tick": "`x", "tab": "\t", "carriage": "a: b\rc: d", "mapping key": "? [a]\n: b",
		"nested key": "{[a, b]: c}", "null key": "~: x", "float key": "1.5: x", "empty key": "\"\": x", "huge number": "replicas: 999999999999999999999999",
		"infinite": "replicas: .inf", "negative": "replicas: -9223372036854775808", "far": "duration: 2562047h\nfaults: [{kind: kill, target: leader, window: 2562047h, for: 2562047h}]",
		"overflow": "name: a\nshows: b\nreplicas: 1\nroutes: [direct]\nduration: 24h\nworkload: {rows: 100000, every: 24h}\ninvariants: [a]\n",
	}
}

func TestHostileInputGetsASentence(t *testing.T) {
	for name, src := range hostile() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("hostile.yaml", []byte(src))
			var p *Problems
			require.ErrorAs(t, err, &p)
			require.NotEmpty(t, p.List)
			for _, q := range p.List {
				require.NotContains(t, q.String(), "\x1b", "nothing of the file reaches the terminal raw")
				require.NotContains(t, q.Text, "cannot be read as YAML", "the limits should have turned it away: %s", q.Text)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, src := range hostile() {
		if len(src) < 2000 {
			f.Add([]byte(src))
		}
	}
	seeds, err := filepath.Glob("testdata/problems/*.yaml")
	require.NoError(f, err)
	for _, file := range seeds {
		src, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(src)
	}
	for _, name := range Names() {
		src, _ := Source(name)
		f.Add(src)
	}
	f.Add([]byte(everything))
	f.Add([]byte(foreign))
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("fuzz.yaml", src, Implementations("reference"), Invariants("one-leader"))
		if (s == nil) == (err == nil) {
			t.Fatalf("a scenario or problems, never both or none: %v, %v", s, err)
		}
		if err == nil {
			Resolve(*s)
			return
		}
		var p *Problems
		if !errors.As(err, &p) || len(p.List) == 0 {
			t.Fatalf("not problems: %v", err)
		}
		if bytes.ContainsAny([]byte(p.Error()), "\x1b\x00\x07") {
			t.Fatalf("control characters in %q", p.Error())
		}
	})
}

func TestSuggest(t *testing.T) {
	known := []string{"kill", "pause", "terminate-backend", "one-leader"}
	for got, want := range map[string]string{
		"kil": "kill", "klil": "kill", "KILL": "kill", "puase": "pause", "terminate": "terminate-backend", "oneleader": "one-leader",
		"xyz": "", "": "", "k": "", strings.Repeat("a", 100): "",
	} {
		require.Equal(t, want, nearest(got, known), got)
	}
	require.Equal(t, `did you mean "kill"?`, Suggest("kil", known))
	require.Equal(t, "known: kill, pause, terminate-backend, one-leader", suggestOrList("xyz", known))
	require.Empty(t, suggestOrList("xyz", nil))
}

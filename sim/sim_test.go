package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, events ...Event) (*Recorder, *bytes.Buffer) {
	t.Helper()
	var b bytes.Buffer
	r, err := NewRecorder(&b, Header{Scenario: Scenario{Name: "t"}, Plan: Plan{V: PlanVersion}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		r.Add(e)
	}
	return r, &b
}

// What a recorder wrote is read back, in order of time, and a history that was cut short says so wherever it was cut.
func TestHistoryOnDisk(t *testing.T) {
	t.Parallel()
	r, b := write(t,
		Event{At: 3, Source: FromReplica, Kind: EvLead, Replica: 1, Token: "123456789"},
		Event{At: 1, Source: FromEngine, Kind: EvUp, Replica: 1},
		Event{At: 3, Source: FromLedger, Kind: EvTerm, Token: "123456789"},
		Event{At: 4, Source: FromLedger, Kind: EvTerm, Token: "987"})
	r.Stalled(7)
	r.Stalled(5)
	want, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadHistory(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Complete || got.Stalled != 7 || len(got.Events) != 4 || got.Events[0].Kind != EvUp {
		t.Fatalf("%+v", got)
	}
	if got.Digest() != want.Digest() {
		t.Fatal("the digest changed on the way through the file")
	}
	if got.Events[1].Token != "t1" || got.Events[2].Token != "t1" || got.Events[3].Token != "t2" {
		t.Fatalf("tokens are ordinals: %+v", got.Events)
	}
	if strings.Contains(b.String(), "123456789") {
		t.Fatal("the random token is in the file")
	}
	for n := range b.Len() - 1 { // the last byte is the line's end
		h, err := ReadHistory(bytes.NewReader(b.Bytes()[:n]))
		if err == nil && h.Complete {
			t.Fatalf("cut after %d of %d bytes, it counts as complete", n, b.Len())
		}
		if err != nil && !errors.Is(err, ErrNotHistory) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
	}
}

func TestNotAHistory(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "x", "{}", "[]", `{"v":99}`, `{"v":1}` + "\n{}\n", `{"v":1}` + "\n" + `{"seq":2,"kind":"up"}` + "\n", `{"v":1}` + "\n" + `{"closed":true}` + "\n" + `{"seq":1,"kind":"up"}` + "\n", `{"v":1}` + "\nnonsense\n" + `{"closed":true}` + "\n", "\x00\xff"} {
		if _, err := ReadHistory(strings.NewReader(s)); !errors.Is(err, ErrNotHistory) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// Every event counts for the digest.
func TestDigest(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, e := range []Event{{}, {At: 1}, {Kind: EvLead}, {Kind: EvLead, Replica: 1}, {SQL: "x"}, {BlockedBy: []string{"r1"}}} {
		h := History{Events: []Event{e}}
		seen[h.Digest()] = true
	}
	if len(seen) != 6 {
		t.Fatalf("%d digests of 6 histories", len(seen))
	}
}

func TestDurationsAndRanges(t *testing.T) {
	t.Parallel()
	type all struct {
		D Duration `json:"d"`
		R Range    `json:"r"`
		I IntRange `json:"i"`
	}
	in := all{Duration(1500 * time.Millisecond), Range{Duration(time.Second), Duration(2 * time.Second)}, IntRange{1, 3}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != `{"d":"1.5s","r":"1s..2s","i":"1..3"}` {
		t.Fatal(string(b))
	}
	var out all
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Fatal(out, err)
	}
	for _, bad := range []string{`{"d":"5"}`, `{"d":"x"}`, `{"r":"2s..1s"}`, `{"r":"-1s"}`, `{"r":"1s..x"}`, `{"i":"3..1"}`, `{"i":"-1"}`, `{"i":"1..2..3"}`} {
		if err := json.Unmarshal([]byte(bad), &out); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestSessionNames(t *testing.T) {
	t.Parallel()
	r, i, use, ok := ParseSession(SessionName(12, 3, UseLease, 45))
	if r != 12 || i != 3 || use != UseLease || !ok {
		t.Fatal(r, i, use, ok)
	}
	for _, s := range []string{"", "psql", "r1/1/lease", "r1/1/lease/x", "r1/1/lease/1/1", "x1/1/lease/1", "r/1/lease/1"} {
		if _, _, _, ok := ParseSession(s); ok {
			t.Errorf("%q is no session of ours", s)
		}
	}
}

// A verdict that nobody set, or that cannot be read, is inconclusive.
func TestStatus(t *testing.T) {
	t.Parallel()
	var v Verdict
	if v.Status != StatusInconclusive {
		t.Fatal(v.Status)
	}
	for _, s := range []Status{StatusHeld, StatusViolated, StatusInconclusive} {
		b, err := json.Marshal(s)
		var back Status
		if err != nil || json.Unmarshal(b, &back) != nil || back != s {
			t.Fatal(s, back)
		}
	}
	s := StatusHeld
	if err := json.Unmarshal([]byte(`"fine"`), &s); err != nil || s != StatusInconclusive {
		t.Fatal(s, err)
	}
}

func TestExpectAndRequire(t *testing.T) {
	t.Parallel()
	s := Scenario{
		Expect:  []Expect{{Invariant: "b"}, {Invariant: "a", Impl: "flaw"}, {Invariant: "c", Impl: "flaw", Route: Direct}, {Invariant: "b", Impl: "any"}},
		Require: []Require{{What: Elections, AtLeast: 1, Impl: "reference"}, {What: Publishes, AtLeast: 2}},
	}
	if got := strings.Join(s.ExpectFor("flaw", Direct), " "); got != "a b c" {
		t.Error(got)
	}
	if got := strings.Join(s.ExpectFor("flaw", PgBouncerSession), " "); got != "a b" {
		t.Error(got)
	}
	if got := len(s.RequireFor("reference", Direct)); got != 2 {
		t.Error(got)
	}
	if got := len(s.RequireFor("flaw", Direct)); got != 1 {
		t.Error(got)
	}
}

func TestFaultInWords(t *testing.T) {
	t.Parallel()
	for f, want := range map[*Fault]string{
		{Kind: Pause, Target: TargetLeader, At: Duration(20 * time.Second), For: Duration(12 * time.Second)}: "pause the leader at 20s for 12s",
		{Kind: Kill, Target: "2", At: Duration(time.Second)}:                                                 "kill r2 at 1s",
		{Kind: CutReply, Target: TargetAll, After: &Trigger{Pattern: "commit", Nth: 3}}:                      `cut-reply all replicas just after "commit" number 3 after 0s`,
	} {
		if f.String() != want {
			t.Errorf("%q, want %q", f.String(), want)
		}
	}
}

// Every fault an engine says it can do is described, and found by its name.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, f := range Faults {
		if got, ok := FaultByKind(f.Kind); !ok || got != f || f.Does == "" || !f.Live && !f.Virtual {
			t.Errorf("%+v", f)
		}
	}
	if _, ok := FaultByKind("no-such-fault"); ok {
		t.Error("found")
	}
}

func TestExplorationInWords(t *testing.T) {
	for want, x := range map[string]Exploration{
		"all interleavings: 6, and 3 equivalent to one of them left out":                                              {Within: 4, Depth: 4, Interleavings: 6, Equivalent: 3, Complete: true},
		"all interleavings of the first 4 choices: 6, and 3 equivalent to one of them left out":                       {Within: 4, Depth: 4, Interleavings: 6, Equivalent: 3},
		"all interleavings of the first 4 choices; of the first 8 so far 6, and 3 equivalent to one of them left out": {Within: 4, Depth: 8, Interleavings: 6, Equivalent: 3},
		"of the interleavings of the first 4 choices so far 6, and 3 equivalent to one of them left out":              {Depth: 4, Interleavings: 6, Equivalent: 3},
	} {
		if got := x.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

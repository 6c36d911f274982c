package live

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// A replica says what it did and believed. What only the engine or the server can know is not its to tell, and is not taken from it.
func TestAReportSpeaksForItselfOnly(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	rep, err := parseReport([]byte(`{"kind":"lead","seq":9,"at":"1h","at_lo":"1s","at_hi":"2s","source":"engine","replica":7,"incarnation":8,"commit":3,"fault":1,` +
		`"targets":[1],"sql":"x","lasts":"1s","blocked_by":["r1"],"route":"direct","role":"publish","key":5,"term":2,"token":"t","session":"r1/2/lease/1","trusted":"3s","unix_ns":1700000001000000000}` + "\n"))
	require.NoError(t, err)
	e, err := rep.event(1, 2, start, 0, 1500*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, sim.Event{
		At: 1e9, Source: sim.FromReplica, Kind: sim.EvLead, Replica: 1, Incarnation: 2, Session: "r1/2/lease/1", Role: "publish", Key: 5, Term: 2, Token: "t", Trusted: 3e9,
	}, e)
	rep, err = parseReport([]byte(`{"kind":"note","text":"` + strings.Repeat("é", 2000) + `"}`))
	require.NoError(t, err)
	e, err = rep.event(1, 2, start, 0, time.Second)
	require.NoError(t, err)
	require.Equal(t, sim.Duration(time.Second), e.At, "without a time, when it arrived")
	require.Equal(t, maxText+3, len([]rune(e.Text)), "long texts are cut")
}

// Whatever the words of the protocol may be, they are accepted; the vocabulary knows every kind.
func TestTheVocabulary(t *testing.T) {
	t.Parallel()
	require.Len(t, vocabularies, len(sim.ReplicaKinds))
	for _, kind := range sim.ReplicaKinds {
		v, ok := vocabularies[kind]
		require.True(t, ok, kind)
		for op, answers := range v.ops {
			r := report{Event: sim.Event{Kind: kind, Op: op, Row: 1, Session: "r1/1/lease/1"}}
			if len(answers) == 0 {
				_, err := r.event(1, 1, time.Now(), 0, 0)
				require.NoError(t, err, "%s %s", kind, op)
			}
			for _, a := range answers {
				r.Answer, r.Outcome = a, ""
				if v.outcomes {
					r.Answer, r.Outcome = "", a
				}
				_, err := r.event(1, 1, time.Now(), 0, 0)
				require.NoError(t, err, "%s %s %s", kind, op, a)
			}
		}
	}
}

// No line makes the reader panic, and no line is taken for an event of somebody else's.
func FuzzReport(f *testing.F) {
	for _, s := range []string{
		"", "{}", "null", "[]", "1", `{"kind":"lead","term":1}`, `{"kind":"effect","op":"begin","row":-1}`, `{"hello":1}`, `{"kind":"tick","op":"end","outcome":"ok","n":3}`,
		`{"kind":"lead","unix_ns":9223372036854775807}`, `{"kind":"lead","unix_ns":-9223372036854775808}`, `{"kind":""}`, "{\"kind\":\"note\",\"text\":\"\x00\xff\"}",
	} {
		f.Add([]byte(s))
	}
	start := time.Now()
	f.Fuzz(func(t *testing.T, line []byte) {
		rep, err := parseReport(line)
		if err != nil {
			return
		}
		e, err := rep.event(3, 4, start, 0, time.Second)
		if err != nil {
			return
		}
		if e.Replica != 3 || e.Incarnation != 4 || e.Source != sim.FromReplica || e.Commit != 0 || e.AtHi != 0 {
			t.Fatalf("%+v", e)
		}
		if at := e.At.D(); at < -clockSlack || at > time.Second+clockSlack {
			t.Fatalf("at %s", at)
		}
	})
}

func TestTheMeter(t *testing.T) {
	t.Parallel()
	var m meter
	for range maxRate {
		require.False(t, m.over(time.Second))
	}
	require.True(t, m.over(time.Second+1))
	require.False(t, m.over(2*time.Second+1), "a new second")
}

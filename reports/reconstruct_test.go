package reports

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

func sentences(list []stretch) (out []string) {
	for _, s := range list {
		out = append(out, s.words)
	}
	return out
}

func TestChart(t *testing.T) {
	h, _ := pausedLeader(t).history(t)
	c := chart(h)
	require.Equal(t, []int{1, 2}, c.replicas, "a replica that never did anything has no lane")
	require.Equal(t, []string{"r1 leads, term 1 from 0.525s to 70.000s, 69.475s", "r2 leads, term 2 from 21.275s to 70.000s, 48.725s"}, sentences(c.beliefs))
	require.Equal(t, []string{"r1 is paused from 12.000s to 28.000s, 16s"}, sentences(c.pauses))
	require.Equal(t, []string{"on the server, r1 holds the lock from 0.508s to 17.003s, 16.495s", "on the server, r2 holds the lock from 21.258s to 70.030s, 48.772s"}, sentences(c.holds))
	require.Equal(t, []string{"fault 1, pause, from 12.001s to 28.001s, 16s", "fault 2, terminate-backend, at 17.004s"}, sentences(c.faults))
	require.Equal(t, []string{"r1 and r2 lead at the same time from 28.000s to 70.000s, 42s"}, sentences(c.twice), "who is paused does not act")
	require.Empty(t, c.trust)

	h, _ = killLeader(t).history(t)
	c = chart(h)
	require.Equal(t, []string{"r1 leads, term 1 from 0.525s to 20.000s, 19.475s", "r2 leads, term 2 from 21.275s to 70.000s, 48.725s"}, sentences(c.beliefs), "death ends belief")
	require.Empty(t, c.twice)
	require.Len(t, c.lives, 4, "three replicas, one of them twice")
}

func TestChartOfTrustThatRanOut(t *testing.T) {
	h, _ := (&writer{header: sim.Header{Engine: "live"}, events: []sim.Event{
		{At: at(1), Kind: sim.EvUp, Replica: 1, Incarnation: 1},
		{At: at(2), Kind: sim.EvLead, Replica: 1, Incarnation: 1, Trusted: at(5)},
		{At: at(4), Kind: sim.EvBeat, Answer: sim.BeatOK, Replica: 1, Incarnation: 1, Trusted: at(7)},
		{At: at(8), Kind: sim.EvLead, Replica: 2, Incarnation: 1, Trusted: at(99)},
		{At: at(9), Kind: sim.EvHeld, Session: "?"},
		{At: at(10), Kind: sim.EvNote},
	}}).history(t)
	c := chart(h)
	require.Equal(t, []string{"r1 may not act as leader any more from 7.000s to 10.000s, 3s: its trust has run out"}, sentences(c.trust))
	require.Empty(t, c.twice, "without trust nobody acts")
	require.Equal(t, []string{"r1 lives from 1.000s until the end of the run"}, sentences(c.lives))
	require.Equal(t, []string{"on the server, ? holds the lock from 9.000s until the end of the run"}, sentences(c.holds))
}

func TestSnapshots(t *testing.T) {
	h, _ := pausedLeader(t).history(t)
	states, after := snapshots(h, []int{1, 2})
	at := func(kind sim.EventKind, replica int) snapshot {
		for _, e := range h.Events {
			if e.Kind == kind && e.Replica == replica {
				return states[after[e.Seq]]
			}
		}
		t.Fatalf("no %s of r%d", kind, replica)
		return snapshot{}
	}
	require.Equal(t, snapshot{Replicas: [][2]string{{"up", "r1 stands by"}, {"down", "r2 is down"}}, Lock: "nobody"}, at(sim.EvUp, 1))
	require.Equal(t, snapshot{Replicas: [][2]string{{"lead paused", "r1 leads, term 1, paused"}, {"up", "r2 stands by"}}, Lock: "r1"}, at(sim.EvPaused, 1))
	require.Equal(t, snapshot{Replicas: [][2]string{{"lead paused", "r1 leads, term 1, paused"}, {"lead", "r2 leads, term 2"}}, Lock: "r2", Faults: "pause"}, at(sim.EvLead, 2))
	require.Len(t, after, len(h.Events))
	require.Less(t, len(states), 25, "only what changes is kept")
}

func TestKeep(t *testing.T) {
	p := sample(t)
	list := exhibits(p)
	require.Len(t, list, 3)
	require.Equal(t, []string{"pause-leader-terminated", "two-leaders-pooler", "kill-leader"}, []string{list[0].entry.Name, list[1].entry.Name, list[2].entry.Name},
		"what nobody expected first, then what was expected, then what passed")
	x := list[0]
	require.NotNil(t, x.violation)
	require.NotEmpty(t, x.violation.Events, "the judge was asked about this very history")
	kept := x.keep(40)
	require.Len(t, kept, 40)
	seen := map[int]bool{}
	for i, e := range kept {
		seen[e.Seq] = true
		if i > 0 {
			require.LessOrEqual(t, kept[i-1].At, e.At, "in order")
		}
	}
	for _, seq := range x.violation.Events {
		require.True(t, seen[seq], "what the violation rests on stays")
	}
	for _, e := range kept {
		require.NotEqual(t, sim.EvStatement, e.Kind, "statements go first")
	}
	require.Len(t, x.keep(1_000_000), len(x.h.Events))
}

func TestNiceStep(t *testing.T) {
	for in, want := range map[float64]float64{7: 10, 0.24: 0.5, 1: 1, 2.1: 5, 0.0001: 0.0001, 0: 1} {
		require.InEpsilon(t, want, niceStep(in), 1e-9)
	}
}

// What is looked at first begins before the fault and goes on until a second leader is seen, if there soon is one.
func TestFocus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		twice []stretch
		want  [2]string
	}{
		"none":   {nil, [2]string{ms(at(7.5)), ms(at(13.75))}},
		"soon":   {[]stretch{{from: at(14), to: at(50)}}, [2]string{ms(at(7.5)), ms(at(17.75))}},
		"before": {[]stretch{{from: at(2), to: at(12)}}, [2]string{ms(at(7.5)), ms(at(13.75))}},
		"later":  {[]stretch{{from: at(40), to: at(50)}}, [2]string{ms(at(7.5)), ms(at(13.75))}},
	} {
		var p timeline
		d := &drawer{timeline: &p, c: &course{end: at(50), twice: c.twice, faults: []stretch{{from: at(10), to: at(10)}}}}
		d.focus(&sim.Violation{At: at(10)})
		require.Equal(t, c.want, [2]string{p.FocusA, p.FocusB}, name)
	}
}

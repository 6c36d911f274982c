package live

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What is slower than a heartbeat may be stays so, although the deadline has a floor here.
func TestLatencyAndTheHeartbeat(t *testing.T) {
	t.Parallel()
	adds := func(deadline time.Duration) time.Duration {
		sc := sim.Scenario{Intervals: sim.Intervals{BeatDeadline: sim.Duration(deadline)}}
		w := &world{e: &Engine{cfg: Config{TimeScale: DefaultTimeScale}}, run: sim.Run{Scenario: sc}, intervals: scaleIntervals(sc.Intervals, DefaultTimeScale)}
		return w.latencyAdds()
	}
	require.Equal(t, 20*time.Millisecond, adds(5*time.Second))
	require.Equal(t, 500*time.Millisecond, adds(500*time.Millisecond))
	require.Equal(t, 20*time.Millisecond, adds(time.Second), "both ways take no longer than a heartbeat may")
}

// A fault at a statement of all replicas is also about those that have not started.
func TestTargetsByName(t *testing.T) {
	t.Parallel()
	w := &world{replicas: []*replica{{id: 1, up: true}, {id: 2}, {id: 3}}}
	ids := func(rs []*replica) (out []int) {
		for _, r := range rs {
			out = append(out, r.id)
		}
		return out
	}
	require.Equal(t, []int{1, 2, 3}, ids(w.named(sim.TargetAll)))
	require.Equal(t, []int{2}, ids(w.named(sim.Target("2"))))
	require.Empty(t, w.named(sim.TargetLeader))
	require.Equal(t, []int{1}, ids(w.meant(sim.TargetAll)))
}

package live

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
)

func (w *world) disconnect(_ context.Context, r *replica, _ int) (injection, error) {
	n := r.link.Cut(netfault.FIN)
	if n == 0 {
		return injection{}, errMoot("it had no open connection")
	}
	return injection{proof: fmt.Sprintf("%d connections closed on both sides", n)}, nil
}

func (w *world) blackHole(_ context.Context, r *replica, _ int) (injection, error) {
	n := r.link.Open()
	r.link.Set(netfault.Both, netfault.Hold)
	heal := func(context.Context) error { r.link.Set(netfault.Both, netfault.Pass); return nil }
	return injection{fmt.Sprintf("both directions of %d open connections are held", n), heal}, nil
}

// halfOpen hides the client from the server. Healing lets what was sent meanwhile arrive, unless the server has given up by then.
func (w *world) halfOpen(_ context.Context, r *replica, _ int) (injection, error) {
	n, err := r.link.HalfOpen(true)
	if err != nil {
		return injection{}, fmt.Errorf("make the link of replica %d half open: %w", r.id, err)
	}
	if n == 0 {
		return injection{}, errMoot("it had no open connection")
	}
	heal := func(context.Context) error {
		_, err := r.link.HalfOpen(false)
		return err
	}
	return injection{fmt.Sprintf("%d sockets drop what the server sends and send nothing", n), heal}, nil
}

func (w *world) latency(_ context.Context, r *replica, _ int) (injection, error) {
	d := w.latencyAdds()
	r.link.Delay(netfault.Both, d)
	heal := func(context.Context) error { r.link.Delay(netfault.Both, 0); return nil }
	return injection{fmt.Sprintf("each way of the link takes %s more", d), heal}, nil
}

// latencyAdds is sim.LatencyAdds as scaled. Where a scenario's heartbeats have less time than it adds, both ways together, that stays so
// though their deadline here has a floor.
func (w *world) latencyAdds() time.Duration {
	d := scaled(sim.LatencyAdds, w.e.cfg.TimeScale)
	if deadline := w.run.Scenario.Intervals.WithDefaults().BeatDeadline; 2*sim.LatencyAdds > deadline {
		d = max(d, scaled(sim.LatencyAdds, float64(w.intervals.BeatDeadline)/float64(deadline)))
	}
	return d.D()
}

// slowBytes is a rate at which an answer of a hundred bytes takes about as long as sim.SlowAdds says at the default time scale.
const slowBytes = 1500

func (w *world) slow(_ context.Context, r *replica, _ int) (injection, error) {
	r.link.Slow(netfault.Down, slowBytes)
	heal := func(context.Context) error { r.link.Slow(netfault.Down, 0); return nil }
	return injection{fmt.Sprintf("answers pass at %d bytes a second", slowBytes), heal}, nil
}

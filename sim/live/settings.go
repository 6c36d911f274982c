package live

import (
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// DefaultTimeScale turns the reference's 5 s retry interval into 200 ms and a scenario of 75 s into 3 s.
const DefaultTimeScale = 0.04

// allowance is what a message's delivery, an attempt and a first tick may take on a busy machine; it is C of failover
// (semantics.md, 4) and printed with every verdict it decides. Longer stalls are measured and make such verdicts inconclusive.
const allowance = 250 * time.Millisecond

// Floors below which a wait no longer measures the implementation but the machine: the slowest of 16,000 probes took
// 76 ms (pooler-facts.md, C), on a machine less busy than a CI runner.
const (
	minBeatDeadline = 500 * time.Millisecond
	minProbeWait    = time.Second
	minStopGrace    = 500 * time.Millisecond
)

func scaled(d sim.Duration, by float64) sim.Duration { return sim.Duration(float64(d) * by) }

// scaleIntervals is what the replicas are really given.
func scaleIntervals(i sim.Intervals, by float64) sim.Intervals {
	i = i.WithDefaults()
	floor := func(d sim.Duration, min time.Duration) sim.Duration { return max(scaled(d, by), sim.Duration(min)) }
	out := sim.Intervals{
		Retry: scaled(i.Retry, by), Beat: scaled(i.Beat, by), Tick: scaled(i.Tick, by), TTL: scaled(i.TTL, by),
		BeatDeadline: floor(i.BeatDeadline, minBeatDeadline),
		ProbeWait:    floor(i.ProbeWait, minProbeWait),
		StopGrace:    floor(i.StopGrace, minStopGrace),
	}
	if i.TTL > 0 {
		// The client must give up before the server does (semantics.md, 2).
		out.TTL = max(out.TTL, out.Beat+out.BeatDeadline+out.StopGrace)
	}
	return out
}

// scalePlan is the plan as it is carried out; statements' delays are not injected in this engine.
func scalePlan(p sim.Plan, by float64) sim.Plan {
	q := p
	q.Horizon = scaled(p.Horizon, by)
	q.Phase = nil
	for _, d := range p.Phase {
		q.Phase = append(q.Phase, scaled(d, by))
	}
	q.Faults = nil
	for _, f := range p.Faults {
		f.At, f.For = scaled(f.At, by), scaled(f.For, by)
		q.Faults = append(q.Faults, f)
	}
	return q
}

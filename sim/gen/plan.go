package gen

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"slices"
	"time"

	_ "github.com/seed-aafb3a99/simrun/internal/rapidenv" // before rapid
	"github.com/seed-aafb3a99/simrun/sim"
	"pgregory.net/rapid"
)

// The grids on which times are drawn. Coarse ones let a failing plan shrink in few runs, and let two faults coincide.
const (
	faultGrid = 500 * time.Millisecond
	delayGrid = time.Millisecond
	maxDelay  = 20 // of delayGrid: a round trip of up to 40 ms, so that statements of replicas overlap
	phaseGrid = 50 * time.Millisecond
	// phaseStep keeps the phases of replicas apart whatever was drawn: timers of two replicas that are due at the same
	// instant for ever would make every run a tie.
	phaseStep = 7 * time.Millisecond
	maxPick   = 3
)

// A Strategy is a way to choose interleavings. Faults, windows and phases are drawn alike by all.
type Strategy string

// The strategies.
const (
	// Random gives each replica a list of delays for its requests and their answers, which repeats.
	Random Strategy = "random"
	// PCT is probabilistic concurrency testing; see pct.go for what it promises.
	PCT Strategy = "pct"
)

// Plan draws plan i of seed by the random strategy.
func Plan(s sim.Scenario, seed uint64, i int) sim.Plan { return Draw(Random, s, seed, i) }

// Draw draws plan i of seed. Plan 0 of a scenario that brings a plan is that one.
func Draw(by Strategy, s sim.Scenario, seed uint64, i int) sim.Plan {
	if s.Plan != nil && i == 0 {
		return *s.Plan
	}
	return plans(by, s).Example(int(caseSeed(s, seed, i)))
}

// caseSeed is the seed of one plan for rapid; positive, since rapid takes an int and reads 0 as "random".
func caseSeed(s sim.Scenario, seed uint64, i int) uint64 {
	h := fnv.New64a()
	// The scenario's name and what it may do; its expectations and words change no plan.
	b, err := json.Marshal([]any{s.Name, seed, i, s.Replicas, s.Phase, s.Faults, s.Duration})
	if err != nil {
		panic(err) // values of these types always have a JSON form
	}
	h.Write(b)
	return h.Sum64()>>1 | 1
}

func plans(by Strategy, s sim.Scenario) *rapid.Generator[sim.Plan] {
	return rapid.Custom(func(t *rapid.T) sim.Plan {
		p := sim.Plan{V: sim.PlanVersion, Horizon: s.Duration, Faults: []sim.Fault{}}
		for _, spec := range s.Faults {
			// Small draws leave the fault out, so that shrinking does.
			if spec.Weight > 0 && rapid.IntRange(0, 9).Draw(t, "weight") < 10-spec.Weight {
				continue
			}
			lo, hi := 1, 1
			if !spec.Count.IsZero() {
				lo, hi = spec.Count.From, spec.Count.To
			}
			p.Faults = append(p.Faults, rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sim.Fault { return fault(t, spec) }), lo, hi).Draw(t, "faults")...)
		}
		slices.SortStableFunc(p.Faults, byTime)
		phase := s.Phase
		if phase.IsZero() {
			phase.To = s.Intervals.WithDefaults().Retry
		}
		for r := range s.Replicas {
			d := onGrid(t, "phase", phase, phaseGrid)
			p.Phase = append(p.Phase, d+sim.Duration(time.Duration(r)*phaseStep))
			if by == Random {
				p.Delays = append(p.Delays, rapid.SliceOfN(rapid.Custom(delay), 0, 6).Draw(t, "delays"))
			}
		}
		if by == PCT {
			p.Delays = priorities(t, s.Replicas)
		}
		p.Picks = rapid.SliceOfN(rapid.IntRange(0, maxPick), 0, 16).Draw(t, "picks")
		return p
	})
}

func byTime(a, b sim.Fault) int { return cmp.Compare(a.At, b.At) }

func fault(t *rapid.T, spec sim.FaultSpec) sim.Fault {
	f := sim.Fault{Kind: spec.Kind, Target: spec.Target, At: onGrid(t, "at", spec.Window, faultGrid)}
	if !spec.For.IsZero() {
		f.For = onGrid(t, "for", spec.For, faultGrid)
	}
	trigger := func(s *sim.TriggerSpec) *sim.Trigger {
		if s == nil {
			return nil
		}
		n := s.Nth
		if n.IsZero() {
			n = sim.IntRange{From: 1, To: 1}
		}
		return &sim.Trigger{Pattern: s.Pattern, Nth: rapid.IntRange(n.From, n.To).Draw(t, "nth")}
	}
	f.Before, f.After = trigger(spec.Before), trigger(spec.After)
	return f
}

// onGrid draws a time of the range, in steps of grid from its start.
func onGrid(t *rapid.T, label string, r sim.Range, grid time.Duration) sim.Duration {
	steps := int((r.To - r.From).D() / grid)
	return r.From + sim.Duration(time.Duration(rapid.IntRange(0, steps).Draw(t, label))*grid)
}

func delay(t *rapid.T) sim.Delay {
	one := func(label string) sim.Duration {
		return sim.Duration(time.Duration(rapid.IntRange(0, maxDelay).Draw(t, label)) * delayGrid)
	}
	return sim.Delay{Req: one("req"), Resp: one("resp")}
}

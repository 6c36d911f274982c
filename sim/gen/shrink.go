package gen

import (
	"context"
	"flag"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"pgregory.net/rapid"
)

// Shrunk is what Shrink found.
type Shrunk struct {
	Plan  sim.Plan
	Runs  int  // how many distinct plans were carried out
	Found bool // the first plan failed again, so there was something to shrink
}

// Shrink looks for the smallest plan that still fails, starting from plan i of seed by the strategy it was drawn with. fails carries out a plan and reports whether it
// still breaks the invariant that was violated first; it is asked once per distinct plan. When ctx ends, the smallest
// plan found so far is returned.
//
// One call at a time: rapid keeps its settings in globals.
func Shrink(ctx context.Context, by Strategy, s sim.Scenario, seed uint64, i int, fails func(sim.Plan) bool) Shrunk {
	rapidMu.Lock()
	defer rapidMu.Unlock()
	restore := settings(map[string]string{
		"rapid.seed":       strconv.FormatUint(caseSeed(s, seed, i), 10),
		"rapid.checks":     "1",
		"rapid.nofailfile": "true",
		"rapid.failfile":   "",
		"rapid.shrinktime": "24h", // ctx is the limit: rapid looks at its own only between passes
		"rapid.v":          "false",
		"rapid.log":        "false",
	})
	defer restore()

	var out Shrunk
	seen := map[string]bool{}
	try := func(p sim.Plan) bool {
		key := p.Key()
		failed, known := seen[key]
		if !known {
			if ctx.Err() != nil {
				return false // out of time: nothing smaller is looked for any more
			}
			out.Runs++
			failed = fails(p)
			seen[key] = failed
		}
		if failed {
			out.Plan, out.Found = p, true
		}
		return failed
	}
	// rapid re-runs its final answer last, so the last failing plan is the minimal one. Verdicts are remembered, also
	// because rapid gives up on a plan that fails once and holds once.
	prop := func(t *rapid.T) {
		if try(plans(by, s).Draw(t, "plan")) {
			t.Fatalf("violated") // constant: rapid compares the text
		}
	}
	done := make(chan struct{})
	go func() { // FailNow ends the goroutine
		defer close(done)
		rapid.Check(&quietTB{name: "simrun shrink (no such folder)"}, prop)
	}()
	<-done
	if out.Found {
		out.drop(try)
	}
	return out
}

// Reduce looks for a smaller plan of s that still fails, for one that no seed leads to, or that fails only now and then. It asks for
// few runs: first without each fault, then with rounder times of those that are left. When ctx ends, the smallest found so far is returned.
func Reduce(ctx context.Context, s sim.Scenario, p sim.Plan, fails func(sim.Plan) bool) sim.Plan {
	out := Shrunk{Plan: p, Found: true}
	try := func(p sim.Plan) bool {
		if ctx.Err() != nil || !fails(p) {
			return false
		}
		out.Plan = p
		return true
	}
	out.drop(try)
	for i := range out.Plan.Faults {
		for _, field := range []func(*sim.Fault) *sim.Duration{
			func(f *sim.Fault) *sim.Duration { return &f.At }, func(f *sim.Fault) *sim.Duration { return &f.For },
		} {
			f := out.Plan.Faults[i]
			now := *field(&f)
			for _, d := range rounder(now, func(d sim.Duration) bool {
				*field(&f) = d
				return slices.ContainsFunc(s.Faults, func(spec sim.FaultSpec) bool { return may(spec, f) })
			}) {
				p := out.Plan
				p.Faults = slices.Clone(p.Faults)
				*field(&p.Faults[i]) = d
				if slices.IsSortedFunc(p.Faults, byTime) && try(p) { // a fault's number is its place in time
					break
				}
			}
		}
	}
	// The fewest choices, and the first step wherever that does as well.
	for n := len(out.Plan.Picks) / 2; n > 0; n /= 2 {
		for len(out.Plan.Picks) >= n {
			p := out.Plan
			p.Picks = p.Picks[:len(p.Picks)-n]
			if !try(p) {
				break
			}
		}
	}
	for i := range out.Plan.Picks {
		if out.Plan.Picks[i] != 0 {
			p := out.Plan
			p.Picks = slices.Clone(p.Picks)
			p.Picks[i] = 0
			try(p)
		}
	}
	return out.Plan
}

// rounder are times near d that a person finds simpler to read, the simplest first, and that are allowed.
func rounder(d sim.Duration, allowed func(sim.Duration) bool) (simpler []sim.Duration) {
	for _, unit := range []time.Duration{10 * time.Second, 5 * time.Second, time.Second} {
		if d.D()%unit == 0 {
			return simpler
		}
		for _, r := range []time.Duration{d.D().Round(unit), d.D().Truncate(unit), d.D().Truncate(unit) + unit} {
			if r := sim.Duration(r); allowed(r) && !slices.Contains(simpler, r) {
				simpler = append(simpler, r)
				break
			}
		}
	}
	return simpler
}

// may says whether f can be drawn from spec, but for the grid.
func may(spec sim.FaultSpec, f sim.Fault) bool {
	in := func(d sim.Duration, r sim.Range) bool { return d >= r.From && d <= r.To }
	return spec.Kind == f.Kind && spec.Target == f.Target && in(f.At, spec.Window) && in(f.For, spec.For)
}

// drop removes what the scenario's own counts kept rapid from removing: a person would have left it out.
func (o *Shrunk) drop(try func(sim.Plan) bool) {
	for i := len(o.Plan.Faults) - 1; i >= 0; i-- {
		p := o.Plan
		p.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		try(p) // adopts p when it still fails
	}
	if len(o.Plan.Picks) > 0 {
		p := o.Plan
		p.Picks = nil
		try(p)
	}
	for r := range o.Plan.Delays {
		p := o.Plan
		p.Delays = slices.Clone(p.Delays)
		p.Delays[r] = []sim.Delay{}
		try(p)
	}
}

var (
	rapidMu  sync.Mutex
	initOnce sync.Once
)

// settings sets flags of rapid and returns what puts the old values back. Outside "go test" the testing flags have to
// exist and to be parsed, or rapid's testing.Short panics.
func settings(want map[string]string) (restore func()) {
	initOnce.Do(func() {
		if !testing.Testing() {
			testing.Init()
			if !flag.Parsed() {
				_ = flag.CommandLine.Parse(nil)
			}
		}
	})
	old := map[string]string{}
	for name, v := range want {
		f := flag.Lookup(name)
		if f == nil {
			panic("rapid has no flag " + name) // the version is pinned in go.mod
		}
		old[name] = f.Value.String()
		if err := f.Value.Set(v); err != nil {
			panic(err)
		}
	}
	return func() {
		for name, v := range old {
			_ = flag.Lookup(name).Value.Set(v)
		}
	}
}

// quietTB is a rapid.TB that only remembers whether it failed.
type quietTB struct {
	name   string
	failed bool
}

func (*quietTB) Helper()                 {}
func (t *quietTB) Name() string          { return t.name }
func (*quietTB) Logf(string, ...any)     {}
func (*quietTB) Log(...any)              {}
func (t *quietTB) Skipf(string, ...any)  { t.SkipNow() }
func (t *quietTB) Skip(...any)           { t.SkipNow() }
func (*quietTB) SkipNow()                { runtime.Goexit() }
func (t *quietTB) Errorf(string, ...any) { t.failed = true }
func (t *quietTB) Error(...any)          { t.failed = true }
func (t *quietTB) Fatalf(string, ...any) { t.FailNow() }
func (t *quietTB) Fatal(...any)          { t.FailNow() }
func (t *quietTB) FailNow()              { t.failed = true; runtime.Goexit() }
func (t *quietTB) Fail()                 { t.failed = true }
func (t *quietTB) Failed() bool          { return t.failed }

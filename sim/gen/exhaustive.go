package gen

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// An Explorer goes through every interleaving of one plan's faults, depth first, and leaves out those that only change the
// order of independent steps: the sleep sets of Godefroid (Partial-Order Methods for the Verification of Concurrent
// Systems, 1996), which keep one interleaving of each equivalence class. A step that touches nothing goes at once: it is a
// persistent set by itself.
//
// What is interleaved is what replicas do at one instant: the plan's delays are zero and all replicas start together, so
// that everything they do at the start, after a fault and at a common deadline meets. Orders that only a delay across a timer
// makes possible are left to the other strategies.
//
//	x := NewExplorer(plan, depth)
//	for x.Next() {
//		run.Plan, run.Choose = x.Plan(), x.Choose
//		... carry it out, until x.Redundant() says that the rest repeats what was seen ...
//	}
//
// Afterwards x.Plan holds the picks of the run, so that it can be had again without the explorer.
type Explorer struct {
	base  sim.Plan
	depth int

	path      []point // choices of the present run
	at        int     // the next one
	sleep     map[string]sim.Step
	redundant bool
	began     bool
	err       error

	// What was covered so far.
	Runs    int  // interleavings carried out to the end
	Skipped int  // runs broken off, since what they would have shown had been seen in another order
	Asleep  int  // choices left out for the same reason before they began a run
	Bounded bool // a run had more choices than the bound: beyond it only the first was taken
}

// A point is a choice between several steps.
type point struct {
	steps  []sim.Step
	sleep  map[string]sim.Step // when it was reached
	chosen int
	done   []int // those tried before
	only   bool  // the others need not be tried here
}

// NewExplorer explores plan's interleavings to a depth of so many choices.
func NewExplorer(plan sim.Plan, depth int) *Explorer {
	plan.Delays, plan.Phase, plan.Picks = nil, []sim.Duration{0}, nil
	return &Explorer{base: plan, depth: depth}
}

// Next prepares the next interleaving. It is false when all have been seen.
func (x *Explorer) Next() bool {
	if x.err != nil {
		return false
	}
	if x.began {
		if x.redundant {
			x.Skipped++
		} else {
			x.Runs++
		}
		for len(x.path) > 0 && !x.advance(&x.path[len(x.path)-1]) {
			x.path = x.path[:len(x.path)-1]
		}
		if len(x.path) == 0 {
			return false
		}
	}
	x.began, x.at, x.redundant, x.sleep = true, 0, false, map[string]sim.Step{}
	return true
}

// advance goes to the next alternative of a point.
func (x *Explorer) advance(p *point) bool {
	if p.only {
		return false
	}
	p.done = append(p.done, p.chosen)
	for i := p.chosen + 1; i < len(p.steps); i++ {
		if _, asleep := p.sleep[p.steps[i].Session]; asleep {
			x.Asleep++
			p.done = append(p.done, i)
			continue
		}
		p.chosen = i
		return true
	}
	return false
}

// Choose is for sim.Run: it says which of the steps goes next.
func (x *Explorer) Choose(next []sim.Step) int {
	if len(next) == 1 {
		x.follow(next[0])
		return 0
	}
	if x.at < len(x.path) {
		p := &x.path[x.at]
		x.at++
		if !alike(p.steps, next) {
			x.err = fmt.Errorf("the same choices led to other steps: %v before, %v now", p.steps, next)
			x.redundant = true
			return 0
		}
		x.sleep = maps.Clone(p.sleep)
		for _, i := range p.done {
			x.sleep[p.steps[i].Session] = p.steps[i]
		}
		x.follow(next[p.chosen])
		return p.chosen
	}
	asleep := func(s sim.Step) bool { _, yes := x.sleep[s.Session]; return yes }
	p := point{steps: next, sleep: maps.Clone(x.sleep)}
	if p.chosen = slices.IndexFunc(next, sim.Step.Alone); p.chosen >= 0 {
		p.only = true
	} else if p.chosen = slices.IndexFunc(next, func(s sim.Step) bool { return !asleep(s) }); x.branches() >= x.depth {
		x.Bounded, p.only = true, true
	}
	if p.chosen < 0 {
		x.redundant = true
		return 0
	}
	x.path = append(x.path, p)
	x.at++
	x.follow(next[p.chosen])
	return p.chosen
}

// branches are the choices so far between steps that have something to do with others.
func (x *Explorer) branches() (n int) {
	for _, p := range x.path {
		if !p.only {
			n++
		}
	}
	return n
}

// follow notes that a step is carried out: it wakes those that depend on it.
func (x *Explorer) follow(s sim.Step) {
	if _, asleep := x.sleep[s.Session]; asleep {
		x.redundant = true
	}
	for k, z := range x.sleep {
		if !z.Independent(s) {
			delete(x.sleep, k)
		}
	}
}

func alike(a, b []sim.Step) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Session != b[i].Session {
			return false
		}
	}
	return true
}

// Redundant reports whether the present run, from here on, repeats an interleaving seen before. It may be broken off.
func (x *Explorer) Redundant() bool { return x.redundant }

// Err says that a run did not follow the choices of the run before: the engine, or the code under test, leaves something to chance.
func (x *Explorer) Err() error { return x.err }

// Plan is the plan of the present run. After the run it has the picks, so that it can be carried out again without x.
func (x *Explorer) Plan() sim.Plan {
	p := x.base
	p.Picks = nil
	for _, c := range x.path[:min(x.at, len(x.path))] {
		p.Picks = append(p.Picks, c.chosen)
	}
	return p
}

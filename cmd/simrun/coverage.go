package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// cover counts what a history really exercised: faults by kind and by what their target was doing, and kinds of statements.
func cover(c *sim.Coverage, h *sim.History) {
	if c.Faults == nil {
		*c = sim.Coverage{Faults: map[string]int{}, States: map[string]int{}, Statements: map[string]int{}}
	}
	state := map[int]string{}
	planned := map[int]map[int]string{} // per fault that has its instant, the replicas' states just before it
	for _, e := range h.Events {
		switch e.Kind {
		case sim.EvUp:
			state[e.Replica] = "starting"
		case sim.EvAttempt:
			if state[e.Replica] != "leading" && state[e.Replica] != "publishing" {
				state[e.Replica] = "standing by"
			}
		case sim.EvLead:
			state[e.Replica] = "leading"
		case sim.EvTick:
			switch e.Op {
			case sim.OpBegin:
				state[e.Replica] = "publishing"
			case sim.OpEnd:
				state[e.Replica] = "leading"
			}
		case sim.EvEnd:
			state[e.Replica] = "stepping down"
		case sim.EvIdle:
			state[e.Replica] = "standing by"
		case sim.EvDown:
			state[e.Replica] = "down"
		case sim.EvFault:
			if e.Fault < 1 || e.Fault > len(h.Header.Plan.Faults) {
				continue
			}
			switch f := h.Header.Plan.Faults[e.Fault-1]; {
			case e.Op == sim.OpPlanned && f.Before == nil && f.After == nil:
				planned[e.Fault] = maps.Clone(state)
			case e.Op == sim.OpApplied:
				c.Faults[string(f.Kind)]++
				before, ok := planned[e.Fault]
				if !ok {
					before = state
				}
				for _, r := range e.Targets {
					c.States[string(f.Kind)+" while "+before[r]]++
				}
			}
		case sim.EvStatement:
			c.Statements[statementKind(e.SQL)]++
		}
	}
}

// statementKind is a statement's first word, which says enough to see what was exercised.
func statementKind(sql string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	word, _, _ = strings.Cut(word, "(")
	return strings.ToLower(strings.TrimRight(word, ";"))
}

// summary says how much was done: what a campaign of hours is judged by.
func summary(w io.Writer, r *sim.Result) {
	var schedules, statements, again int
	var virtual float64
	faults, states := map[string]int{}, map[string]int{}
	for _, e := range r.Scenarios {
		schedules, statements, virtual, again = schedules+e.Schedules, statements+e.Statements, virtual+e.VirtualSeconds, again+e.SelfChecked
		for k, n := range e.Coverage.Faults {
			faults[k] += n
		}
		for k := range e.Coverage.States {
			states[k]++
		}
	}
	if schedules == 0 || r.Seconds == 0 {
		return
	}
	line := fmt.Sprintf("%s, %.1f/s", plural(schedules, "schedule"), float64(schedules)/r.Seconds)
	if statements > 0 {
		line += fmt.Sprintf("; %s, %.0f/s; %.0f virtual seconds, %.0f per second", plural(statements, "statement"), float64(statements)/r.Seconds, virtual, virtual/r.Seconds)
	}
	if again > 0 {
		line += fmt.Sprintf("; %d run twice, all alike", again)
	}
	fmt.Fprintln(w, line)
	for _, e := range r.Scenarios {
		if x := e.Exploration; x != nil {
			fmt.Fprintf(w, "%s, %s, %s: %s\n", e.Name, e.Route, e.Impl, x)
		}
	}
	if len(faults) > 0 {
		var words []string
		for _, k := range slices.Sorted(maps.Keys(faults)) {
			words = append(words, fmt.Sprintf("%s %d", k, faults[k]))
		}
		fmt.Fprintf(w, "faults: %s; in %s of their targets\n", strings.Join(words, ", "), plural(len(states), "state"))
	}
}

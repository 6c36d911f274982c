package sim

import (
	"fmt"
	"time"
)

// ResultVersion is the value of result.json's "schema".
const ResultVersion = 1

// A Result is result.json: what one simrun run found. Scripts rely on its names (design.md, 7).
type Result struct {
	Schema     int       `json:"schema"`
	Seed       uint64    `json:"seed"`
	StartedAt  time.Time `json:"started_at"`
	Versions   Versions  `json:"versions"`
	Backend    string    `json:"postgres_backend"`
	Scenarios  []Entry   `json:"scenarios"`
	ExitStatus int       `json:"exit_status"`
	ExitReason string    `json:"exit_reason"`
	Seconds    float64   `json:"wall_seconds"`
}

// Versions says with what a result was obtained.
type Versions struct {
	Simrun    string `json:"simrun"`
	Go        string `json:"go"`
	Postgres  string `json:"postgres"`
	PgBouncer string `json:"pgbouncer"`
}

// The statuses of an entry.
const (
	Passed            = "passed"
	FailedEntry       = "failed"
	InconclusiveEntry = "inconclusive"
	ErrorEntry        = "error"
)

// An Entry is one scenario on one route with one implementation in one engine: one line of the output, counted in DONE.
type Entry struct {
	Name            string           `json:"name"`
	Shows           string           `json:"shows"`
	File            string           `json:"file,omitempty"` // the scenario's file, where it does not come with simrun
	Route           Route            `json:"route"`
	Impl            string           `json:"impl"`
	Engine          string           `json:"engine"`
	Status          string           `json:"status"`
	Reason          string           `json:"reason,omitempty"` // why it is not passed, in one sentence
	Expected        []string         `json:"expected"`         // invariants expected to be violated
	Schedules       int              `json:"schedules"`        // distinct plans run for the first time
	Digest          string           `json:"digest"`
	Statements      int              `json:"statements"`
	VirtualSeconds  float64          `json:"virtual_seconds"`
	WallSeconds     float64          `json:"wall_seconds"`
	Faults          FaultCounts      `json:"faults"`
	Require         map[string]Count `json:"require"`
	Verdicts        []EntryVerdict   `json:"verdicts"`
	Counterexamples []CounterSummary `json:"counterexamples"`
	Histories       []string         `json:"histories"`              // saved history files, relative to result.json
	SelfChecked     int              `json:"self_checked,omitempty"` // schedules that were run twice, with equal histories
	Past            int              `json:"past,omitempty"`         // of Schedules: plans of earlier failures, tried first
	Coverage        Coverage         `json:"coverage"`
	Exploration     *Exploration     `json:"exploration,omitempty"` // of the exhaustive strategy
}

// Exploration says how much of what replicas may do at one instant was interleaved in every way.
type Exploration struct {
	Within        int  `json:"within"`        // every order of the first so many choices of a run was tried
	Depth         int  `json:"depth"`         // bound of the last pass, which was cut short unless it equals Within
	Interleavings int  `json:"interleavings"` // carried out in the last pass, no two of them equivalent
	Equivalent    int  `json:"equivalent"`    // left out or broken off in it, since they only change the order of independent steps
	Complete      bool `json:"complete"`      // there are no others: no run had more choices than Depth
}

func (x *Exploration) String() string {
	if x.Complete {
		return fmt.Sprintf("all interleavings: %d, and %d equivalent to one of them left out", x.Interleavings, x.Equivalent)
	}
	if x.Within == x.Depth {
		return fmt.Sprintf("all interleavings of the first %d choices: %d, and %d equivalent to one of them left out", x.Depth, x.Interleavings, x.Equivalent)
	}
	if x.Within == 0 {
		return fmt.Sprintf("of the interleavings of the first %d choices so far %d, and %d equivalent to one of them left out", x.Depth, x.Interleavings, x.Equivalent)
	}
	return fmt.Sprintf("all interleavings of the first %d choices; of the first %d so far %d, and %d equivalent to one of them left out", x.Within, x.Depth, x.Interleavings, x.Equivalent)
}

// Coverage counts what was really exercised over all schedules.
type Coverage struct {
	Faults     map[string]int `json:"faults"`     // kind -> replicas hit
	States     map[string]int `json:"states"`     // "kill while publishing" -> times
	Statements map[string]int `json:"statements"` // first word of the SQL -> statements; virtual engine only
}

// FaultCounts counts the outcomes of faults over all schedules.
type FaultCounts struct {
	Applied int `json:"applied"`
	Moot    int `json:"moot"`
	Failed  int `json:"failed"`
}

// A Count is a requirement and what was seen.
type Count struct {
	AtLeast int `json:"at_least"`
	Seen    int `json:"seen"`
}

// An EntryVerdict is an invariant's verdict over all schedules of an entry: violated if one was, inconclusive if one was and none violated.
type EntryVerdict struct {
	Invariant  string           `json:"invariant"`
	Status     Status           `json:"status"`
	Examined   int              `json:"examined"`
	Reason     string           `json:"reason,omitempty"`
	Note       string           `json:"note,omitempty"`     // how it was judged, where that was the same in all schedules
	Measures   []Measure        `json:"measures,omitempty"` // the largest value of each
	Violations []EntryViolation `json:"violations"`
}

// An EntryViolation is a violation as result.json shows it.
type EntryViolation struct {
	Text      string  `json:"text"`
	Cause     string  `json:"cause,omitempty"`
	AtSeconds float64 `json:"at_seconds"`
	Replicas  []int   `json:"replicas"`
	Schedule  int     `json:"schedule"`
	Events    []int   `json:"events,omitempty"`
}

// A CounterSummary points at a saved counterexample.
type CounterSummary struct {
	File       string   `json:"file"` // relative to result.json
	Invariant  string   `json:"invariant"`
	Replicas   int      `json:"replicas"`
	Faults     int      `json:"faults"`
	Schedule   []string `json:"schedule"`             // the plan's faults in words
	Reproduced string   `json:"reproduced,omitempty"` // "20/20"
	Live       string   `json:"live,omitempty"`       // "9/10"
	Replay     string   `json:"replay"`               // the command line
	History    string   `json:"history,omitempty"`    // the failing history, relative to result.json
	AsFound    bool     `json:"as_found,omitempty"`   // nothing was shrunk: --no-shrink
}

// Title is what the schedule may be called.
func (c CounterSummary) Title() string {
	if c.AsFound {
		return "schedule as found"
	}
	return "minimal schedule"
}

// CounterexampleVersion is the version of the counterexample's format.
const CounterexampleVersion = 1

// A Counterexample is a saved plan that breaks an invariant, with all that is needed to carry it out again.
type Counterexample struct {
	V         int      `json:"v"`
	Scenario  Scenario `json:"scenario"`
	Plan      Plan     `json:"plan"`
	Engine    string   `json:"engine"`
	Route     Route    `json:"route"`
	Impl      string   `json:"impl"`
	Seed      uint64   `json:"seed"`
	Schedule  int      `json:"schedule"`
	Invariant string   `json:"invariant"`
	Expected  bool     `json:"expected"` // the scenario expects the violation
	Text      string   `json:"text"`     // the first violation's sentence
	Digest    string   `json:"digest,omitempty"`
	TimeScale float64  `json:"time_scale,omitempty"`
}

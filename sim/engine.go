package sim

import (
	"context"
	"slices"
)

// A Run is what an engine is asked to do: carry out one plan.
type Run struct {
	Scenario Scenario // resolved: intervals filled in
	Plan     Plan
	Route    Route
	Impl     Implementation
	Seed     uint64
	Schedule int
	// Choose, if set, decides which of several steps goes next, instead of Plan.Picks; it is asked for every step, also
	// when there is one. Only the virtual engine obeys it.
	Choose func(next []Step) int `json:"-"`
}

// A Step is a request that could be the next to reach the database.
type Step struct {
	Replica int
	Session string   // the same in every run; a session has one step at a time
	Touches []string // what it may read or change there
	Unknown bool     // it may touch anything
}

// Alone reports whether the step is independent of every other, now and later.
func (s Step) Alone() bool { return !s.Unknown && len(s.Touches) == 0 }

// Independent reports whether two steps lead to the same state in either order. Steps of one replica never are.
func (s Step) Independent(o Step) bool {
	return s.Replica != o.Replica && !s.Unknown && !o.Unknown && !slices.ContainsFunc(s.Touches, func(t string) bool { return slices.Contains(o.Touches, t) })
}

// An Engine carries out plans in the world it was made with, one at a time.
type Engine interface {
	// Name is virtual or live.
	Name() string
	// Header is the header of the history that Run will record: the engine adds its settings and versions.
	Header(Run) Header
	// Run carries out the plan and records what happens. An error says why the harness could not do its work; a
	// misbehaving implementation is data, not an error. When ctx ends, Run cleans up and returns its error.
	Run(ctx context.Context, run Run, rec *Recorder) error
	// Close ends the engine and all it started.
	Close() error
}

// An EnvironmentError says that something outside simrun is missing or broke: exit status 6.
type EnvironmentError struct {
	Problem string // one sentence with a way out, no secrets
	Err     error
}

func (e *EnvironmentError) Error() string {
	if e.Err != nil {
		return e.Problem + ": " + e.Err.Error()
	}
	return e.Problem
}

func (e *EnvironmentError) Unwrap() error { return e.Err }

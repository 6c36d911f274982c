package sim

import "context"

// A Run is what an engine is asked to do: carry out one plan.
type Run struct {
	Scenario Scenario // resolved: intervals filled in
	Plan     Plan
	Route    Route
	Impl     Implementation
	Seed     uint64
	Schedule int
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

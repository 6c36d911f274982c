package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/seed-aafb3a99/simrun/reports"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
)

// maxUpload is what GitHub takes of a step's summary; more than that and it takes nothing.
const maxUpload = 1 << 20

// tellGitHub writes annotations and the job's summary where simrun runs in GitHub Actions. What cannot be written there is said and changes
// no verdict.
func tellGitHub(talk, stderr io.Writer, r *sim.Result) {
	if os.Getenv("GITHUB_ACTIONS") != "true" {
		return
	}
	err := reports.Annotations(talk, r, placeOf)
	if err == nil {
		err = jobSummary(os.Getenv("GITHUB_STEP_SUMMARY"), r)
	}
	if err != nil {
		fmt.Fprintf(stderr, "simrun: GitHub is not told everything: %v\n", err)
	}
}

// jobSummary adds to the file, in which an earlier command of the step may have written.
func jobSummary(path string, r *sim.Result) error {
	if path == "" {
		return nil // an old runner
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the job summary: %w", err)
	}
	defer f.Close() //nolint:errcheck // the last write's error is returned
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the job summary: %w", err)
	}
	left := maxUpload - int(info.Size())
	if left < 1000 {
		return fmt.Errorf("the job summary is full (%d bytes)", info.Size())
	}
	return reports.JobSummary(f, r, left)
}

// placeOf is where a scenario's file names an invariant. GitHub wants the path from the repository's root.
func placeOf(e sim.Entry, invariant string) reports.Place {
	if e.File == "" {
		return reports.Place{}
	}
	place := reports.Place{File: e.File, Line: 1}
	if abs, err := filepath.Abs(e.File); err == nil {
		if rel, err := filepath.Rel(os.Getenv("GITHUB_WORKSPACE"), abs); err == nil && filepath.IsLocal(rel) {
			place.File = filepath.ToSlash(rel)
		}
	}
	if src, err := os.ReadFile(e.File); err == nil {
		place.Line = scenarios.InvariantLine(src, invariant)
	}
	return place
}

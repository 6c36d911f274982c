package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/replica"
)

// asked is the implementations that a scenario is run with.
func (f *runFlags) asked(s sim.Scenario) []string {
	switch {
	case len(f.impls) > 0:
		return f.impls
	case len(s.Impls) > 0:
		return s.Impls
	}
	return []string{cmp.Or(s.Impl, replica.Reference)}
}

// chooseEngine settles the engine where none was asked for: programs run as processes, and only the live engine does that. why is
// for people, "" where nothing was settled.
func (f *runFlags) chooseEngine(programs bool) (why string, err error) {
	switch {
	case !programs || f.engine == "live":
		return "", nil
	case f.engineAsked:
		return "", usagef("exec: programs run as processes on the wall clock, which only the live engine does: leave --engine %s out, or say --engine live", f.engine)
	}
	f.engine = "live"
	return "engine live: exec: programs run as processes on the wall clock", nil
}

// withProgram is the scenario for a run with exec:COMMAND. One that brings a program of its own, but is run with another, keeps what
// it says of tables and keys: they belong to what is tested, not to one build of it.
func (f *runFlags) withProgram(s sim.Scenario, name string) (sim.Scenario, error) {
	if !sim.IsProgram(name) {
		s.Program, s.Dir = nil, ""
		return s, nil
	}
	if s.Program == nil || s.Program.Name() != name {
		argv, err := scenarios.ParseCommand(strings.TrimPrefix(name, sim.ExecPrefix))
		if err != nil {
			return s, usagef("--impl %w", err)
		}
		p := sim.Program{}
		if s.Program != nil {
			p = *s.Program
		}
		p.Exec = argv
		s.Program = &p
	}
	if s.Dir == "" || slices.Contains(f.impls, name) {
		dir, err := os.Getwd()
		if err != nil {
			return s, &sim.EnvironmentError{Problem: "the current folder is not to be found", Err: err}
		}
		s.Dir = dir
	}
	return s, nil
}

// program is exec:COMMAND as an implementation. It finds the program with the rights of the user it will run as, before anything starts.
func program(name string, s *sim.Scenario) (sim.Implementation, error) {
	if s == nil || s.Program == nil || len(s.Program.Exec) == 0 || s.Program.Exec[0] == "" {
		return sim.Implementation{}, usagef("%s: nothing says which program that is", name)
	}
	if info, err := os.Stat(s.Dir); err != nil || !info.IsDir() {
		return sim.Implementation{}, usagef("%s: there is no folder %s, in which it was started; a counterexample says it in scenario.dir", name, s.Dir)
	}
	path, err := proc.Executable(s.Program.Exec[0], s.Dir)
	var why *proc.Error
	switch {
	case errors.As(err, &why) && errors.Is(err, fs.ErrPermission):
		return sim.Implementation{}, &sim.EnvironmentError{Problem: why.Problem}
	case errors.As(err, &why):
		return sim.Implementation{}, usagef("%s: %s", name, why.Problem)
	case err != nil:
		return sim.Implementation{}, err
	}
	m := replica.Program(name, *s.Program, s.Dir)
	m.Command = append([]string{path}, s.Program.Exec[1:]...)
	return m, nil
}

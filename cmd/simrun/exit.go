package main

import (
	"errors"
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Exit statuses (design.md, 7). Scripts rely on them.
const (
	exitOK           = 0
	exitViolated     = 1
	exitInconclusive = 2
	exitUsage        = 4
	exitNothing      = 5
	exitEnvironment  = 6
	exitInternal     = 70
	exitInterrupted  = 130
	exitTerminated   = 143
)

// severity orders the statuses: the worst wins.
var severity = []int{exitOK, exitNothing, exitInconclusive, exitEnvironment, exitViolated, exitTerminated, exitInterrupted, exitInternal}

func worse(a, b int) int {
	rank := func(s int) int {
		for i, v := range severity {
			if v == s {
				return i
			}
		}
		return len(severity)
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// A usageError is wrong usage or an invalid scenario: exit 4, before anything starts.
type usageError struct{ error }

func usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

func (u usageError) Unwrap() error { return u.error }

// statusError carries an exit status whose reason was printed already.
type statusError struct{ status int }

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// statusOf is the exit status an error asks for.
func statusOf(err error) int {
	var u usageError
	var s statusError
	var env *sim.EnvironmentError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &s):
		return s.status
	case errors.As(err, &u):
		return exitUsage
	case errors.As(err, &env):
		return exitEnvironment
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, errTerminated):
		return exitTerminated
	}
	return exitInternal
}

// The causes of the run's context when a signal ended it.
var (
	errInterrupted = errors.New("interrupted")
	errTerminated  = errors.New("terminated")
	errTimeLimit   = errors.New("the hard time limit was reached (--timeout)")
)

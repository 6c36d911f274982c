package main

import (
	"context"
	"io"

	"github.com/seed-aafb3a99/simrun/internal/proc"
)

const (
	workerVerb = "internal-worker"
	workerFD   = 3
)

type remote struct {
	local
	postgres, backend string
}

func newRemote(context.Context, *proc.Run, string, string) (*remote, error) {
	return nil, usagef("the virtual engine is not built yet: use --engine live")
}
func work(io.Reader, io.Writer) int { return 1 }
func isHung(error) bool             { return false }

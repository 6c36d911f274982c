package main

import (
	"os"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/live"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/spf13/cobra"
)

// Commands by which simrun starts itself. They are no part of the contract.
const replicaVerb = "internal-replica"

// self is the path of this program.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return "/proc/self/exe" // without /proc there is no Linux to run on
	}
	return path
}

// replicaCommand is how one of our own implementations is started as a process.
func replicaCommand() []string { return []string{self(), replicaVerb} }

func internalCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: replicaVerb, Hidden: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return live.Serve(cmd.Context(), os.Stdin, os.NewFile(sim.ReportFD, "reports"), replica.ByName)
			},
		},
		{
			Use: workerVerb, Hidden: true, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				if status := work(os.Stdin, os.NewFile(workerFD, "answers")); status != 0 {
					return statusError{exitInternal}
				}
				return nil
			},
		},
	}
}

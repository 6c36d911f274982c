// Command simrun proves, or breaks, leader election and job scheduling on Postgres.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	_ "github.com/seed-aafb3a99/simrun/internal/rapidenv" // before rapid reads its environment
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := withSignals(context.Background())
	out := &output{w: os.Stdout}
	status := out.status(execute(ctx, newRoot(out, os.Stderr), os.Stderr), os.Stderr)
	stop()
	os.Exit(status)
}

// An output remembers that it could not be written: what was asked for is not there, whatever else went well.
type output struct {
	w   *os.File
	err error
}

// Fd is by what a terminal is known.
func (o *output) Fd() uintptr { return o.w.Fd() }

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// status is the exit status, given that of the command. A violation stays one.
func (o *output) status(status int, stderr io.Writer) int {
	if o.err == nil || status != exitOK && status != exitInternal {
		return status
	}
	if status == exitOK { // otherwise it was the command that failed of it, and it has said so
		fmt.Fprintf(stderr, "simrun: what was to be printed could not be written: %v\n", o.err)
	}
	return exitEnvironment
}

// execute runs the command line and returns its exit status. A panic is status 70: Go's own 2 would read as "inconclusive".
func execute(ctx context.Context, root *cobra.Command, stderr io.Writer) (status int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "simrun: internal error: %v\n%s\nThis is a defect of simrun: please report it with the lines above.\n", p, debug.Stack())
			status = exitInternal
		}
	}()
	stderr = safeWriter{stderr}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var reported statusError
	if !errors.As(err, &reported) {
		fmt.Fprintf(stderr, "simrun: %s\n", strings.TrimPrefix(err.Error(), "simrun: "))
		var usage usageError
		if errors.As(err, &usage) && cmd != nil {
			fmt.Fprintf(stderr, "Try: %s --help\n", cmd.CommandPath())
		}
	}
	return statusOf(err)
}

// withSignals ends the context at the first SIGINT, SIGTERM or SIGHUP, with the cause; the second one ends the process, and the
// reaper cleans up after it.
func withSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s, ok := <-signals
		if !ok {
			return
		}
		cause, status := errInterrupted, exitInterrupted
		if s != os.Interrupt {
			cause, status = errTerminated, exitTerminated
		}
		fmt.Fprintf(os.Stderr, "\nsimrun: %s: stopping and writing what there is; once more ends at once\n", cause)
		cancel(cause)
		if _, ok := <-signals; ok {
			os.Exit(status)
		}
	}()
	return ctx, func() { signal.Stop(signals); close(signals); cancel(nil) }
}

// newRoot is the command tree. Data goes to out, talk to errs.
func newRoot(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "simrun",
		Short: "Prove, or break, leader election and job scheduling on Postgres",
		Long: `simrun starts replicas of a leader election or job scheduler against a real Postgres, direct or through a real
PgBouncer, breaks the world under them, and says whether there was ever more than one leader, a duplicate publish, a
slow failover, or a probe that trusted a pooler. A failure comes with the smallest schedule that shows it, a file that
replays it, and a page to look at.`,
		Example: `  simrun run                                            the core suite
  simrun run two-leaders-pooler --impl naive-pooled     two leaders behind a transaction pooler
  simrun replay simrun-out/latest/counterexamples/*.json`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q%s", args[0], didYouMean(args[0], commandNames))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(safeWriter{out})
	root.SetErr(safeWriter{errs})
	root.Version = release
	root.SetVersionTemplate(version() + "\n")
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(runCommand(), listCommand(), replayCommand(), judgeCommand(), reportCommand(), huntCommand(), explainCommand(), newCommand(), validateCommand(), schemaCommand(), probeCommand(), doctorCommand(), cleanCommand(), completionCommand(), versionCommand())
	completions(root)
	root.AddCommand(internalCommands()...)
	for _, c := range root.Commands() {
		commandNames = append(commandNames, c.Name())
		c.Flags().SortFlags = false
		if c.Args != nil {
			args := c.Args
			c.Args = func(cmd *cobra.Command, a []string) error {
				err, use := args(cmd, a), strings.TrimSuffix(cmd.UseLine(), " [flags]")
				var own usageError
				switch {
				case err == nil || errors.As(err, &own):
					return err
				case len(a) == 0:
					return usagef("an argument is missing: %s", use)
				}
				return usagef("%q is not what fits here: %s", strings.Join(a, " "), use)
			}
		}
	}
	return root
}

var commandNames []string

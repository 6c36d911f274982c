package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/spf13/cobra"
)

// huntLimit is how many schedules a flaw may hide behind before it counts as not caught.
const huntLimit = 200

func huntCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "hunt [flaw ...]",
		Short: "Run every flawed implementation until it is caught: the detection table",
		Long: `Run flawed implementations in the scenarios that expect to catch them, until they are caught. A harness that cannot catch a
known bug is worth nothing, so the number of schedules it takes is printed. Exit status 1 when one is not caught within the limit.`,
		Example: "  simrun hunt\n  simrun hunt naive-pooled no-fence --seed 1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("seed") {
				f.seed = rand.Uint64N(1_000_000) + 1
			}
			return hunt(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args, f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.engine, "engine", defaultEngine, "virtual or live")
	fl.IntVar(&f.schedules, "schedules", huntLimit, "give up after so many schedules")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the schedules (default: random, and printed)")
	fl.StringVar(&f.strategy, "strategy", "random", "how interleavings are chosen: random, pct or exhaustive")
	fl.StringVar(&f.postgres, "postgres", "auto", "local, dsn (the address in SIMRUN_DSN) or auto (dsn where SIMRUN_DSN is set, else local)")
	fl.StringVar(&f.out, "out", "simrun-out", "folder for results")
	fl.IntVar(&f.workers, "workers", min(2, runtime.NumCPU()), "flaws hunted at a time")
	fl.DurationVar(&f.timeout, "timeout", time.Hour, "hard limit for the whole hunt")
	return c
}

// quarry is the tasks in which flaws are expected to be caught, and the flaws that no scenario expects.
func (f *runFlags) quarry(named []string) (tasks []task, unexpected []string, err error) {
	if len(named) == 0 {
		named = flaws()
	}
	for _, flaw := range named {
		if sim.IsProgram(flaw) {
			return nil, nil, usagef("hunt is for simrun's own flawed implementations: to try %s, use simrun run --impl", flaw)
		}
		impl, err := implementation(flaw, nil)
		if err != nil {
			return nil, nil, err
		}
		found := false
		for _, s := range scenarios.All() {
			for _, r := range s.Routes {
				if len(s.ExpectFor(flaw, r)) == 0 {
					continue
				}
				t := task{Scenario: s, Route: r, Impl: flaw, Schedules: f.schedules, Seed: f.seed, Strategy: f.strategy, Program: os.Args[0], Shrink: true}
				if f.possible(t, impl) != nil {
					continue // not in this engine
				}
				tasks, found = append(tasks, t), true
			}
		}
		if !found {
			unexpected = append(unexpected, flaw)
		}
	}
	return tasks, unexpected, nil
}

func hunt(ctx context.Context, stdout, stderr io.Writer, named []string, f runFlags) error {
	if f.schedules < 1 {
		return usagef("--schedules must be from 1 to %d", maxSchedules)
	}
	if err := f.validate(); err != nil {
		return err
	}
	tasks, unexpected, err := f.quarry(named)
	if err != nil {
		return err
	}
	for _, name := range unexpected {
		fmt.Fprintf(stdout, "%s: no scenario of the %s engine expects to catch it\n", name, f.engine)
	}
	if len(tasks) == 0 {
		return statusError{exitNothing}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimeLimit)
	defer cancel()
	began := time.Now()
	out, err := newOutDir(f.out, f.seed, began)
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, f, out, min(f.workers, len(tasks)))
	if err != nil {
		return err
	}
	for i := range tasks {
		tasks[i].Out = out.dir
	}
	fmt.Fprintf(stdout, "%s  seed %d  engine %s  postgres %s  pgbouncer %s\n", version(), f.seed, f.engine, w.postgres, w.pgbouncer)
	w.sayGiven(stdout, f.postgres)
	done := 0
	watch := newWatch(stderr, nil, len(tasks))
	entries, err := campaign(ctx, tasks, w.pool, func(e sim.Entry) {
		done++
		fmt.Fprintf(stdout, "%d/%d  %s in %s, %s: %s after %s\n", done, len(tasks), e.Impl, e.Name, e.Route, map[bool]string{true: "caught", false: "not caught"}[e.Status == sim.Passed], plural(e.Schedules, "schedule"))
	}, watch)
	watch.close()
	err = errors.Join(err, w.close())
	all := detectionTable(stdout, entries) // what there is
	result := sim.Result{
		Schema: sim.ResultVersion, Seed: f.seed, StartedAt: began.UTC(), Backend: w.backend, Scenarios: entries, Seconds: time.Since(began).Seconds(),
		Versions: sim.Versions{Simrun: version(), Go: runtime.Version(), Postgres: w.postgres, PgBouncer: w.pgbouncer},
	}
	result.ExitStatus, result.ExitReason = exitStatus(entries, err)
	if len(entries) > 0 {
		if werr := errors.Join(writeReports(out, &result, f), out.link()); werr != nil {
			return errors.Join(err, werr)
		}
		fmt.Fprintf(stdout, "report: %s\n", filepath.Join(f.out, "latest", "report.html"))
	}
	if err == nil && !all {
		return statusError{exitViolated}
	}
	return err
}

// detectionTable prints a line for each hunt and reports whether every flaw was caught.
func detectionTable(w io.Writer, entries []sim.Entry) bool {
	all := true
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FLAW\tSCENARIO\tROUTE\tINVARIANT\tSCHEDULES\tREPRODUCED\tMINIMAL SCHEDULE")
	for _, e := range entries {
		if e.Status != sim.Passed {
			all = false
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\tnot in %d\t\t%s\n", e.Impl, e.Name, e.Route, strings.Join(e.Expected, ", "), e.Schedules, e.Reason)
			continue
		}
		for _, c := range e.Counterexamples {
			words := strings.Join(c.Schedule, "; ")
			if words == "" {
				words = "no fault"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.Impl, e.Name, e.Route, c.Invariant, e.Schedules, c.Reproduced, words)
		}
	}
	t.Flush()
	return all
}

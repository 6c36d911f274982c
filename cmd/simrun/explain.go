package main

import (
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/goccy/go-yaml"
	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/spf13/cobra"
)

func explainCommand() *cobra.Command {
	var seed uint64
	var plans int
	c := &cobra.Command{
		Use: "explain FILE|NAME", Short: "Show a scenario as resolved, and the plans a seed draws from it", Args: cobra.ExactArgs(1),
		Example: "  simrun explain kill-leader\n  simrun explain my.yaml --seed 7 --plans 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			if plans < 0 || plans > 1000 {
				return usagef("--plans must be from 0 to 1000")
			}
			s, err := loadScenario(args[0])
			if err != nil {
				return usageError{err}
			}
			return explain(cmd.OutOrStdout(), *s, seed, plans)
		},
	}
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of the plans")
	c.Flags().IntVar(&plans, "plans", 3, "how many plans to show")
	return c
}

func explain(w io.Writer, s sim.Scenario, seed uint64, plans int) error {
	b, err := yaml.Marshal(scenarios.Resolve(s))
	if err != nil {
		return fmt.Errorf("print the scenario: %w", err)
	}
	if s.Program != nil {
		if b, err = showProgram(b, s.Program); err != nil {
			return fmt.Errorf("print the scenario: %w", err)
		}
	}
	fmt.Fprintf(w, "%s\n# plans of seed %d, in words\n", b, seed)
	for i := range plans {
		p := gen.Plan(s, seed, i)
		fmt.Fprintf(w, "# %d: ", i)
		if i == 0 && s.Plan != nil {
			fmt.Fprint(w, "the scenario's own: ")
		}
		for j, f := range p.Faults {
			if j > 0 {
				fmt.Fprint(w, "; ")
			}
			fmt.Fprint(w, f)
		}
		if len(p.Faults) == 0 {
			fmt.Fprint(w, "no fault")
		}
		fmt.Fprintln(w)
	}
	return nil
}

// showProgram puts what a scenario says of its program where the file has it.
func showProgram(b []byte, p *sim.Program) ([]byte, error) {
	var fields, shown yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(b, &fields, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	for _, f := range fields {
		switch f.Key {
		case "impls":
			continue
		case "impl":
			f.Value = p
		}
		shown = append(shown, f)
	}
	return yaml.Marshal(shown)
}

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "Print a completion script for a shell", Args: cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Example:   "  source <(simrun completion bash)",
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "zsh":
				return root.GenZshCompletion(w)
			case "fish":
				return root.GenFishCompletion(w, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(w)
			}
			return usagef("there is no completion for %q: use bash, zsh, fish or powershell", args[0])
		},
	}
}

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check what simrun needs on this machine, by using it", Args: cobra.NoArgs,
		Long: "Check what simrun needs on this machine, by using it: a private directory, a Postgres that is started and asked, a PgBouncer. Exit\nstatus 6 when something is missing, with a sentence on how to mend it.",
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd) },
	}
}

// doctor starts what a run would start. Every check is made, whatever the one before it found.
func doctor(cmd *cobra.Command) error {
	w, ctx := cmd.OutOrStdout(), cmd.Context()
	missing := 0
	check := func(what string, err error, found string) {
		if err != nil {
			missing++
			fmt.Fprintf(w, "missing  %-12s %v\n", what, err)
			return
		}
		fmt.Fprintf(w, "ok       %-12s %s\n", what, found)
	}
	check("simrun", nil, fmt.Sprintf("%s, %s, %d processors", version(), runtime.Version(), runtime.NumCPU()))
	user := "everything runs as you"
	if os.Getuid() == 0 {
		name, _, _, ok := proc.Unprivileged()
		user = "you are root: servers run as " + name
		if !ok {
			check("user", &sim.EnvironmentError{Problem: "you are root, and there is neither a user postgres nor nobody for the servers to run as"}, "")
		}
	}
	check("user", nil, user)
	run, err := proc.NewRun()
	check("directory", err, "private directories can be made in "+os.TempDir())
	if err == nil {
		defer run.Close()
		server, err := pg.Start(ctx, pg.Options{Run: run, Backend: "auto", DSN: os.Getenv("SIMRUN_DSN"), LogDir: run.Dir()})
		found := ""
		if err == nil {
			found = fmt.Sprintf("%s (%s), started and asked", server.Version(), server.Backend())
			defer server.Stop()
		}
		check("postgres", err, found)
	}
	v, err := pgbouncer.Installed()
	check("pgbouncer", err, v)
	if missing > 0 {
		return statusError{exitEnvironment}
	}
	return nil
}

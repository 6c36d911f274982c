package main

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/spf13/cobra"
)

//go:embed scaffold.yaml
var templates embed.FS

func newCommand() *cobra.Command {
	var from, output string
	var force bool
	c := &cobra.Command{
		Use:   "new NAME | new --from COUNTEREXAMPLE [NAME]",
		Short: "Write a scenario file to start from, or one that keeps a counterexample",
		Long: `Write a scenario file. With a name, one to start from, each field with a word on what it is. With --from, one that keeps a
counterexample: its first schedule is the very plan that failed, whatever the seed, and further ones vary around it.`,
		Example: `  simrun new my-kill
  simrun new --from simrun-out/latest/counterexamples/my-kill.direct.reference.failover.json -o ci/issue-17.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
				if !scenarioName.MatchString(name) || len(name) > 64 {
					return usagef("%q is no name for a scenario: use small letters, digits and single hyphens, at most 64", name)
				}
			}
			var text string
			switch {
			case from != "":
				ce, err := loadCounterexample(from)
				if err != nil {
					return err
				}
				if text, name, err = promote(*ce, name); err != nil {
					return usagef("%s cannot be made a scenario: %v", from, err)
				}
			case name == "":
				return usagef("name the new scenario, or the counterexample it is to keep (--from FILE)")
			default:
				b, err := templates.ReadFile("scaffold.yaml")
				if err != nil {
					return err
				}
				text = strings.Replace(string(b), "name: NAME", "name: "+name, 1)
			}
			return writeScenario(cmd.OutOrStdout(), text, cmp.Or(output, name+".yaml"), force)
		},
	}
	c.Flags().StringVar(&from, "from", "", "the counterexample to keep")
	c.Flags().StringVarP(&output, "output", "o", "", "the file to write (default NAME.yaml); - is standard output")
	c.Flags().BoolVar(&force, "force", false, "write over a file that is there")
	return c
}

func writeScenario(w io.Writer, text, file string, force bool) error {
	if file == "-" {
		_, err := io.WriteString(w, text)
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(file, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s is there already: name another with -o, or write over it with --force", file)
	}
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return &sim.EnvironmentError{Problem: "the file " + file + " cannot be written", Err: err}
	}
	arg := file
	if !isFile(arg) {
		fmt.Fprintf(w, "written: %s; simrun reads scenario files whose name ends in .yaml\n", file)
		return nil
	}
	fmt.Fprintf(w, "written: %s\nrun it: %s run %s\n", file, sim.ShellQuote(os.Args[0]), sim.ShellQuote(arg))
	return nil
}

// promote is the text of a scenario file that keeps a counterexample, and the scenario's name. The text has been read back, so it is valid, and its
// plan is the counterexample's.
func promote(ce sim.Counterexample, name string) (string, string, error) {
	ce.Plan = withoutNulls(ce.Plan)
	s := kept(ce, name)
	head, err := yaml.Marshal(s)
	if err != nil {
		return "", "", fmt.Errorf("write the scenario: %w", err)
	}
	var b strings.Builder
	b.WriteString("# Kept from a counterexample by simrun new --from: schedule 0 is the plan below, as it failed, and others vary around it.\n")
	if ce.Text != "" {
		fmt.Fprintf(&b, "# It failed so: %s\n", strings.Join(strings.Fields(printable(ce.Text)), " "))
	}
	if ce.Engine == "live" {
		b.WriteString("# It was found by the live engine: simrun run --engine live\n")
	}
	if len(s.Expect) == 0 {
		fmt.Fprintf(&b, "# It passes once the bug is mended. Until then this makes the violation a pass:\n# expect: [{invariant: %s, impl: %s}]\n", ce.Invariant, printable(ce.Impl))
	}
	b.Write(head)
	if err := writePlan(&b, ce.Plan); err != nil {
		return "", "", err
	}
	back, err := scenarios.Parse(s.Name+".yaml", []byte(b.String()), scenarios.Implementations(implNames()...), scenarios.Invariants(invariantNames()...))
	if err != nil {
		return "", "", err
	}
	if back.Plan == nil || back.Plan.Key() != ce.Plan.Key() {
		return "", "", errors.New("its plan does not survive being written as YAML")
	}
	return b.String(), s.Name, nil
}

// withoutNulls is the plan with empty lists where it has none, which is the same to an engine and the only thing that YAML can say.
func withoutNulls(p sim.Plan) sim.Plan {
	p.Faults = append([]sim.Fault{}, p.Faults...)
	delays := p.Delays
	p.Delays = nil
	for _, list := range delays {
		p.Delays = append(p.Delays, append([]sim.Delay{}, list...))
	}
	return p
}

// kept is a counterexample's scenario, narrowed to what failed.
func kept(ce sim.Counterexample, name string) sim.Scenario {
	s := ce.Scenario
	s.Name = name
	if name == "" {
		s.Name = strings.TrimSuffix(ce.Scenario.Name, "-"+ce.Invariant) + "-" + ce.Invariant
	}
	s.Shows = fmt.Sprintf("A counterexample from %s: %s was violated over %s.", ce.Scenario.Name, ce.Invariant, ce.Route)
	s.Routes, s.Impl, s.Impls = []sim.Route{ce.Route}, ce.Impl, nil
	s.Duration, s.Plan = ce.Plan.Horizon, nil
	if !ce.Route.Pooled() {
		s.Pool = sim.Pool{}
	}
	s.Invariants = []string{ce.Invariant}
	for _, n := range ce.Scenario.Invariants {
		if n != ce.Invariant && (n != "failover" || ce.Route.Stable()) {
			s.Invariants = append(s.Invariants, n)
		}
	}
	s.Faults, s.Require, s.Expect = nil, nil, nil
	for _, f := range ce.Plan.Faults {
		s.Faults = append(s.Faults, narrow(f))
	}
	if len(s.Faults) > 0 {
		s.Require = []sim.Require{{What: sim.FaultsApplied, AtLeast: 1}}
	}
	if ce.Expected {
		s.Expect = []sim.Expect{{Invariant: ce.Invariant, Impl: ce.Impl}}
	}
	return s
}

// narrow is a fault of a plan as what a scenario allows: exactly that.
func narrow(f sim.Fault) sim.FaultSpec {
	trigger := func(t *sim.Trigger) *sim.TriggerSpec {
		if t == nil {
			return nil
		}
		return &sim.TriggerSpec{Pattern: t.Pattern, Nth: sim.IntRange{From: t.Nth, To: t.Nth}}
	}
	return sim.FaultSpec{
		Kind: f.Kind, Target: f.Target, Window: sim.Range{From: f.At, To: f.At}, For: sim.Range{From: f.For, To: f.For}, Before: trigger(f.Before), After: trigger(f.After),
	}
}

// writePlan writes a plan as YAML with a line for each fault and each replica: JSON is YAML, and a plan is for machines.
func writePlan(b *strings.Builder, p sim.Plan) error {
	var errs []error
	line := func(v any) string {
		text, err := json.Marshal(v)
		errs = append(errs, err)
		return string(text)
	}
	fmt.Fprintf(b, "plan:\n  v: %d\n  horizon: %s\n", p.V, p.Horizon)
	if len(p.Faults) > 0 {
		b.WriteString("  faults:\n")
		for _, f := range p.Faults {
			b.WriteString("    - " + line(f) + "\n")
		}
	} else {
		b.WriteString("  faults: []\n")
	}
	if len(p.Phase) > 0 {
		b.WriteString("  phase: " + line(p.Phase) + "\n")
	}
	if len(p.Picks) > 0 {
		b.WriteString("  picks: " + line(p.Picks) + "\n")
	}
	if len(p.Delays) > 0 {
		b.WriteString("  delays:\n")
		for _, list := range p.Delays {
			b.WriteString("    - " + line(list) + "\n")
		}
	}
	return errors.Join(errs...)
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"text/tabwriter"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/spf13/cobra"
)

// listing is what list --json prints.
type listing struct {
	Scenarios       []listedScenario  `json:"scenarios"`
	Implementations []listedImpl      `json:"implementations"`
	Invariants      []invariants.Info `json:"invariants"`
	Faults          []sim.FaultInfo   `json:"faults"`
}

type listedScenario struct {
	Name       string       `json:"name"`
	Core       bool         `json:"core"`
	Shows      string       `json:"shows"`
	Routes     []sim.Route  `json:"routes"`
	Impls      []string     `json:"impls"`
	Invariants []string     `json:"invariants"`
	Expect     []sim.Expect `json:"expect"`
}

type listedImpl struct {
	Name   string `json:"name"`
	Models string `json:"models"`
}

func listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "list", Short: "List scenarios, implementations, invariants and faults", Args: cobra.NoArgs,
		Example: "  simrun list\n  simrun list --json | jq '.scenarios[].name'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := gather()
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(l)
			}
			return l.print(cmd.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func gather() listing {
	l := listing{Invariants: invariants.All(), Faults: sim.Faults}
	core := scenarios.Suite("core")
	for _, s := range scenarios.All() {
		l.Scenarios = append(l.Scenarios, listedScenario{
			Name: s.Name, Shows: s.Shows, Routes: s.Routes, Impls: s.Impls, Invariants: s.Invariants, Expect: append([]sim.Expect{}, s.Expect...),
			Core: slices.ContainsFunc(core, func(c sim.Scenario) bool { return c.Name == s.Name }),
		})
	}
	for _, i := range replica.All() {
		l.Implementations = append(l.Implementations, listedImpl{i.Name, i.Models})
	}
	return l
}

func (l listing) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIOS (* in the suite core)")
	for _, s := range l.Scenarios {
		mark := " "
		if s.Core {
			mark = "*"
		}
		fmt.Fprintf(t, "%s %s\t%s\n", mark, s.Name, s.Shows)
	}
	fmt.Fprintln(t, "\nIMPLEMENTATIONS")
	for _, i := range l.Implementations {
		text := i.Models
		if text == "" {
			text = "the correct one"
		}
		fmt.Fprintf(t, "  %s\t%s\n", i.Name, text)
	}
	fmt.Fprintln(t, "  exec:COMMAND\tany program that speaks docs/protocol.md")
	fmt.Fprintln(t, "\nINVARIANTS (each holds when)")
	for _, i := range l.Invariants {
		fmt.Fprintf(t, "  %s\t%s\n", i.Name, i.Holds)
	}
	fmt.Fprintln(t, "\nFAULTS\t\t")
	for _, f := range l.Faults {
		where := "both engines"
		switch {
		case !f.Virtual:
			where = "live only"
		case !f.Live:
			where = "virtual only"
		}
		fmt.Fprintf(t, "  %s\t%s (%s)\n", f.Kind, f.Does, where)
	}
	return t.Flush()
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
				return err
			}
			modules := map[string]string{}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, d := range info.Deps {
					modules[d.Path] = d.Version
				}
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
				"simrun": release, "go": runtime.Version(), "plan": sim.PlanVersion, "history": sim.HistoryVersion,
				"result": sim.ResultVersion, "protocol": sim.ProtocolVersion, "modules": modules,
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON, with the modules it was built from")
	return c
}

// release is the version of simrun.
const release = "0.1.0"

// defaultEngine is the engine of a run that names none.
const defaultEngine = "virtual"

func version() string { return "simrun " + release }

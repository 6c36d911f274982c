package main

import (
	"slices"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/spf13/cobra"
)

// completeArgs lets a shell complete arguments: names of ours, and files of the given kinds where none fits.
func completeArgs(c *cobra.Command, names func() []string, extensions ...string) {
	c.ValidArgsFunction = func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		var fit []string
		if names != nil {
			fit = beginWith(names(), word)
		}
		if len(fit) == 0 && len(extensions) > 0 {
			return extensions, cobra.ShellCompDirectiveFilterFileExt
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag lets a shell complete a flag's value.
func completeFlag(c *cobra.Command, flag string, names ...string) {
	err := c.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return beginWith(names, word), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag: a slip of ours that the first test finds
	}
}

func beginWith(names []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return len(n) < len(word) || n[:len(word)] != word })
}

// flaws are the flawed implementations.
func flaws() (names []string) {
	for _, i := range replica.All() {
		if i.Models != "" {
			names = append(names, i.Name)
		}
	}
	return names
}

// completions adds completion to all commands that take names of ours.
func completions(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "run":
			completeArgs(c, scenarios.Names, "yaml", "yml")
			completeFlag(c, "route", routeNames()...)
			completeFlag(c, "impl", implNames()...)
			completeFlag(c, "postgres", "auto", "local", "dsn")
		case "explain":
			completeArgs(c, scenarios.Names, "yaml", "yml")
		case "validate":
			completeArgs(c, nil, "yaml", "yml")
		case "hunt":
			completeArgs(c, flaws)
		case "replay":
			completeArgs(c, nil, "json")
		case "judge":
			completeFlag(c, "invariant", invariantNames()...)
		}
		if c.Flags().Lookup("engine") != nil {
			completeFlag(c, "engine", "virtual", "live")
		}
		if c.Flags().Lookup("strategy") != nil {
			completeFlag(c, "strategy", "random", "pct", exhaustive)
		}
	}
}

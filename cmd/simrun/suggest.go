package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// didYouMean is ` (did you mean "x"?)` for the nearest known name, or nothing.
func didYouMean(word string, known []string) string {
	helper := &cobra.Command{Use: "x", SuggestionsMinimumDistance: 2}
	for _, k := range known {
		helper.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	if s := helper.SuggestionsFor(word); len(s) > 0 {
		return fmt.Sprintf(" (did you mean %q?)", s[0])
	}
	return ""
}

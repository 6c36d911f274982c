package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-aafb3a99/simrun/scenarios"
)

// didYouMean is ` (did you mean "x"?)` for the nearest known name, or nothing.
func didYouMean(word string, known []string) string {
	if s := scenarios.Suggest(word, known); s != "" {
		return " (" + s + ")"
	}
	return ""
}

// flagError says what is wrong with a flag in words of this program instead of the library's.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		want := map[string]string{
			"int": "a whole number", "uint64": "a whole number from 0 on", "float64": "a number", "duration": "a time such as 30s or 5m", "bool": "true or false",
		}[value.GetFlag().Value.Type()]
		if want != "" {
			return usagef("--%s must be %s, not %q", value.GetFlag().Name, want, value.GetValue())
		}
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		return usageError{fmt.Errorf("%w%s", err, didYouMean("--"+unknown.GetSpecifiedName(), names))}
	}
	return usageError{err}
}

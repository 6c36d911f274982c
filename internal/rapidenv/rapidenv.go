// Package rapidenv keeps rapid's environment variables away from simrun: a malformed RAPID_SEED would panic in rapid's
// init, before main can say a sentence. It has to be initialised before rapid: Go initialises, among the packages whose
// imports are ready, the one with the smallest import path first, and this one needs nothing but os.
package rapidenv

import (
	"os"
	"strings"
)

func init() {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "RAPID_") {
			os.Unsetenv(name)
		}
	}
}

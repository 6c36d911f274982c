package scenarios

import (
	"fmt"
	"strings"
)

// Suggest names the known word that was probably meant by got: "did you mean "kill"?", or "" when nothing is near.
func Suggest(got string, known []string) string {
	if best := nearest(got, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// nearest is the known word nearest to got, "" when none is near.
func nearest(got string, known []string) string {
	best, least := "", max(1, min(len(got)/3, 4))+1
	for _, k := range known {
		if d := distance(strings.ToLower(got), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" && len(got) >= 3 { // half a name is a common slip: "terminate" for "terminate-backend"
		for _, k := range known {
			if strings.Contains(k, strings.ToLower(got)) {
				best = k
				break
			}
		}
	}
	return best
}

// suggestOrList is Suggest, or the list of what is known where that is short enough to read.
func suggestOrList(got string, known []string) string {
	if s := Suggest(got, known); s != "" {
		return s
	}
	switch {
	case len(known) == 0:
		return ""
	case len(known) > 20:
		return "simrun list shows those there are"
	}
	return "known: " + strings.Join(known, ", ")
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b. Words far longer
// than any name of ours are far from all of them, and not worth the square of their length.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

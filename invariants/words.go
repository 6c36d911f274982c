package invariants

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// sec writes an instant or a length of time in seconds, to the millisecond: 31.2s. Below a millisecond it is left as it is.
func sec(d sim.Duration) string {
	if d != 0 && -sim.Duration(time.Millisecond) < d && d < sim.Duration(time.Millisecond) {
		return d.String()
	}
	ms := d.D().Round(time.Millisecond).Milliseconds()
	return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + "s"
}

// list joins words as a sentence does: "a, b and c".
func list(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// more says what a violation stands for besides the first: "" for none, ", and 3 more (rows 8, 9 and 10)".
func more(rows []int64) string {
	if len(rows) == 0 {
		return ""
	}
	const shown = 5
	var words []string
	for i, r := range rows {
		if i == shown {
			words = append(words, "others")
			break
		}
		words = append(words, strconv.FormatInt(r, 10))
	}
	return fmt.Sprintf(", and %d more (%s %s)", len(rows), plural(len(rows), "row", "rows"), list(words))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func seqs(events ...*sim.Event) (out []int) {
	for _, e := range events {
		if e != nil {
			out = append(out, e.Seq)
		}
	}
	return out
}

// replicas lists each number once, in the order given.
func replicas(ns ...int) (out []int) {
	for _, n := range ns {
		seen := n == 0
		for _, o := range out {
			seen = seen || o == n
		}
		if !seen {
			out = append(out, n)
		}
	}
	return out
}

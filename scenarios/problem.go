package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Problem is one thing that is wrong with a scenario file.
type Problem struct {
	File       string
	Line       int    // from 1; 0: the file as a whole
	Column     int    // from 1, in characters
	Text       string // a sentence without a full stop
	Suggestion string // "" or what was probably meant: did you mean "kill"?
	Source     string // the line as it stands in the file
}

// sourceWidth is how much of a long line is shown.
const sourceWidth = 100

// String is the problem as it is shown to people:
//
//	kill.yaml:8:5: unknown field "knd" (did you mean "kind"?)
//	   8 |   - knd: kill
//	     |     ^
//
// Everything that came from the file is made printable, so that a file cannot send commands to a terminal.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(printable(p.File))
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": " + printable(p.Text))
	if p.Suggestion != "" {
		b.WriteString(" (" + printable(p.Suggestion) + ")")
	}
	if p.Line == 0 {
		return b.String()
	}
	line, column := excerpt(p.Source, p.Column)
	fmt.Fprintf(&b, "\n%5d | %s\n      | %s^", p.Line, line, strings.Repeat(" ", column-1))
	return b.String()
}

// excerpt is the part of a line around a column, and the column in it. Tabs become single spaces: the caret must stand
// under its character whatever the terminal's tab stops are.
func excerpt(line string, column int) (string, int) {
	rs := []rune(printable(strings.ReplaceAll(line, "\t", " ")))
	column = max(1, min(column, len(rs)+1))
	from := 0
	if column > sourceWidth-10 {
		from = column - sourceWidth/2
	}
	to := min(len(rs), from+sourceWidth)
	out, at := string(rs[from:to]), column-from
	if from > 0 {
		out, at = "..."+out, at+3
	}
	if to < len(rs) {
		out += "..."
	}
	return out, at
}

// printable replaces what a terminal might obey or could not show.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// Problems is every problem of one or more files. It is the error that Parse and Load return for bad content.
type Problems struct{ List []Problem }

// Error is all problems, one after another, each with its source line.
func (p *Problems) Error() string {
	parts := make([]string, len(p.List))
	for i, q := range p.List {
		parts[i] = q.String()
	}
	return strings.Join(parts, "\n")
}

// sort orders problems by place and drops exact repetitions.
func (p *Problems) sort() {
	slices.SortStableFunc(p.List, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	p.List = slices.CompactFunc(p.List, func(a, b Problem) bool { return a == b })
}

package reports

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable makes a text safe for a terminal and for XML: characters that command a terminal, or that neither can hold,
// are replaced; tabs and line breaks become single spaces, so that one item stays one line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A safeWriter is what commands print to: text that came from a file, a program or a server cannot command the terminal through it. Each
// Write must be whole characters, as those of fmt are.
type safeWriter struct{ w io.Writer }

func (s safeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, printable(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// raw is the writer itself, for what is not text for people or is made safe elsewhere.
func raw(w io.Writer) io.Writer {
	if s, ok := w.(safeWriter); ok {
		return s.w
	}
	return w
}

// What passwords stand in: an address, such as one that was given where a scenario's name belongs, and libpq's words.
var (
	inAddress = regexp.MustCompile(`(://[^\s:/@]*:)\S+@`) // to the last @ of the word: a password may hold one
	inWords   = regexp.MustCompile(`((?i:\bpassword)\s*=\s*)('[^']*'|\S+)`)
)

// printable replaces what a terminal might obey or could not show, and the passwords of addresses: a log of CI is read by many.
func printable(s string) string {
	s = inWords.ReplaceAllString(inAddress.ReplaceAllString(s, "${1}***@"), "${1}***")
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (r == utf8.RuneError || !unicode.IsPrint(r)) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// plural is "1 schedule" or "2 schedules".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

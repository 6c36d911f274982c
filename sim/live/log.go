package live

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	lastLines  = 4       // how much of a program's log a sentence about its end repeats
	maxLogLine = 1000    // bytes; what is longer is broken up
	maxLog     = 8 << 20 // bytes of one life's log; the rest is left out
)

// A lifeLog is the standard output and error of one life of a replica, on its way into the log that all share: line by line with
// the replica's name before it, without the database's password, and not without end. It remembers the last lines.
type lifeLog struct {
	mu      sync.Mutex
	w       io.Writer
	name    string
	secrets *strings.Replacer
	part    []byte // of a line that has not ended
	last    []string
	written int
}

func newLifeLog(w io.Writer, name, dsn string) *lifeLog {
	return &lifeLog{w: w, name: name, secrets: secretsOf(dsn)}
}

// secretsOf replaces the password of an address, in every form in which a program may come to write it.
func secretsOf(dsn string) *strings.Replacer {
	u, err := url.Parse(dsn)
	if err != nil {
		return strings.NewReplacer()
	}
	password, _ := u.User.Password()
	if password == "" {
		return strings.NewReplacer()
	}
	const hidden = "(password)"
	_, inURL, _ := strings.Cut(u.User.String(), ":")
	pairs := []string{inURL, hidden, url.QueryEscape(password), hidden, url.PathEscape(password), hidden}
	if len(password) > 2 { // the replacement of one letter would only show which one it is
		pairs = append(pairs, password, hidden)
	}
	return strings.NewReplacer(pairs...)
}

// Write never fails: a program must not notice that its log is full.
func (l *lifeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		if i < 0 && len(l.part) < maxLogLine {
			return len(p), nil
		}
		end := i + 1
		if i < 0 || i > maxLogLine {
			i, end = maxLogLine, maxLogLine
		}
		l.line(string(l.part[:i]))
		l.part = append(l.part[:0], l.part[end:]...)
	}
}

// line writes one line, without its end.
func (l *lifeLog) line(s string) {
	s = l.secrets.Replace(strings.TrimRight(s, "\r"))
	if strings.TrimSpace(s) != "" {
		l.last = append(l.last, s)
		l.last = l.last[max(0, len(l.last)-lastLines):]
	}
	switch {
	case l.written > maxLog:
		return
	case l.written+len(s) > maxLog:
		s = fmt.Sprintf("(more than %d MiB: the rest is left out)", maxLog>>20)
		l.written = maxLog
	}
	n, _ := fmt.Fprintf(l.w, "%s: %s\n", l.name, s)
	l.written += n
}

// tail is the end of a sentence: what it wrote last. Nothing of it can command a terminal.
func (l *lifeLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.line(string(l.part))
		l.part = nil
	}
	if len(l.last) == 0 {
		return "; it wrote nothing"
	}
	var lines []string
	for _, s := range l.last {
		lines = append(lines, printable(shortened(strings.TrimSpace(s), 200)))
	}
	return "; it wrote last: " + strings.Join(lines, " | ")
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

package scenarios

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-shellwords"

	"github.com/seed-aafb3a99/simrun/sim"
)

// The most that a program's description may hold.
const (
	maxKeys    = 32
	maxCommand = 8192
	maxSQLFile = 4 << 20
)

// ParseCommand cuts a command line into a program and its arguments, by the quotes, backslashes and blanks of a shell. There is no
// shell: nothing is expanded, and what only a shell could do (a pipe, a redirection) is an error with a way out.
func ParseCommand(line string) ([]string, error) {
	if len(line) > maxCommand || strings.ContainsRune(line, 0) {
		return nil, fmt.Errorf("exec: the command is longer than %d characters, or holds a zero byte", maxCommand)
	}
	p := shellwords.NewParser()
	words, err := p.Parse(line)
	switch {
	case err != nil:
		return nil, fmt.Errorf("exec: %q is no command: a quote or a parenthesis is left open, or a backslash ends it", shorten(line))
	case p.Position >= 0:
		return nil, fmt.Errorf("exec: no shell reads the command, so %q means nothing in it: put it in quotes, or begin with sh -c '...'", string([]rune(line)[p.Position]))
	case len(words) == 0 || words[0] == "":
		return nil, errors.New("exec: the command is missing: write exec:PROGRAM ARGUMENTS")
	}
	return words, nil
}

// program checks what `impl` says of a program.
func (c *checker) program() {
	p := c.s.Program
	if p == nil {
		return
	}
	if c.required("impl.exec", len(p.Exec) > 0) {
		if p.Exec[0] == "" {
			c.say("impl.exec[0]", "exec begins with the program's name, which is empty", "")
		}
		if len(p.Name()) > maxCommand {
			c.say("impl.exec", fmt.Sprintf("exec is longer than %d characters", maxCommand), "")
		}
	}
	if c.has("impl.keys") && len(p.Keys) == 0 {
		c.say("impl.keys", "keys is empty", "list the advisory locks that are the program's own, or take the line out")
	}
	if len(p.Keys) > maxKeys {
		c.say("impl.keys", fmt.Sprintf("keys holds more than %d keys", maxKeys), "")
	}
	for i, k := range p.Keys {
		path := fmt.Sprintf("impl.keys[%d]", i)
		if k == 0 && c.good(path) {
			c.say(path, "0 cannot be told from no key at all", "")
		}
		if slices.Contains(p.Keys[:i], k) && c.good("impl.keys") {
			c.say(path, fmt.Sprintf("key %d is given twice", k), "")
		}
	}
	for _, f := range []struct{ name, sql string }{{"load", p.Load}, {"ledger", p.Ledger}, {"migrations", p.Migrations}} {
		if path := "impl." + f.name; c.has(path) && strings.TrimSpace(f.sql) == "" {
			c.say(path, f.name+" is empty", "")
		}
	}
	if p.Load != "" && !(strings.Contains(p.Load, "$1") && strings.Contains(p.Load, "$2")) {
		c.say("impl.load", "load must use $1, the id of the unit of work, and $2, the seconds until it is due", "")
	}
}

// readMigrations reads the SQL file that a program names, relative to the scenario's folder.
func (d *decoder) readMigrations(s *sim.Scenario) {
	p := s.Program
	if p == nil || strings.TrimSpace(p.Migrations) == "" {
		return
	}
	path := p.Migrations
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Dir, path)
	}
	sql, err := readSQL(path)
	if err != nil {
		at := d.places["impl.migrations"]
		d.problem(at.line, at.column, fmt.Sprintf("migrations: %v", err), d.similarFile(path))
		return
	}
	p.MigrationsSQL = sql
}

// readSQL reads a text file of bounded size. A device or a pipe is no file of migrations, and might never end.
func readSQL(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("there is no file %s", path)
	case err != nil:
		return "", fmt.Errorf("%s cannot be read: %w", path, err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w", path, errors.Unwrap(err))
	}
	defer f.Close() //nolint:errcheck // only read from
	b, err := io.ReadAll(io.LimitReader(f, maxSQLFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s cannot be read: %w", path, err)
	case len(b) > maxSQLFile:
		return "", fmt.Errorf("%s is larger than %d MiB", path, maxSQLFile>>20)
	case !utf8.Valid(b) || strings.ContainsRune(string(b), 0):
		return "", fmt.Errorf("%s is not UTF-8 text", path)
	case strings.TrimSpace(string(b)) == "":
		return "", fmt.Errorf("%s is empty", path)
	}
	return string(b), nil
}

// similarFile suggests the file beside the missing one that was probably meant.
func (d *decoder) similarFile(path string) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) > 1000 {
		return ""
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == ".sql" {
			names = append(names, e.Name())
		}
	}
	return Suggest(filepath.Base(path), names)
}

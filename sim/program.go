package sim

import "strings"

// ExecPrefix begins the name of an implementation that is any program: exec:COMMAND.
const ExecPrefix = "exec:"

// IsProgram reports whether an implementation's name is exec:COMMAND.
func IsProgram(impl string) bool { return strings.HasPrefix(impl, ExecPrefix) }

// A Program is an implementation of somebody else's, with what simrun must know to run and judge it: one process is started per
// replica, and speaks the protocol of docs/protocol.md.
type Program struct {
	Exec []string `yaml:"exec" json:"exec"` // the program and its arguments; no shell reads them

	// Keys are the advisory locks that are its own: the first is handed to it, and all are watched in pg_locks. Without them it is the
	// key of the role publish.
	Keys []int64 `yaml:"keys,omitempty" json:"keys,omitempty"`

	// Migrations names the SQL file that creates its tables, relative to the scenario's file; MigrationsSQL is what stood in it.
	// Without one it gets the tables of the reference.
	Migrations    string `yaml:"migrations,omitempty" json:"migrations,omitempty"`
	MigrationsSQL string `yaml:"-" json:"migrations_sql,omitempty"`

	Load   string `yaml:"load,omitempty" json:"load,omitempty"`     // SQL that adds one unit of work; see Implementation.Load
	Ledger string `yaml:"ledger,omitempty" json:"ledger,omitempty"` // query over its tables that yields the ledger; see Implementation.Ledger
}

// Name is the program's name as an implementation: exec: and the command line that a shell would read as Exec.
func (p *Program) Name() string {
	words := make([]string, len(p.Exec))
	for i, w := range p.Exec {
		words[i] = ShellQuote(w)
	}
	return ExecPrefix + strings.Join(words, " ")
}

// ShellQuote writes a word so that a shell reads it back.
func ShellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

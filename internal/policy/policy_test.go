// Package policy holds the one direction: which package may import which (design, section 3).
package policy

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/seed-aafb3a99/simrun"

// forbidden says what a package, and all below it, must not reach, directly or through others. Paths are relative to the module; a
// trailing /... covers what is below. Test files are free.
var forbidden = map[string][]string{
	"sim":            {"sim/...", "lockimpl/...", "invariants", "scenarios", "pgbouncer", "reports", "internal/...", "cmd/..."},
	"sim/gen":        {"sim/live", "sim/virtual", "sim/pg", "sim/netfault", "pgbouncer", "lockimpl/...", "reports"},
	"sim/live":       {"lockimpl/...", "reports", "sim/virtual"},
	"sim/virtual":    {"lockimpl/...", "reports", "sim/live"},
	"sim/netfault":   {"sim/live", "sim/virtual", "lockimpl/...", "reports"},
	"sim/pg":         {"sim/live", "sim/virtual", "lockimpl/...", "reports"},
	"sim/replica":    {"sim/netfault", "sim/live", "sim/virtual", "pgbouncer", "reports"},
	"sim/simtest":    {"lockimpl/..."},
	"lockimpl":       {"sim", "sim/...", "invariants", "scenarios", "pgbouncer", "reports"},
	"lockimpl/...":   {"sim", "sim/...", "invariants", "scenarios", "pgbouncer", "reports"},
	"invariants":     {"sim/live", "sim/virtual", "sim/pg", "sim/netfault", "lockimpl/...", "pgbouncer"},
	"scenarios":      {"sim/live", "sim/virtual", "sim/pg", "lockimpl/..."},
	"pgbouncer":      {"sim", "sim/...", "lockimpl/...", "reports"},
	"reports":        {"sim/live", "sim/virtual", "sim/pg", "lockimpl/..."},
	"internal/probe": {"sim", "sim/...", "lockimpl/...", "invariants", "scenarios", "pgbouncer", "reports"},
	"internal/proc":  {"sim/...", "lockimpl/...", "invariants", "scenarios", "pgbouncer", "reports"},
}

// pure packages import the standard library only.
var pure = []string{"sim"}

// nobody imports these.
var roots = []string{"cmd/simrun"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

func TestOneDirection(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for dec.More() {
		var p pkg
		require.NoError(t, dec.Decode(&p))
		seen++
		for _, v := range violations(p) {
			t.Error(v)
		}
	}
	require.Greater(t, seen, 8, "packages looked at")
}

// violations names what p reaches and must not.
func violations(p pkg) (out []string) {
	self := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
	for rule, list := range forbidden {
		if !covers(rule, self) {
			continue
		}
		for _, dep := range p.Deps {
			rel, ours := strings.CutPrefix(dep, module+"/")
			for _, f := range list {
				if ours && covers(f, rel) {
					out = append(out, self+" must not reach "+rel)
				}
			}
		}
	}
	for _, dep := range p.Imports {
		rel, ours := strings.CutPrefix(dep, module+"/")
		for _, q := range pure {
			if self == q && strings.Contains(strings.SplitN(dep, "/", 2)[0], ".") {
				out = append(out, self+" may import nothing but the standard library, but imports "+dep)
			}
		}
		for _, r := range roots {
			if ours && rel == r {
				out = append(out, self+" must not import "+rel)
			}
		}
	}
	return out
}

func covers(pattern, path string) bool {
	if dir, below := strings.CutSuffix(pattern, "/..."); below {
		return strings.HasPrefix(path, dir+"/")
	}
	return pattern == path
}

func TestThePolicyCanFail(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, violations(pkg{ImportPath: module + "/lockimpl/flawed", Deps: []string{module + "/sim/gen"}}))
	require.NotEmpty(t, violations(pkg{ImportPath: module + "/sim", Imports: []string{"golang.org/x/sys/unix"}}))
	require.NotEmpty(t, violations(pkg{ImportPath: module + "/reports", Imports: []string{module + "/cmd/simrun"}}))
	require.Empty(t, violations(pkg{ImportPath: module + "/sim/replica", Deps: []string{module + "/lockimpl/flawed", "context"}}))
}

// The table of docs/architecture.md is this policy, and has a row for every package.
func TestTheArchitecturePage(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	rows := table(string(b))
	for name, list := range forbidden {
		require.Equal(t, list, rows[name], "what %s must not reach", name)
	}
	for name, list := range rows {
		require.Equal(t, forbidden[name], list, "what %s must not reach", name)
	}
	cmd := exec.Command("go", "list", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	for _, p := range strings.Fields(string(out)) {
		p = strings.TrimPrefix(p, module+"/")
		found := false
		for name := range rows {
			found = found || covers(name, p) || covers(name, p+"/") // docs/... is docs as well
		}
		require.True(t, found, "%s has no row", p)
	}
}

var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+\\|([^|]*)\\|$")

// table maps the packages of the page's table to what they must not reach.
func table(page string) map[string][]string {
	rows := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		rows[m[1]] = nil
		for _, x := range strings.Split(m[2], ",") {
			if x = strings.Trim(x, " `"); x != "" {
				rows[m[1]] = append(rows[m[1]], x)
			}
		}
	}
	return rows
}

func TestTheTableIsRead(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string][]string{"a/b": {"c", "d/..."}, "e": nil}, table("| package | its | x |\n| --- | --- | --- |\n| `a/b` | does `x` | `c`, `d/...` |\n| `e` | does | |\n"))
}

package pg

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-aafb3a99/simrun/sim"
)

// oldest is the oldest major version the reference implementation works with.
const oldest = 14

// A binaries is a Postgres installation.
type binaries struct {
	dir     string // holds postgres and initdb, links resolved
	version string // "15.18"
	major   int
	banner  string // all that postgres --version says
}

// found remembers what was found, by the environment that it depends on: asking programs for their versions takes as
// long as starting a server.
var found sync.Map

// findBinaries finds the newest installation that will do, or the one that was asked for.
func findBinaries() (binaries, error) {
	key := os.Getenv("SIMRUN_PG_BIN") + "\x00" + os.Getenv("PATH")
	if b, ok := found.Load(key); ok {
		return b.(binaries), nil
	}
	b, err := searchBinaries()
	if err == nil {
		found.Store(key, b)
	}
	return b, err
}

// searchBinaries looks in $SIMRUN_PG_BIN and nowhere else when it is set; otherwise where pg_config says, in the places
// the distributions use, the newest first, and along PATH.
func searchBinaries() (binaries, error) {
	if dir := os.Getenv("SIMRUN_PG_BIN"); dir != "" {
		b, err := examine(dir)
		if err != nil {
			return b, &sim.EnvironmentError{Problem: "SIMRUN_PG_BIN is set to " + dir + ", but there is no working Postgres: set it to the directory that holds postgres and initdb", Err: err}
		}
		return b, b.checkVersion()
	}
	var tooOld error
	for _, dir := range candidates() {
		b, err := examine(dir)
		if err != nil {
			continue
		}
		if err := b.checkVersion(); err != nil {
			tooOld = err
			continue
		}
		return b, nil
	}
	if tooOld != nil {
		return binaries{}, tooOld
	}
	return binaries{}, &sim.EnvironmentError{Problem: "Postgres is not installed: apt-get install postgresql (or set SIMRUN_PG_BIN to the directory of its programs, or SIMRUN_DSN to the address of a server)"}
}

func candidates() (dirs []string) {
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql*/bin"} {
		matches, _ := filepath.Glob(pattern)
		slices.SortFunc(matches, func(a, b string) int { return firstNumber(b) - firstNumber(a) })
		dirs = append(dirs, matches...)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	return dirs
}

var number = regexp.MustCompile(`[0-9]+`)

// firstNumber is the first number in a path: the major version, so that 9 comes after 14.
func firstNumber(path string) int {
	n, _ := strconv.Atoi(number.FindString(path))
	return n
}

// versionWords matches what postgres --version and server_version say: "15.18", also "18beta1" and "19devel".
var versionWords = regexp.MustCompile(`\b(\d+)(?:\.\d+)*(?:beta\d+|rc\d+|devel)?`)

// examine asks an installation for its version.
func examine(dir string) (b binaries, err error) {
	if b.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return b, err
	}
	if _, err := exec.LookPath(filepath.Join(b.dir, "initdb")); err != nil {
		return b, err
	}
	out, err := exec.Command(filepath.Join(b.dir, "postgres"), "--version").Output()
	if err != nil {
		return b, fmt.Errorf("ask %s for its version: %w", filepath.Join(b.dir, "postgres"), err)
	}
	b.banner = strings.TrimSpace(string(out))
	m := versionWords.FindStringSubmatch(b.banner)
	if m == nil {
		return b, fmt.Errorf("%s says its version is %q", filepath.Join(b.dir, "postgres"), b.banner)
	}
	b.version = m[0]
	b.major, err = strconv.Atoi(m[1])
	return b, err
}

func (b binaries) checkVersion() error {
	if b.major < oldest {
		return &sim.EnvironmentError{Problem: fmt.Sprintf("the Postgres in %s is version %s, but simrun needs %d or later: install a newer one, or set SIMRUN_PG_BIN", b.dir, b.version, oldest)}
	}
	return nil
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// binary is simrun, built once: the tests use it as people do.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "simrun-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "simrun")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		panic(string(out))
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// simrun runs the command line in a directory of its own and returns stdout, stderr and the exit status.
func simrun(t *testing.T, dir string, args ...string) (string, string, int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CI=", "SIMRUN_DSN=", "RAPID_SEED=abc", "NO_COLOR=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func result(t *testing.T, dir string) sim.Result {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "simrun-out", "latest", "result.json"))
	require.NoError(t, err)
	var r sim.Result
	require.NoError(t, json.Unmarshal(b, &r))
	return r
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return lines[len(lines)-1]
}

// Wrong usage is status 4, one or a few sentences, and nothing is started or written.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rnu"}, `did you mean "run"?`},
		{[]string{"run", "kil-leader"}, `did you mean "kill-leader"?`},
		{[]string{"run", "--no-such-flag"}, "unknown flag"},
		{[]string{"run", "--engine", "quantum"}, "virtual or live"},
		{[]string{"run", "--route", "pgbouncer-sesion"}, `did you mean "pgbouncer-session"?`},
		{[]string{"run", "--impl", "referense"}, `did you mean "reference"?`},
		{[]string{"run", "--postgres", "postgres://me:secret@h/db"}, "SIMRUN_DSN"},
		{[]string{"run", "--postgres", "dsn"}, "SIMRUN_DSN"},
		{[]string{"run", "--postgres", "docker"}, "not built yet"},
		{[]string{"run", "--strategy", "exhaustive"}, "not built yet"},
		{[]string{"run", "--strategy", "luck"}, "random or pct"},
		{[]string{"run", "--schedules", "-1"}, "--schedules"},
		{[]string{"run", "--schedules", "x"}, "--schedules"},
		{[]string{"run", "--schedules", "3", "--for", "1m"}, "not both"},
		{[]string{"run", "--all", "steady"}, "not both"},
		{[]string{"run", "--replicas", "1000"}, "--replicas"},
		{[]string{"run", "no/such/file.yaml"}, "no/such/file.yaml"},
		{[]string{"replay"}, "arg"},
		{[]string{"replay", "nowhere.json"}, "nowhere.json"},
		{[]string{"judge", "nowhere"}, "nowhere"},
		{[]string{"report", "nowhere"}, "nowhere"},
		{[]string{"list", "extra"}, "extra"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, errs, status := simrun(t, dir, c.args...)
			require.Equal(t, exitUsage, status, out+errs)
			require.Contains(t, errs, c.want)
			require.NotContains(t, errs, "secret")
			require.NotContains(t, errs, "goroutine")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left, "nothing is written")
		})
	}
}

func TestHostileCounterexamples(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty": "", "no json": "{", "a list": "[1]", "no version": "{}", "future": `{"v":99,"plan":{"v":1}}`,
		"no scenario": `{"v":1,"plan":{"v":1},"invariant":"one-leader"}`, "bad duration": `{"v":1,"plan":{"v":1,"horizon":5}}`,
		"unknown invariant": `{"v":1,"plan":{"v":1,"horizon":"5s"},"invariant":"nope"}`,
		"huge replicas":     `{"v":1,"plan":{"v":1,"horizon":"5s"},"invariant":"one-leader","scenario":{"replicas":1000000,"invariants":["one-leader"]}}`,
		"binary":            "\x00\xff\xfe",
		"no command":        `{"v":1,"plan":{"v":1,"horizon":"5s"},"engine":"live","route":"direct","impl":"exec:","invariant":"one-leader","scenario":{"name":"x","replicas":1,"invariants":["one-leader"],"program":{"exec":[]}}}`,
		"empty command":     `{"v":1,"plan":{"v":1,"horizon":"5s"},"engine":"live","route":"direct","impl":"exec:''","invariant":"one-leader","scenario":{"name":"x","replicas":1,"invariants":["one-leader"],"program":{"exec":[""]}}}`,
		"no folder":         `{"v":1,"plan":{"v":1,"horizon":"5s"},"engine":"live","route":"direct","impl":"exec:sh","invariant":"one-leader","scenario":{"name":"x","replicas":1,"invariants":["one-leader"],"program":{"exec":["sh"]},"dir":"/no/x.json"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "x.json")
			require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
			_, errs, status := simrun(t, dir, "replay", file)
			require.Equal(t, exitUsage, status, errs)
			require.NotContains(t, errs, "goroutine")
			if strings.Contains(content, `"exec:`) {
				require.Contains(t, errs, "exec:") // it is a counterexample; its program is not there
				return
			}
			require.Contains(t, errs, "x.json")
		})
	}
}

func TestListAndVersion(t *testing.T) {
	t.Parallel()
	out, _, status := simrun(t, t.TempDir(), "list", "--json")
	require.Zero(t, status)
	var l listing
	require.NoError(t, json.Unmarshal([]byte(out), &l))
	require.Equal(t, "reference", l.Implementations[0].Name)
	require.GreaterOrEqual(t, len(l.Scenarios), 8)
	require.NotEmpty(t, l.Invariants)
	require.NotEmpty(t, l.Faults)
	out, _, status = simrun(t, t.TempDir(), "list")
	require.Zero(t, status)
	require.Contains(t, out, "two-leaders-pooler")
	out, _, status = simrun(t, t.TempDir(), "version")
	require.Zero(t, status)
	require.Equal(t, "simrun "+release, strings.TrimSpace(out))
	out, _, status = simrun(t, t.TempDir(), "version", "--json")
	require.Zero(t, status)
	require.Contains(t, out, "github.com/Shopify/toxiproxy/v2")
}

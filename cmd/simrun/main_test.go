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
	return simrunWith(t, dir, nil, args...)
}

// simrunWith is simrun with variables of the environment.
func simrunWith(t *testing.T, dir string, env []string, args ...string) (string, string, int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CI=", "GITHUB_ACTIONS=", "SIMRUN_DSN=", "RAPID_SEED=abc", "NO_COLOR=1"), env...)
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
		{[]string{"run", "--strategy", "exhaustive", "--engine", "live"}, "needs the virtual engine"},
		{[]string{"run", "--strategy", "pct", "--engine", "live"}, "needs the virtual engine"},
		{[]string{"run", "--selfcheck", "--engine", "live"}, "needs the virtual engine"},
		{[]string{"run", "--selfcheck", "--strategy", "exhaustive"}, "an exploration runs no schedule twice"},
		{[]string{"run", "--strategy", "luck"}, "random, pct or exhaustive"},
		{[]string{"run", "--schedules", "-1"}, "--schedules"},
		{[]string{"run", "--out", ""}, "--out needs"},
		{[]string{"run", "--time-scale", "NaN"}, "--time-scale"},
		{[]string{"run", "--time-scale", "Inf"}, "--time-scale"},
		{[]string{"validate", "/dev/zero"}, "no ordinary file"},
		{[]string{"replay", "/dev/zero"}, "no ordinary file"},
		{[]string{"run", "--schedules", "x"}, "--schedules"},
		{[]string{"run", "--schedules", "3", "--for", "1m"}, "not both"},
		{[]string{"run", "--all", "steady"}, "not both"},
		{[]string{"run", "--last-failed", "steady"}, "not both"},
		{[]string{"run", "--last-failed", "--route", "direct"}, "leave --route out"},
		{[]string{"run", "--replicas", "1000"}, "--replicas"},
		{[]string{"run", "no/such/file.yaml"}, "no/such/file.yaml"},
		{[]string{"replay"}, "an argument is missing: simrun replay FILE"},
		{[]string{"explain", "a", "b"}, `"a b" is not what fits here: simrun explain FILE|NAME`},
		{[]string{"replay", "nowhere.json"}, "nowhere.json"},
		{[]string{"judge", "nowhere"}, "simrun-out/latest"},
		{[]string{"judge", "."}, "simrun-out/latest"},
		{[]string{"judge", ".", "--invariant", "one-leadr"}, `did you mean "one-leader"?`},
		{[]string{"explain", "kil-leader"}, `did you mean "kill-leader"?`},
		{[]string{"hunt", "naive-poled"}, `did you mean "naive-pooled"?`},
		{[]string{"run", "--sead", "1"}, `did you mean "--seed"?`},
		{[]string{"run", "--seed", "-1"}, `--seed must be a whole number from 0 on, not "-1"`},
		{[]string{"explain", "steady", "--seed", "x"}, `--seed must be a whole number from 0 on, not "x"`},
		{[]string{"run", "--for", "5"}, `--for must be a time such as 30s or 5m, not "5"`},
		{[]string{"run", "--json=perhaps"}, `--json must be true or false, not "perhaps"`},
		{[]string{"report", "nowhere"}, "simrun-out/latest"},
		{[]string{"list", "extra"}, `"extra" is not what fits here: simrun list`},
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
		"empty": "", "no json": "{", "a list": "[1]", "no version": "{}", "future": `{"v":99,"plan":{"v":1},"scenario":{},"invariant":"one-leader"}`,
		"no scenario": `{"v":1,"plan":{"v":1},"invariant":"one-leader"}`, "bad duration": `{"v":1,"plan":{"v":1,"horizon":5},"scenario":{},"invariant":"one-leader"}`,
		"unknown route":     `{"v":1,"plan":{"v":1,"horizon":"5s"},"invariant":"one-leader","route":"\u001b]0;owned\u0007","scenario":{"name":"x","replicas":1,"invariants":["one-leader"]}}`,
		"escape sequences":  `{"v":1,"plan":{"v":1},"scenario":{},"invariant":"one-leader","\u001b]0;owned\u0007":1}`,
		"unknown invariant": `{"v":1,"plan":{"v":1,"horizon":"5s"},"scenario":{},"invariant":"nope"}`,
		"huge replicas":     `{"v":1,"plan":{"v":1,"horizon":"5s"},"invariant":"one-leader","scenario":{"replicas":1000000,"invariants":["one-leader"]}}`,
		"endless":           `{"v":1,"plan":{"v":1,"horizon":"999999h"},"invariant":"one-leader","route":"direct","scenario":{"name":"x","replicas":1,"invariants":["one-leader"]}}`,
		"nobody there":      `{"v":1,"plan":{"v":1,"horizon":"5s","faults":[{"kind":"kill","target":"9","at":"1s"}]},"invariant":"one-leader","route":"direct","scenario":{"name":"x","replicas":1,"invariants":["one-leader"]}}`,
		"before the start":  `{"v":1,"plan":{"v":1,"horizon":"5s","phase":["-1s"]},"invariant":"one-leader","route":"direct","scenario":{"name":"x","replicas":1,"invariants":["one-leader"]}}`,
		"back in time":      `{"v":1,"plan":{"v":1,"horizon":"5s","delays":[[{"req":"-1ms","resp":"0s"}]]},"invariant":"one-leader","route":"direct","scenario":{"name":"x","replicas":1,"invariants":["one-leader"]}}`,
		"both sides":        `{"v":1,"plan":{"v":1,"horizon":"5s","faults":[{"kind":"kill","target":"leader","at":"1s","before":{"pattern":"x","nth":1},"after":{"pattern":"x","nth":1}}]},"invariant":"one-leader","route":"direct","scenario":{"name":"x","replicas":1,"invariants":["one-leader"]}}`,
		"binary":            "\x00\xff\xfe",
		"a result":          `{"schema":1,"scenarios":[],"started":"2026-01-01T00:00:00Z"}`,
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
			require.NotContains(t, errs, "\x1b")
			if strings.Contains(content, `"exec:`) {
				require.Contains(t, errs, "exec:") // it is a counterexample; its program is not there
				return
			}
			require.Contains(t, errs, "x.json")
			if name == "a result" || name == "a list" {
				require.Contains(t, errs, "simrun-out/*/counterexamples/", "where there is one")
				require.NotContains(t, errs, "unknown field")
			}
		})
	}
}

// A shell completes names of scenarios, flaws, routes and invariants, and files of the right kind.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "kill"}, "kill-leader\n:4\n"}, {[]string{"run", "my-"}, "yaml\nyml\n:8\n"}, {[]string{"run", "--route", "dir"}, "direct\n:4\n"},
		{[]string{"hunt", "naive-"}, "naive-pooled\n:4\n"}, {[]string{"judge", "--invariant", "one-"}, "one-leader\n:4\n"}, {[]string{"replay", ""}, "json\n:8\n"},
		{[]string{"replay", "--engine", "l"}, "live\n:4\n"}, {[]string{"explain", "stor"}, "stormy\n:4\n"},
	} {
		out, errs, status := simrun(t, t.TempDir(), append([]string{"__complete"}, c.args...)...)
		require.Zero(t, status, errs)
		require.Equal(t, c.want, out, c.args)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		out, errs, status := simrun(t, t.TempDir(), "completion", shell)
		require.Zero(t, status, errs)
		require.Contains(t, out, "__complete")
		require.NotContains(t, out, "\uFFFD")
	}
	_, errs, status := simrun(t, t.TempDir(), "completion", "bsh")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "bash, zsh")
}

// The schema in docs/ is the one that simrun prints. To write it anew: go run ./cmd/simrun schema > docs/scenario.schema.json
func TestSchemaInTheDocs(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../../docs/scenario.schema.json")
	require.NoError(t, err)
	out, errs, status := simrun(t, t.TempDir(), "schema")
	require.Zero(t, status, errs)
	require.Equal(t, string(want), out)
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
	for _, spelling := range []string{"--version", "-v"} {
		out, _, status = simrun(t, t.TempDir(), spelling)
		require.Zero(t, status)
		require.Equal(t, "simrun "+release+"\n", out)
	}
	out, _, status = simrun(t, t.TempDir(), "version", "--json")
	require.Zero(t, status)
	require.Contains(t, out, "github.com/Shopify/toxiproxy/v2")
}

// Where the output cannot be written, nothing has been shown.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("../../scenarios/steady.yaml")
	require.NoError(t, err)
	for _, args := range [][]string{{"list"}, {"schema"}, {"completion", "bash"}, {"explain", "kill-leader"}, {"validate", file}, {"version"}, {"run", "steady", "--schedules", "1", "--route", "direct"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		var errs strings.Builder
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), full, &errs
		_ = cmd.Run()
		require.Equal(t, exitEnvironment, cmd.ProcessState.ExitCode(), "%v: %s", args, errs.String())
		require.Contains(t, errs.String(), "no space left", args)
		require.NoError(t, full.Close())
	}
}

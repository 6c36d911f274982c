package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// The bug that simrun began with: found, explained, saved, replayed.
func TestTwoLeadersBehindAPooler(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, errs, status := simrun(t, dir, "run", "two-leaders-pooler", "--impl", "naive-pooled", "--seed", "1", "--engine", "live", "--no-shrink")
	require.Zero(t, status, out+errs)
	require.Regexp(t, `^DONE 1 scenarios, 1 passed, 0 failed, 0 inconclusive in \d+\.\ds$`, lastLine(out))
	require.Contains(t, out, "one-leader violated, as expected")
	r := result(t, dir)
	require.Equal(t, exitOK, r.ExitStatus)
	require.Len(t, r.Scenarios, 1)
	e := r.Scenarios[0]
	require.Equal(t, []string{"one-leader", "probe"}, e.Expected)
	require.GreaterOrEqual(t, e.Require["elections"].Seen, 2)
	require.NotEmpty(t, e.Counterexamples)
	for _, name := range []string{"report.html", "junit.xml", "result.json", e.Counterexamples[0].File, e.Histories[0], e.Counterexamples[0].History} {
		info, err := os.Stat(filepath.Join(dir, "simrun-out", "latest", name))
		require.NoError(t, err)
		require.Positive(t, info.Size(), name)
	}

	out, errs, status = simrun(t, dir, "replay", filepath.Join("simrun-out", "latest", e.Counterexamples[0].File), "-n", "4")
	require.Zero(t, status, "it was expected: "+out+errs)
	require.Regexp(t, "reproduced [1-4] of 4", out) // whether two replicas meet on one backend is for the wall clock to say

	out, _, status = simrun(t, dir, "judge", "simrun-out/latest")
	require.Zero(t, status, out)
	require.Contains(t, out, "violated     one-leader")
	out, errs, status = simrun(t, dir, "report", "simrun-out/latest", "-o", "again.html")
	require.Zero(t, status, out+errs)
}

// The correct implementation refuses the same route: nobody leads, and that is a pass only because refusals were seen.
func TestTheReferenceRefusesThePooler(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PGOPTIONS", "-c no.such=thing") // a user's settings are about the user's servers
	out, errs, status := simrun(t, dir, "run", "two-leaders-pooler", "--impl", "reference", "--seed", "1", "--engine", "live", "--schedules", "2")
	require.Zero(t, status, out+errs)
	e := result(t, dir).Scenarios[0]
	require.GreaterOrEqual(t, e.Require["refusals"].Seen, 2)
	for _, v := range e.Verdicts {
		require.Equal(t, sim.StatusHeld, v.Status, v)
		require.Positive(t, v.Examined)
	}
}

// A violation that nobody expects is status 1, in a scenario of the user's own, and --json keeps stdout clean.
func TestAViolationIsStatusOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(`
name: mine
shows: A team's own scenario.
replicas: 2
routes: [pgbouncer-transaction]
impl: naive-pooled
duration: 45s
invariants: [one-leader]
`), 0o644))
	out, errs, status := simrun(t, dir, "run", "mine.yaml", "--engine", "live", "--schedules", "3", "--json", "--no-shrink", "--junit", "j.xml")
	require.Equal(t, exitViolated, status, out+errs)
	require.True(t, strings.HasPrefix(out, "{"), out)
	require.True(t, strings.HasSuffix(strings.TrimSpace(out), "}"))
	require.Contains(t, lastLine(errs), "DONE 1 scenarios, 0 passed, 1 failed, 0 inconclusive")
	b, err := os.ReadFile(filepath.Join(dir, "j.xml"))
	require.NoError(t, err)
	require.Contains(t, string(b), "<failure")
	ce := result(t, dir).Scenarios[0].Counterexamples[0]
	out, errs, status = simrun(t, dir, "replay", filepath.Join("simrun-out", "latest", ce.File), "-n", "4") // on a busy machine the two may miss each other once
	require.Equal(t, exitViolated, status, "reproduced and not expected: "+out+errs)
}

// What is wrong with the environment is one sentence and status 6, and no password is in it.
func TestEnvironmentErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		args []string
	}{
		"no binaries":        {[]string{"SIMRUN_PG_BIN=/nowhere"}, []string{"--postgres", "local"}},
		"unreachable server": {[]string{"SIMRUN_DSN=postgres://u:s3cret@127.0.0.1:1/db?connect_timeout=2"}, []string{"--postgres", "dsn"}},
		"not an address":     {[]string{"SIMRUN_DSN=s3cret://:nonsense"}, []string{"--postgres", "dsn"}},
		"no pooler":          {[]string{"SIMRUN_PGBOUNCER=/nowhere"}, []string{"--route", "pgbouncer-session"}},
		"out is a file":      {nil, []string{"--out", "/proc/version/x"}},
		"no room for it":     {[]string{"TMPDIR=/nowhere"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(binary, append([]string{"run", "steady", "--engine", "live", "--schedules", "1", "--seed", "1"}, c.args...)...)
			cmd.Dir = t.TempDir()
			cmd.Env = append(append(os.Environ(), "SIMRUN_DSN="), c.env...)
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Equal(t, exitEnvironment, cmd.ProcessState.ExitCode(), string(out))
			require.NotContains(t, string(out), "s3cret")
			require.NotContains(t, string(out), "goroutine")
		})
	}
}

// started runs simrun in a temporary directory of its own, so that whatever is left of it can be found.
func started(t *testing.T, args ...string) (*exec.Cmd, string, *bytes.Buffer) {
	t.Helper()
	dir, err := os.MkdirTemp("", "srt")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	tmp := filepath.Join(dir, "tmp")
	require.NoError(t, os.Mkdir(tmp, 0o777))
	require.NoError(t, os.Chmod(tmp, 0o777|os.ModeSticky))
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	return cmd, tmp, &out
}

// left names processes that work in a directory below tmp or were started with it, and what is left in it but caches.
func left(tmp string) (out []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		cwd, _ := os.Readlink(p + "/cwd")
		cmdline, _ := os.ReadFile(p + "/cmdline")
		if strings.HasPrefix(cwd, tmp) || strings.Contains(string(cmdline), tmp) {
			out = append(out, fmt.Sprintf("%s %s", p, strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(tmp, "simrun-*"))
	for _, d := range dirs {
		if !strings.Contains(d, "cache") {
			out = append(out, d)
		}
	}
	return out
}

func requireNothingLeft(t *testing.T, tmp, when string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(left(tmp)) == 0 }, 10*time.Second, 50*time.Millisecond, "%s: %v", when, left(tmp))
}

// A first Ctrl-C stops cleanly and still writes the report; SIGTERM does the same with its own status.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: exitInterrupted, syscall.SIGTERM: exitTerminated} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			cmd, tmp, out := started(t, "run", "steady", "--engine", "live", "--schedules", "50", "--seed", "1")
			history := filepath.Join(cmd.Dir, "simrun-out", "*", "histories", "*.1.jsonl")
			require.Eventually(t, func() bool { m, _ := filepath.Glob(history); return len(m) > 0 }, 60*time.Second, 20*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			require.Equal(t, want, cmd.ProcessState.ExitCode(), out.String())
			require.Contains(t, lastLine(out.String()), "DONE ")
			require.FileExists(t, filepath.Join(cmd.Dir, "simrun-out", "latest", "report.html"))
			r := result(t, cmd.Dir)
			require.Equal(t, want, r.ExitStatus)
			require.NotEmpty(t, r.Scenarios, "what was done so far is in it")
			requireNothingLeft(t, tmp, sig.String())
		})
	}
}

// However simrun ends, nothing of it stays: no postgres, no pgbouncer, no replica, no directory.
func TestKilled(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 10 {
		cmd, tmp, _ := started(t, "run", "pooler-session", "pause-leader-terminated", "--engine", "live", "--schedules", "9", "--seed", "1", "--workers", "1")
		after := time.Duration(r.IntN(5000)) * time.Millisecond
		time.Sleep(after)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		requireNothingLeft(t, tmp, fmt.Sprintf("kill %d, after %s", i, after))
	}
}

// As root children run as another user; as a user everything runs as that user. Both must work.
func TestAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		return // the other tests have shown it already
	}
	dir, err := os.MkdirTemp("", "srt")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(filepath.Dir(binary), 0o755))
	cmd := exec.Command(binary, "run", "steady", "--engine", "virtual", "--schedules", "1", "--seed", "1")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, lastLine(string(out)), "2 passed")
}

// A password that came in SIMRUN_DSN is in no file, and the server is left as it was found.
func TestAGivenServer(t *testing.T) {
	t.Parallel()
	dsn, password, databases := givenServer(t)
	dir := t.TempDir()
	// In the live engine: the virtual one asks for a server that needs no password.
	cmd := exec.Command(binary, "run", "steady", "--engine", "live", "--schedules", "1", "--seed", "1", "--postgres", "dsn", "--workers", "1")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SIMRUN_DSN="+dsn)
	before := databases()
	out, err := cmd.CombinedOutput()
	if err != nil { // on a busy machine a live verdict may be inconclusive; that is not what is tested here
		require.Equal(t, exitInconclusive, cmd.ProcessState.ExitCode(), string(out))
	}
	require.Equal(t, "dsn", result(t, dir).Backend)
	require.Equal(t, before, databases(), "databases and roles as they were")
	require.NotContains(t, string(out), password)
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NotContains(t, string(b), password, path)
		return err
	}))
}

// Who has set SIMRUN_DSN and not asked for that server is told that it is used; its connections are left to its other users, whatever the engine.
func TestAGivenServerKeepsItsConnections(t *testing.T) {
	t.Parallel()
	dsn, _, _ := givenServer(t)
	for _, engine := range []string{"virtual", "live"} {
		dir := t.TempDir()
		cmd := exec.Command(binary, "run", "connections-exhausted", "--engine", engine, "--schedules", "1", "--seed", "1", "--workers", "1")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SIMRUN_DSN="+dsn)
		out, err := cmd.CombinedOutput()
		require.Error(t, err, string(out))
		require.Equal(t, exitInconclusive, cmd.ProcessState.ExitCode(), string(out))
		require.Contains(t, string(out), "--postgres local starts one")
		require.Equal(t, sim.FaultCounts{Moot: 1}, result(t, dir).Scenarios[0].Faults, engine)
	}
}

// Every interleaving of the start: what was covered is counted, and a violation found on the way can be had again.
func TestExhaustive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"run", "steady", "--route", "direct", "--strategy", "exhaustive", "--seed", "1", "--workers", "1", "--confirm", "0"}
	out, errs, status := simrun(t, dir, append(args, "--schedules", "4")...)
	require.Zero(t, status, out+errs)
	e := result(t, dir).Scenarios[0]
	require.Equal(t, 4, e.Schedules)
	require.NotNil(t, e.Exploration)
	require.Positive(t, e.Exploration.Interleavings)
	require.Positive(t, e.Exploration.Equivalent)
	require.False(t, e.Exploration.Complete)
	require.Contains(t, out, e.Exploration.String())

	out, errs, status = simrun(t, dir, append(args, "--schedules", "4", "--impl", "key-mismatch", "--replicas", "2")...)
	require.Zero(t, status, out+errs)
	ce := result(t, dir).Scenarios[0].Counterexamples[0]
	require.Equal(t, "20/20", ce.Reproduced)
	out, errs, status = simrun(t, dir, "replay", filepath.Join("simrun-out", "latest", ce.File), "-n", "2")
	require.Zero(t, status, out+errs)
	require.Contains(t, out, "reproduced 2 of 2")
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Where nothing can be redrawn a line comes every ten seconds, whatever is under way, and none after the end.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		w := newWatch(&b, nil, 3)
		time.Sleep(11 * time.Second)
		w.at("steady.direct.reference", stage{Done: 1, Of: 10})
		w.at("mine.direct.reference", stage{Done: 4, Of: 10, Doing: "shrinking for one-leader"})
		time.Sleep(10 * time.Second)
		w.finished("steady.direct.reference")
		w.at("mine.direct.reference", stage{Done: 1})
		time.Sleep(10 * time.Second)
		w.leave("mine.direct.reference")
		time.Sleep(10 * time.Second)
		w.close()
		time.Sleep(time.Minute)
		require.Equal(t, `simrun: 10s, 0 of 3 done; servers are starting or ending
simrun: 20s, 0 of 3 done; mine.direct.reference: shrinking for one-leader; steady.direct.reference: 1 of 10 schedules
simrun: 30s, 1 of 3 done; mine.direct.reference: 1 schedule
simrun: 40s, 1 of 3 done; servers are starting or ending
`, b.String())
	})
}

// onTerminal runs simrun on a terminal and returns what it wrote there.
func onTerminal(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	ours := os.NewFile(uintptr(fd), "ptmx")
	defer ours.Close()
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, theirs, theirs
	cmd.Env = append(append(os.Environ(), "CI=", "NO_COLOR=", "GITHUB_ACTIONS=", "SIMRUN_DSN=", "TERM=xterm"), env...)
	require.NoError(t, cmd.Start())
	require.NoError(t, theirs.Close())
	var b bytes.Buffer
	_, _ = b.ReadFrom(ours) // ends with EIO when the last one that has the terminal open is gone
	_ = cmd.Wait()
	return b.String()
}

// A terminal gets colour and a line that is redrawn; NO_COLOR takes the first away, CI the second, a dumb one both.
func TestOnATerminal(t *testing.T) {
	t.Parallel()
	const colour, redraw = "\x1b[3", "\r\x1b[K"
	for env, want := range map[string][2]bool{"X=": {true, true}, "NO_COLOR=1": {false, true}, "CI=true": {true, false}, "TERM=dumb": {false, false}} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			out := onTerminal(t, t.TempDir(), []string{env}, "run", "steady", "--route", "direct", "--schedules", "1", "--seed", "1", "--workers", "1")
			require.Equal(t, want, [2]bool{strings.Contains(out, colour), strings.Contains(out, redraw)}, "%q", out)
			require.Contains(t, out, "DONE 1 scenarios, 1 passed")
		})
	}
}

// A run with one worker has the logs of one worker, and live confirmations those of their own; DONE comes also where no results folder can be made.
func TestLogsAndUnwritableFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine(t, dir, "")
	out, errs, status := simrun(t, dir, "run", "mine.yaml", "--schedules", "1", "--seed", "1", "--no-shrink", "--confirm", "1", "--workers", "1")
	require.Equal(t, exitViolated, status, out+errs)
	require.Contains(t, out, "1 schedule, ")
	require.NotContains(t, strings.ReplaceAll(out, "1 scenarios", ""), "1 schedules")
	logs, err := filepath.Glob(filepath.Join(dir, "simrun-out", "latest", "logs", "*"))
	require.NoError(t, err)
	for i := range logs {
		logs[i] = filepath.Base(logs[i])
	}
	require.Equal(t, []string{"live", "worker1"}, logs)

	for _, flags := range [][]string{{"--out", "/proc/version/x"}, {"--junit", "/proc/version/x"}} {
		out, errs, status = simrun(t, dir, append(flags, "run", "steady", "--seed", "1")...)
		require.Equal(t, exitEnvironment, status)
		require.Regexp(t, `\nexit 6: [^\n]*/proc/version/x[^\n]*\nDONE 0 scenarios, 0 passed, 0 failed, 0 inconclusive in \d+\.\ds\n$`, out, errs)
		if flags[0] == "--out" {
			_, _, status = simrun(t, dir, append(flags, "run", "steady", "--junit", "j.xml")...)
			require.Equal(t, exitEnvironment, status)
			b, err := os.ReadFile(filepath.Join(dir, "j.xml"))
			require.NoError(t, err)
			require.Contains(t, string(b), `errors="1"`, "a CI server that reads only this sees it too")
		}
		out, errs, status = simrun(t, dir, append(flags, "run", "steady", "--seed", "1", "--json")...)
		require.Equal(t, exitEnvironment, status)
		require.Contains(t, out, `"exit_status": 6`)
		require.Contains(t, lastLine(errs), "DONE ")
	}
}

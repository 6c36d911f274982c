package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestReaperClearsAway(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kill", "exit", "panic"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			v := startVictim(t, how)
			// Ctrl-C, a closed terminal and an operator's kill reach the group, but not the reaper.
			for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGTERM} {
				require.NoError(t, unix.Kill(v.reaper, sig))
			}
			if how == "kill" {
				require.NoError(t, v.cmd.Process.Kill())
			}
			_ = v.cmd.Wait()
			v.cleared(t)
		})
	}
}

// The reaper may still be about to say hello when nobody is left to hear it.
func TestReaperOfAnEarlyDeath(t *testing.T) {
	t.Parallel()
	for range 5 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), helperName+"=early")
		out, _ := cmd.Output() // it is killed
		dir := strings.TrimSpace(string(out))
		require.Contains(t, dir, dirPrefix)
		eventually(t, func() bool { _, err := os.Lstat(dir); return os.IsNotExist(err) }, "nothing is left")
	}
}

// When the reaper was killed too, the next run sweeps; runs that live are left alone.
func TestSweep(t *testing.T) {
	t.Parallel()
	dead, alive := startVictim(t, "kill"), startVictim(t, "kill")
	require.NoError(t, unix.Kill(dead.reaper, unix.SIGKILL))
	require.NoError(t, dead.cmd.Process.Kill())
	_ = dead.cmd.Wait()
	require.NotEmpty(t, dead.living(t), "what the death signal does not reach")
	require.DirExists(t, dead.dir)

	own := newRun(t)
	newRun(t)
	// Another simrun that starts at the same moment may be at it already; then it is gone as soon as that one has done.
	eventually(t, func() bool {
		_, err := os.Stat(dead.dir)
		return errors.Is(err, os.ErrNotExist) && len(dead.living(t)) == 0
	}, "what the dead run left is swept")
	require.DirExists(t, alive.dir)
	require.GreaterOrEqual(t, len(alive.living(t)), sleepers)
	require.DirExists(t, own.Dir())

	require.NoError(t, alive.cmd.Process.Kill())
	_ = alive.cmd.Wait()
	alive.cleared(t)
}

// A sweep touches nothing but directories of ours that look like a run's.
func TestSweepLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	mkdir := func(name string) string {
		dir := filepath.Join(parent, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		return dir
	}
	keep := []string{mkdir("other"), mkdir("simrun-cache-0"), mkdir(dirPrefix + "young" + newSuffix)}
	target := mkdir("target")
	link := filepath.Join(parent, dirPrefix+"link")
	require.NoError(t, os.Symlink(target, link))
	keep = append(keep, filepath.Join(target, "file"), link)
	if os.Geteuid() == 0 {
		foreign := mkdir(dirPrefix + "foreign")
		require.NoError(t, os.Chown(foreign, 54321, 54321))
		keep = append(keep, foreign)
	}
	gone := []string{mkdir(dirPrefix + "dead"), mkdir(dirPrefix + "old" + newSuffix)}
	hourAgo := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(gone[1], hourAgo, hourAgo))

	sweep(parent, false)
	for _, path := range keep {
		_, err := os.Lstat(path)
		require.NoError(t, err)
	}
	for _, path := range gone {
		require.NoDirExists(t, path)
	}
}

// A pid alone names no process: it may have been given to another one since.
func TestReusedPidIsSpared(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	bystander := exec.Command("sleep", "1000")
	require.NoError(t, bystander.Start())
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	now, ok := readStat(bystander.Process.Pid)
	require.True(t, ok)

	dir := filepath.Join(parent, dirPrefix+"dead")
	require.NoError(t, os.Mkdir(dir, 0o700))
	line := fmt.Sprintf("%d %d %d %q\n", now.pid, now.start-1, time.Now().UnixMilli(), "sleep")
	require.NoError(t, os.WriteFile(filepath.Join(dir, registryName), []byte(line+"7 half a li"), 0o600))
	require.Len(t, readRegistry(dir), 1)
	sweep(parent, false)
	require.NoDirExists(t, dir)
	again, ok := readStat(now.pid)
	require.True(t, ok)
	require.NotEqual(t, byte('Z'), again.state)

	// With the right start time it is the run's own, and goes.
	q := &quarry{dir: dir, started: []started{{pid: now.pid, start: now.start}}}
	require.NoError(t, q.exterminate(killWait))
	require.Error(t, bystander.Wait())
}

// Somebody who looks around in a run's directory keeps his shell.
func TestTerminalIsSpared(t *testing.T) {
	t.Parallel()
	r, err := NewRun()
	require.NoError(t, err)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer tty.Close()
	visitor := exec.Command("sleep", "1000")
	visitor.Dir, visitor.Stdin = r.Dir(), tty
	visitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	require.NoError(t, visitor.Start())
	t.Cleanup(func() { _ = visitor.Process.Kill(); _ = visitor.Wait() })

	require.NoError(t, r.Close())
	p, ok := readStat(visitor.Process.Pid)
	require.True(t, ok)
	require.NotEqual(t, byte('Z'), p.state)
}

// A process that was itself started in a run does not take what it starts for that run's.
func TestRunWithinARun(t *testing.T) {
	outer := filepath.Join(os.TempDir(), dirPrefix+"outer")
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), helperName+"=kill", markName+"="+outer)
	c.Stdin, _ = os.Open(os.DevNull)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	var dir string
	_, err = fmt.Fscan(out, &dir)
	require.NoError(t, err)
	q := &quarry{dir: outer}
	found, err := q.find()
	require.NoError(t, err)
	require.NotEmpty(t, found, "the inner process and its children are part of the outer run")
	require.NoError(t, q.exterminate(killWait))
	_ = c.Wait()
	eventually(t, func() bool { _, err := os.Lstat(dir); return os.IsNotExist(err) }, "the inner run's reaper did its work")
}

// The variable that makes a reaper removes nothing that is no run's directory.
func TestReaperRefusesOtherDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{reaperName + "=" + dir}
	require.NoError(t, cmd.Run())
	require.DirExists(t, dir)
}

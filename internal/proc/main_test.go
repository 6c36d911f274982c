package proc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// helperName turns the test binary into a process that uses a run and then dies; its value says how it dies.
const helperName = "PROC_TEST_HELPER"

func TestMain(m *testing.M) {
	if how := os.Getenv(helperName); how != "" {
		helper(how)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// scripts are children of all kinds of stubbornness.
var scripts = []string{
	"sleep 1000",
	"trap '' TERM INT HUP; sleep 1000 & sleep 1000 & wait",
	"setsid sleep 1000 & exec sleep 1000",               // out of the process group
	"setsid env -i sleep 1000 & exec sleep 1000",        // and without our mark
	"(setsid sh -c 'sleep 1000 & wait' &) ; sleep 1000", // and adopted by init
}

// sleepers is how many processes the scripts come to at least; some shells stay to wait where others do not.
const sleepers = 9

// helper starts a run with the scripts in it, prints its directory and the reaper's pid, and dies when its input says so.
func helper(how string) {
	r, err := NewRun()
	if how == "early" && err == nil {
		fmt.Println(r.Dir())
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err == nil {
		for _, script := range scripts {
			if err == nil {
				_, err = r.Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Unprivileged: true})
			}
		}
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	<-r.armed
	fmt.Println(r.Dir(), r.reaper.Process.Pid)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	switch how {
	case "exit":
		os.Exit(0)
	case "panic":
		panic("as the test wants it")
	}
	time.Sleep(time.Hour)
}

// A victim is a running helper.
type victim struct {
	cmd    *exec.Cmd
	dir    string
	reaper int
	quarry *quarry
}

func startVictim(t *testing.T, how string) *victim {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperName+"="+how)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, startCommand(cmd))
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); stdin.Close() })

	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	v := &victim{cmd: cmd}
	_, err = fmt.Sscan(strings.TrimSpace(line), &v.dir, &v.reaper)
	require.NoError(t, err, line)
	v.quarry = &quarry{dir: v.dir, started: readRegistry(v.dir)}
	require.Len(t, v.quarry.started, len(scripts))
	eventually(t, func() bool { return len(v.living(t)) >= sleepers }, "its children are there")
	if how != "kill" {
		_, err = stdin.Write([]byte("\n"))
		require.NoError(t, err)
	}
	return v
}

func (v *victim) living(t *testing.T) []identity {
	t.Helper()
	found, err := v.quarry.find()
	require.NoError(t, err)
	return found
}

// cleared waits until nothing of the helper's run is left.
func (v *victim) cleared(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		_, err := os.Lstat(v.dir)
		return os.IsNotExist(err) && len(v.living(t)) == 0
	}, "nothing is left")
}

// eventually allows for a machine that is busy with other things; on an idle one all of this takes milliseconds.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, 5*time.Millisecond, what)
}

func newRun(t *testing.T) *Run {
	t.Helper()
	r, err := NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func start(t *testing.T, r *Run, script string) *Child {
	t.Helper()
	c, err := r.Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}})
	require.NoError(t, err)
	return c
}

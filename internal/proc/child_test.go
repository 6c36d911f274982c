package proc

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestChildEndsByItself(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	c := start(t, r, "exit 3")
	<-c.Done()
	var exit *exec.ExitError
	require.ErrorAs(t, c.Err(), &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.ErrorIs(t, c.Signal(unix.SIGTERM), os.ErrProcessDone)
	require.ErrorIs(t, c.SignalGroup(unix.SIGTERM), os.ErrProcessDone)
	require.NoError(t, c.Kill(), "it is gone, which is what Kill is for")
	_, err := c.State()
	require.ErrorIs(t, err, os.ErrProcessDone)
	require.Empty(t, r.list())
}

func TestChildInputAndOutput(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	pr, pw, err := os.Pipe()
	require.NoError(t, err)
	defer pr.Close()
	var out, errOut bytes.Buffer
	c, err := r.Start(Spec{
		Name: "shell", Path: "sh", Args: []string{"-c", `read line; echo "got $line"; echo "$WORD $SIMRUN_RUN_DIR"; pwd; echo oops >&2; echo extra >&3`},
		Env: []string{"WORD=word"}, StdinPipe: true, Stdout: &out, Stderr: &errOut, ExtraFiles: []*os.File{pw},
	})
	require.NoError(t, err)
	require.NoError(t, pw.Close())
	require.NoError(t, c.Err(), "not ended yet")
	_, err = io.WriteString(c.Stdin(), "hello\n")
	require.NoError(t, err)
	extra, err := io.ReadAll(pr)
	require.NoError(t, err)
	<-c.Done()
	require.NoError(t, c.Err())
	require.Equal(t, "got hello\nword "+r.Dir()+"\n"+r.Dir()+"\n", out.String())
	require.Equal(t, "oops\n", errOut.String())
	require.Equal(t, "extra\n", string(extra))
}

func TestChildIsStoppedAndContinued(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	c := start(t, r, "while :; do sleep 1000; done")
	state := func(want string) {
		eventually(t, func() bool { s, err := c.State(); return err == nil && s == want }, want)
	}
	state("S")
	require.NoError(t, c.Signal(unix.SIGSTOP))
	state("T")
	require.NoError(t, c.Signal(unix.SIGCONT))
	state("S")
	require.NoError(t, c.Signal(unix.SIGSTOP))
	state("T")
	require.NoError(t, c.Kill(), "a stopped one too")
}

// What a child leaves in its process group goes with it, whether it was killed or ended.
func TestGroupEndsWithChild(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	for _, last := range []string{"exit 0", "kill -9 $$", "exec sleep 1000"} {
		pr, pw, err := os.Pipe()
		require.NoError(t, err)
		c, err := r.Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", "sleep 1000 & echo $!; " + last}, Stdout: pw})
		require.NoError(t, err)
		require.NoError(t, pw.Close())
		b := make([]byte, 32)
		n, err := pr.Read(b)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
		require.NoError(t, err)
		if last == "exec sleep 1000" {
			require.NoError(t, c.Kill())
		}
		<-c.Done()
		eventually(t, func() bool { p, ok := readStat(pid); return !ok || p.state == 'Z' }, last)
		require.NoError(t, pr.Close())
	}
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	var sentence *Error
	_, err := r.Start(Spec{Name: "the thing", Path: "/nonexistent/thing"})
	require.ErrorAs(t, err, &sentence)
	require.Contains(t, sentence.Problem, "there is no program /nonexistent/thing")
	_, err = r.Start(Spec{Name: "the thing", Path: "simrun-no-such-program"})
	require.ErrorAs(t, err, &sentence)
	require.ErrorIs(t, err, exec.ErrNotFound)

	// A program in a place that only we may enter.
	dir := t.TempDir()
	path := dir + "/program"
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600))
	_, err = r.Start(Spec{Name: "the thing", Path: path, Unprivileged: true})
	require.ErrorAs(t, err, &sentence)
	require.Contains(t, sentence.Problem, "may not run "+path)
	require.Empty(t, r.list())
}

// Go ends threads as it likes, and the death signal comes with the end of the thread that started a child.
func TestChildrenOutliveThreads(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	var children []*Child
	for range 5 {
		made := make(chan *Child)
		asUser(os.Geteuid(), os.Getegid(), func() { // its thread ends with it
			go func() {
				c, err := r.Start(Spec{Name: "sleep", Path: "sleep", Args: []string{"1000"}})
				if err != nil {
					close(made)
					return
				}
				made <- c
			}()
			children = append(children, <-made)
		})
	}
	// Something that takes a while and makes threads come and go.
	for range 50 {
		asUser(os.Geteuid(), os.Getegid(), func() {})
	}
	for _, c := range children {
		require.NotNil(t, c)
		state, err := c.State()
		require.NoError(t, err)
		require.NotEqual(t, "Z", state)
	}
}

func TestDeathSignal(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	c, err := r.Start(Spec{Name: "sleep", Path: "sleep", Args: []string{"1000"}, DeathSignal: syscall.SIGTERM})
	require.NoError(t, err)
	require.Equal(t, syscall.SIGTERM, c.cmd.SysProcAttr.Pdeathsig)
	d, err := r.Start(Spec{Name: "sleep", Path: "sleep", Args: []string{"1000"}})
	require.NoError(t, err)
	require.Equal(t, syscall.SIGKILL, d.cmd.SysProcAttr.Pdeathsig)
}

package proc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Spec says what to start. A child leads a process group of its own and dies with us.
type Spec struct {
	Name string // for error messages
	Path string // the program; looked up in PATH when it holds no slash
	Args []string
	Env  []string // as in [exec.Cmd]: nil is our own environment. The run's mark is added.
	Dir  string   // working directory; "" is the run's directory

	Stdin          io.Reader
	StdinPipe      bool // Child.Stdin is a pipe to the child
	Stdout, Stderr io.Writer
	ExtraFiles     []*os.File // descriptors 3, 4, ...

	Unprivileged bool           // run as the user of [Unprivileged] when we are root
	DeathSignal  syscall.Signal // sent to the child when we die; 0 is SIGKILL
}

// A Child is a process that was started. When it ends, by itself or not, what is left of its process group is killed.
type Child struct {
	name  string
	run   *Run
	cmd   *exec.Cmd
	start uint64
	stdin io.WriteCloser
	done  chan struct{}
	err   error // set before done is closed

	mu     sync.Mutex
	reaped bool // the kernel may have given the pid to another process
}

// Start starts a child. It returns once the program has been loaded.
func (r *Run) Start(spec Spec) (*Child, error) {
	r.gate.RLock()
	defer r.gate.RUnlock()
	if r.closed {
		return nil, fmt.Errorf("start %s: the run is closed", spec.Name)
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Dir = spec.Dir
	if cmd.Dir == "" {
		cmd.Dir = r.dir
	}
	cmd.Env = spec.Env
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(append([]string(nil), cmd.Env...), markName+"="+r.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = spec.Stdin, spec.Stdout, spec.Stderr, spec.ExtraFiles
	// A descendant outside the process group may keep the output open; the child is over all the same.
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: spec.DeathSignal}
	if spec.DeathSignal == 0 {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if spec.Unprivileged {
		cmd.SysProcAttr.Credential = credential()
		if a := unprivileged(); a != nil { // our own home would only get it errors
			cmd.Env = append(cmd.Env, "HOME="+a.home, "USER="+a.name, "LOGNAME="+a.name)
		}
	}
	c := &Child{name: spec.Name, run: r, cmd: cmd, done: make(chan struct{})}
	if spec.StdinPipe {
		w, err := cmd.StdinPipe()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", spec.Name, err)
		}
		c.stdin = w
	}
	begin := time.Now()
	if err := startCommand(cmd); err != nil {
		return nil, startError(spec, err)
	}
	// Nobody but wait reaps the child, so that the pid is still its own here, even if it has ended already.
	p, _ := readStat(cmd.Process.Pid)
	c.start = p.start
	exe := cmd.Path
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	regErr := r.reg.add(started{cmd.Process.Pid, p.start, begin, filepath.Base(exe)})

	r.mu.Lock()
	r.children[c] = struct{}{}
	r.mu.Unlock()
	go c.wait()
	if regErr != nil {
		return nil, errors.Join(tempError(r.dir, regErr), c.Kill())
	}
	return c, nil
}

func startError(spec Spec, err error) error {
	name, _, _, _ := Unprivileged()
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return &Error{fmt.Sprintf("cannot start %s: %s is no program: the first line of a script must name its interpreter (#!/bin/sh)", spec.Name, spec.Path), err}
	case errors.Is(err, fs.ErrNotExist) && exists(spec.Path):
		return &Error{fmt.Sprintf("cannot start %s: the interpreter that %s needs is not there", spec.Name, spec.Path), err}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &Error{fmt.Sprintf("cannot start %s: there is no program %s", spec.Name, spec.Path), err}
	case errors.Is(err, fs.ErrPermission) && spec.Unprivileged:
		return &Error{fmt.Sprintf("cannot start %s: the user %s may not run %s", spec.Name, name, spec.Path), err}
	case errors.Is(err, fs.ErrPermission):
		return &Error{fmt.Sprintf("cannot start %s: %s may not be run", spec.Name, spec.Path), err}
	}
	return fmt.Errorf("start %s: %w", spec.Name, err)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return filepath.IsAbs(path) && err == nil
}

// wait ends the child's process group with the child, and then the child's record in the kernel.
func (c *Child) wait() {
	pid := c.cmd.Process.Pid
	for {
		// WNOWAIT leaves the zombie, and with it the pid, which is the group's number as well: the kill below cannot
		// hit a stranger.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	c.mu.Lock()
	c.reaped = true
	c.mu.Unlock()
	c.err = c.cmd.Wait()
	if errors.Is(c.err, exec.ErrWaitDelay) {
		c.err = nil
	}
	c.run.mu.Lock()
	delete(c.run.children, c)
	c.run.mu.Unlock()
	close(c.done)
}

// Pid is the child's process id, which is its process group's as well.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Stdin is the pipe to the child's standard input, nil without Spec.StdinPipe.
func (c *Child) Stdin() io.WriteCloser { return c.stdin }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err is how the child ended, in the manner of [exec.Cmd.Wait]; nil before Done.
func (c *Child) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Signal sends a signal to the child alone. It returns [os.ErrProcessDone] when the child has ended.
func (c *Child) Signal(sig syscall.Signal) error { return c.signal(c.Pid(), sig) }

// SignalGroup sends a signal to the child's process group.
func (c *Child) SignalGroup(sig syscall.Signal) error { return c.signal(-c.Pid(), sig) }

func (c *Child) signal(to int, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return os.ErrProcessDone
	}
	if err := unix.Kill(to, sig); err != nil {
		return fmt.Errorf("send %s to %s: %w", unix.SignalName(sig), c.name, err)
	}
	return nil
}

// Kill kills the child and its process group (SIGKILL) and waits until it has ended. It is no error if it had ended
// before.
func (c *Child) Kill() error {
	if err := c.SignalGroup(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.NewTimer(killWait)
	defer t.Stop()
	select {
	case <-c.done:
		return nil
	case <-t.C:
		return fmt.Errorf("%s (pid %d) is still there %s after it was killed", c.name, c.Pid(), killWait)
	}
}

// State is the child's state as one letter of proc(5): R running, S sleeping, T stopped, Z ended and so on.
func (c *Child) State() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := readStat(c.Pid())
	if c.reaped || !ok || p.start != c.start {
		return "", os.ErrProcessDone
	}
	return string(p.state), nil
}

// startCommand starts a command on the one thread that starts all of them: the parent death signal is sent when the
// thread that started a child ends, not when the process does, and Go ends threads as it likes.
func startCommand(cmd *exec.Cmd) error {
	starter.Do(func() {
		go func() {
			runtime.LockOSThread()
			for s := range starts {
				s.err <- s.cmd.Start()
			}
		}()
	})
	s := startRequest{cmd, make(chan error, 1)}
	starts <- s
	return <-s.err
}

type startRequest struct {
	cmd *exec.Cmd
	err chan error
}

var (
	starter sync.Once
	starts  = make(chan startRequest)
)

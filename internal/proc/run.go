package proc

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dirPrefix = "simrun-run-"
	newSuffix = ".new" // a run's directory until it is locked
	// markName is the variable that marks every process of a run, and all that inherit its environment.
	markName = "SIMRUN_RUN_DIR"
	// registryName is the file in a run's directory that lists what was started; see registry.go.
	registryName = ".started"
	// killWait bounds the wait for killed processes to go. SIGKILL takes milliseconds, unless a disk hangs.
	killWait = 5 * time.Second
)

// A Run is a private directory and the processes started through it. Its methods may be called from any goroutine.
type Run struct {
	dir    string
	parent string
	lock   *os.File // the directory itself, locked while the run lives
	reg    *registry
	reaper *exec.Cmd
	alive  *os.File // the reaper waits for the end of this pipe
	// armed is closed when no signal but SIGKILL ends the reaper any more. Nobody waits for it: until then only a signal
	// sent to that very process could end it.
	armed chan struct{}

	gate   sync.RWMutex // read: a child is being started; write: closed is being set
	closed bool

	closing  sync.Once
	closeErr error

	mu       sync.Mutex
	children map[*Child]struct{}
}

// runs keeps every open run reachable: a garbage collected one would close its pipe, and so kill its processes.
var runs sync.Map

// NewRun sweeps what dead runs left behind, then creates a directory in the directory for temporary files ($TMPDIR, or
// /tmp) and starts the reaper. An error is an [*Error] with a sentence for people.
func NewRun() (*Run, error) {
	parent, err := tempDir()
	if err != nil {
		return nil, err
	}
	if err := checkReachable(parent); err != nil {
		return nil, err
	}
	sweep(parent, false)

	r := &Run{
		parent:   parent,
		dir:      filepath.Join(parent, fmt.Sprintf("%s%d-%s", dirPrefix, os.Getpid(), strings.ToLower(rand.Text()[:8]))),
		children: map[*Child]struct{}{},
	}
	// The reaper comes first: from here on there is no instant at which our death leaves something behind.
	if err := r.startReaper(); err != nil {
		return nil, &Error{"simrun cannot start its own helper process", err}
	}
	runs.Store(r, nil)
	if err := r.makeDir(); err != nil {
		_ = r.Close() // what could not be made cannot always be removed; one sentence is enough
		return nil, err
	}
	return r, nil
}

// tempDir is the directory for temporary files as the kernel names it: /proc shows working directories without links.
func tempDir() (string, error) {
	dir, err := filepath.Abs(os.TempDir())
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", tempError(os.TempDir(), err)
	}
	return dir, nil
}

// makeDir creates the directory under another name, locks it and only then gives it the name a sweep looks for.
func (r *Run) makeDir() error {
	temp := r.dir + newSuffix
	fail := func(err error) error { return tempError(r.parent, err) }
	// Children of ours that run as somebody else pass through it, but may not list it.
	perm := os.FileMode(0o700)
	if _, _, _, ok := Unprivileged(); ok {
		perm = 0o711
	}
	if err := os.Mkdir(temp, perm); err != nil {
		return fail(err)
	}
	if err := os.Chmod(temp, perm); err != nil { // whatever the umask says
		return fail(err)
	}
	f, err := os.Open(temp)
	if err != nil {
		return fail(err)
	}
	r.lock = f
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fail(fmt.Errorf("lock %s: %w", temp, err))
	}
	if r.reg, err = createRegistry(filepath.Join(temp, registryName)); err != nil {
		return fail(err)
	}
	if err := os.Rename(temp, r.dir); err != nil {
		return fail(err)
	}
	return nil
}

// Dir is the run's directory. The unprivileged user may pass through it, and write only below what Mkdir made.
func (r *Run) Dir() string { return r.dir }

// Mkdir creates a directory of mode 0700 in the run's directory and gives it to the user whom unprivileged children run
// as. It is an error if the name is taken.
func (r *Run) Mkdir(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("make directory %q: it is not below the run's directory", name)
	}
	dir := filepath.Join(r.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", tempError(r.dir, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", tempError(r.dir, err)
	}
	return dir, give(dir)
}

// give makes a file belong to the user whom unprivileged children run as.
func give(path string) error {
	name, uid, gid, ok := Unprivileged()
	if !ok {
		return nil
	}
	if err := os.Lchown(path, uid, gid); err != nil {
		return &Error{fmt.Sprintf("simrun runs as root and may not hand its files to the user %s, as whom it starts Postgres: start simrun as an ordinary user", name), err}
	}
	return nil
}

// WriteFile writes a file of mode 0600 that belongs to the user whom unprivileged children run as. It replaces a file
// of that name in one step, so a reader sees the old one or the new one.
func (r *Run) WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600 from the start
	if err != nil {
		return tempError(r.dir, err)
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return tempError(r.dir, err)
	}
	if err := give(f.Name()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return tempError(r.dir, err)
	}
	return nil
}

// KillWithin kills every process of the run that works in dir, and waits until they are gone. It is for what a child
// leaves behind when it is killed itself, such as the backends of a postmaster.
func (r *Run) KillWithin(dir string) error {
	q := r.quarry()
	q.within = dir
	return q.exterminate(killWait)
}

func (r *Run) quarry() *quarry {
	q := &quarry{dir: r.dir}
	if r.reg != nil {
		q.started = r.reg.list()
	}
	return q
}

// Close kills all processes of the run, removes its directory and ends the reaper. Further calls return what the first
// one did.
func (r *Run) Close() error {
	r.closing.Do(func() {
		if err := r.close(); err != nil {
			r.closeErr = fmt.Errorf("close run %s: %w", r.dir, err)
		}
		runs.Delete(r)
	})
	return r.closeErr
}

func (r *Run) close() error {
	r.gate.Lock()
	r.closed = true
	r.gate.Unlock()

	var errs []error
	for _, c := range r.list() {
		errs = append(errs, c.Kill())
	}
	q := r.quarry()
	errs = append(errs, q.exterminate(killWait), q.remove())
	if r.reg != nil {
		errs = append(errs, r.reg.close())
	}
	if r.lock != nil {
		errs = append(errs, r.lock.Close())
	}
	if errors.Join(errs...) != nil {
		// Let the reaper try what we could not do.
		return errors.Join(append(errs, r.alive.Close())...)
	}
	return r.dismiss()
}

func (r *Run) list() []*Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.children))
}

// An Error is a reason outside our power why a run or a child cannot start. Problem is a sentence for people.
type Error struct {
	Problem string
	Err     error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Problem + ": " + e.Err.Error()
	}
	return e.Problem
}

func (e *Error) Unwrap() error { return e.Err }

// tempError says what can be done about an error while writing below the directory for temporary files.
func tempError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &Error{fmt.Sprintf("there is no room left in %s: free some, or set TMPDIR to a directory with room", dir), err}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &Error{fmt.Sprintf("simrun may not write in %s: set TMPDIR to a directory it may write in", dir), err}
	case errors.Is(err, fs.ErrNotExist):
		return &Error{fmt.Sprintf("there is no directory %s: create it, or set TMPDIR to one that exists", dir), err}
	}
	return fmt.Errorf("write in %s: %w", dir, err)
}

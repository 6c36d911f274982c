package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A quarry is the run that is to be cleared away.
type quarry struct {
	dir     string
	started []started
	within  string // only processes that work in this directory; "" is all
}

type identity struct {
	pid   int
	start uint64
}

// find lists the living processes of the run.
func (q *quarry) find() ([]identity, error) {
	all, err := processes()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	self := os.Getpid()
	ours := map[int]bool{}
	programs := map[string]bool{}
	for _, s := range q.started {
		programs[s.exe] = true
		if p, ok := all[s.pid]; ok && p.start == s.start {
			ours[s.pid] = true
		}
	}
	traces := q.readTraces(all)
	for pid, t := range traces {
		if t.run == q.dir || t.inside && (programs[t.program] || !all[pid].terminal) {
			ours[pid] = true
		}
	}
	// We may ourselves carry the mark of a run that started us. What we started is not that run's.
	delete(ours, self)
	for pid := range all {
		for p, n := all[pid], 0; n < len(all) && p.pid > 1 && p.pid != self; p, n = all[p.ppid], n+1 {
			if ours[p.pid] {
				ours[pid] = true
				break
			}
		}
	}
	var found []identity
	for pid := range ours {
		// A run within this one dies with it, and its reaper must live to see that.
		if traces[pid].reaper || q.within != "" && !below(traces[pid].cwd, q.within) {
			continue
		}
		found = append(found, identity{pid, all[pid].start})
	}
	return found, nil
}

// A trace is what connects a process with a run besides its descent.
type trace struct {
	marks
	inside  bool   // it works in the run's directory
	program string // set when it does
}

// readTraces looks at every process that runs as ourselves or as the unprivileged user.
func (q *quarry) readTraces(all map[int]process) map[int]trace {
	got := map[int]trace{}
	read := func(uid int) {
		for pid, p := range all {
			if p.uid != uid {
				continue
			}
			m, ok := readMarks(pid)
			if !ok {
				continue
			}
			t := trace{marks: m, inside: below(m.cwd, q.dir)}
			if t.inside {
				t.program = program(pid)
			}
			got[pid] = t
		}
	}
	read(os.Geteuid())
	if _, uid, gid, ok := Unprivileged(); ok {
		asUser(uid, gid, func() { read(uid) })
	}
	return got
}

// exterminate kills the run's processes and waits until none is left.
func (q *quarry) exterminate(patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		found, err := q.freeze()
		if err != nil || len(found) == 0 {
			return err
		}
		for _, p := range found {
			signalExactly(p, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of %s are still there %s after they were killed", len(found), q.dir, patience)
		}
	}
}

// freeze stops the run's processes, and looks again until there is no new one: a process that forks while it is being
// killed could otherwise leave a child behind that nothing connects to the run.
func (q *quarry) freeze() ([]identity, error) {
	seen := map[identity]bool{}
	for {
		found, err := q.find()
		if err != nil {
			return nil, err
		}
		fresh := false
		for _, p := range found {
			if !seen[p] {
				seen[p], fresh = true, true
				signalExactly(p, unix.SIGSTOP)
			}
		}
		if !fresh {
			return found, nil
		}
	}
}

// signalExactly sends a signal to the process and never to another that was given its pid meanwhile.
func signalExactly(p identity, sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return // gone
	}
	if now, ok := readStat(p.pid); !ok || now.start != p.start {
		if err == nil {
			unix.Close(fd)
		}
		return
	}
	if err != nil {
		_ = unix.Kill(p.pid, sig) // a kernel without pidfds
		return
	}
	defer unix.Close(fd)
	_ = unix.PidfdSendSignal(fd, sig, nil, 0)
}

// remove removes the run's directory, and the System V shared memory that its processes left. The processes must be gone.
func (q *quarry) remove() error {
	q.removeShared()
	var err error
	for range 20 {
		// A reaper and a sweep may be at it at the same time, so that a directory fills and empties under us.
		if err = errors.Join(os.RemoveAll(q.dir), os.RemoveAll(q.dir+newSuffix)); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// removeShared removes shared memory segments whose creator is gone: a Postgres that is killed leaves one behind, and
// the kernel has room for a few thousand only.
func (q *quarry) removeShared() {
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return // a kernel without System V shared memory
	}
	created := map[int]time.Time{}
	for _, s := range q.started {
		created[s.pid] = s.at
	}
	for _, line := range strings.Split(string(b), "\n") {
		var key, id, size, cpid, lpid, attached, uid, gid, cuid, cgid, atime, dtime, ctime int64
		var perms string
		n, _ := fmt.Sscan(line, &key, &id, &perms, &size, &cpid, &lpid, &attached, &uid, &gid, &cuid, &cgid, &atime, &dtime, &ctime)
		at, ours := created[int(cpid)]
		// The creator's pid alone could be a reused one; the time of creation tells.
		if n == 14 && ours && attached == 0 && ctime >= at.Unix()-1 {
			_, _ = unix.SysvShmCtl(int(id), unix.IPC_RMID, nil)
		}
	}
}

// A Leftover is the directory of a run that died and whose reaper was killed as well.
type Leftover struct {
	Dir   string
	Bytes int64
	Err   error // why it could not be removed
}

// Sweep clears away the dead runs in the directory for temporary files, as the start of every run does, and says what they were. With dry it
// only says so.
func Sweep(dry bool) (found []Leftover, err error) {
	parent, err := tempDir()
	if err != nil {
		return nil, err
	}
	for _, dir := range sweep(parent, true) {
		l := Leftover{Dir: dir, Bytes: size(dir)}
		if !dry {
			_, l.Err = sweepOne(dir, false)
		}
		found = append(found, l)
	}
	return found, nil
}

// sweep clears away the runs in parent that are dead, and names them; with dry it only names them. It touches only directories of our own user
// that nobody has locked. What cannot be cleared away today is left for the next sweep; a new run is not kept from starting.
func sweep(parent string, dry bool) (found []string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, dir := range dirs {
		if dead, _ := sweepOne(dir, dry); dead {
			found = append(found, dir)
		}
	}
	return found
}

func sweepOne(dir string, dry bool) (dead bool, err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return false, nil
	}
	name, isNew := strings.CutSuffix(dir, newSuffix)
	if isNew && time.Since(time.Unix(st.Mtim.Unix())) < time.Minute {
		return false, nil // its run may be about to lock it
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, nil // its run lives
	}
	if dry {
		return true, nil
	}
	q := &quarry{dir: name, started: readRegistry(dir)}
	if err := q.exterminate(killWait); err != nil {
		return true, err
	}
	return true, q.remove()
}

// size is how many bytes the files below a directory hold, as far as they can be seen.
func size(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be seen is not counted
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

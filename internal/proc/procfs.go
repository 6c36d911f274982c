package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process as /proc shows it.
type process struct {
	pid, ppid int
	state     byte
	start     uint64
	uid       int
	terminal  bool // it has a controlling terminal
}

// kthreadd is the parent of all kernel threads.
const kthreadd = 2

// readStat reads /proc/PID/stat. ok is false when there is no such process.
func readStat(pid int) (p process, ok bool) {
	b, uid, err := readProc(pid, "stat", 4<<10)
	if err != nil {
		return p, false
	}
	// The second field is the program's name in parentheses and may hold anything, parentheses and spaces included.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return p, false
	}
	f := strings.Fields(string(b[i+1:])) // f[0] is field 3 of proc(5)
	if len(f) < 20 {
		return p, false
	}
	p.pid, p.state, p.uid, p.terminal = pid, f[0][0], uid, f[4] != "0"
	p.ppid, _ = strconv.Atoi(f[1])
	p.start, err = strconv.ParseUint(f[19], 10, 64)
	return p, err == nil
}

// readProc reads up to limit bytes of a file of a process, and tells whose it is. A scan of all processes does it
// hundreds of times, so it makes no more system calls than needed.
func readProc(pid int, name string, limit int) (b []byte, uid int, err error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/%s", pid, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0, err
	}
	b = make([]byte, 0, 4<<10)
	for len(b) < limit {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return b, int(st.Uid), nil
}

// processes lists all that live. Kernel threads are left out, and zombies, which wait for their parents only.
func processes() (all map[int]process, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all = map[int]process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == kthreadd {
			continue
		}
		p, ok := readStat(pid)
		if !ok || p.ppid == kthreadd || p.state == 'Z' || p.state == 'X' {
			continue
		}
		all[pid] = p
	}
	return all, nil
}

// marks are the traces of a run that a process carries. The kernel shows them only to the process's own user, and to
// root where root may trace others (not so in a container).
type marks struct {
	run    string // value of the mark in its environment
	reaper bool   // it is a reaper
	cwd    string
}

func readMarks(pid int) (m marks, ok bool) {
	var err error
	if m.cwd, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil {
		return m, false
	}
	env, _, _ := readProc(pid, "environ", 1<<20)
	for _, v := range bytes.Split(env, []byte{0}) {
		if s, ok := bytes.CutPrefix(v, []byte(markName+"=")); ok {
			m.run = string(s)
		}
		m.reaper = m.reaper || bytes.HasPrefix(v, []byte(reaperName+"="))
	}
	return m, true
}

// program is the base name of what a process runs.
func program(pid int) string {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
}

// below reports whether path is dir or in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

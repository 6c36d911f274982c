package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A process as /proc shows it.
type process struct {
	pid, ppid int
	state     byte
	start     uint64
	uid       int
	terminal  bool // it has a controlling terminal
}

// readStat reads /proc/PID/stat. ok is false when there is no such process.
func readStat(pid int) (p process, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
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
	p.pid, p.state = pid, f[0][0]
	p.ppid, _ = strconv.Atoi(f[1])
	p.terminal = f[4] != "0"
	p.start, err = strconv.ParseUint(f[19], 10, 64)
	return p, err == nil
}

// processes lists all that live; zombies wait for their parents only and are left out.
func processes() (all map[int]process, err error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all = map[int]process{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		p, ok := readStat(pid)
		if !ok || p.state == 'Z' || p.state == 'X' {
			continue
		}
		info, err := os.Stat(filepath.Join("/proc", d.Name()))
		if err != nil {
			continue
		}
		p.uid = int(info.Sys().(*syscall.Stat_t).Uid)
		all[pid] = p
	}
	return all, nil
}

// marks are the traces of a run that a process carries. The kernel shows them only to the process's own user, and to
// root where root may trace others (not so in a container).
type marks struct {
	run  string // value of the mark in its environment
	cwd  string
	exe  string // base name of its program
	seen bool   // false: the kernel did not show them
}

func readMarks(pid int) (m marks) {
	base := fmt.Sprintf("/proc/%d/", pid)
	cwd, err := os.Readlink(base + "cwd")
	if err != nil {
		return m
	}
	m.cwd, m.seen = cwd, true
	exe, _ := os.Readlink(base + "exe")
	m.exe = filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
	env, _ := os.ReadFile(base + "environ")
	for _, v := range bytes.Split(env, []byte{0}) {
		if s, ok := strings.CutPrefix(string(v), markName+"="); ok {
			m.run = s
		}
	}
	return m
}

// below reports whether path is dir or in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

type account struct {
	name     string
	home     string
	uid, gid int
	groups   []uint32
}

var unprivileged = sync.OnceValue(func() *account {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 != nil || err2 != nil || uid == 0 {
			continue
		}
		a := &account{name: name, home: u.HomeDir, uid: uid, gid: gid}
		ids, _ := u.GroupIds() // without them the user may just do less
		for _, id := range ids {
			if n, err := strconv.ParseUint(id, 10, 32); err == nil {
				a.groups = append(a.groups, uint32(n))
			}
		}
		return a
	}
	return nil
})

// Unprivileged is whom children with [Spec.Unprivileged] run as when we are root: the user postgres, or else nobody. When
// we are not root, or there is no such user, ok is false and children run as ourselves.
func Unprivileged() (name string, uid, gid int, ok bool) {
	if a := unprivileged(); a != nil {
		return a.name, a.uid, a.gid, true
	}
	name = strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name, os.Geteuid(), os.Getegid(), false
}

// credential is what children with Spec.Unprivileged are started with; nil when it is our own.
func credential() *syscall.Credential {
	a := unprivileged()
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: a.groups}
}

// checkReachable says in a sentence when the unprivileged user cannot get to dir.
func checkReachable(dir string) error {
	a := unprivileged()
	if a == nil {
		return nil
	}
	var err error
	// The kernel decides, not a reading of mode bits: there are ACLs and mounts as well.
	asUser(a.uid, a.gid, func() { _, err = os.Stat(dir + "/.") })
	if err != nil {
		return &Error{fmt.Sprintf("the user %s, as whom simrun runs Postgres when it is started by root, cannot reach %s: set TMPDIR to a directory that everybody may enter, such as /tmp", a.name, dir), err}
	}
	return nil
}

// asUser runs f with the file system rights of another user. They belong to a thread, so f must not start goroutines
// that rely on them.
func asUser(uid, gid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread ends with the goroutine, and the changed rights with it.
		runtime.LockOSThread()
		_ = unix.Setfsgid(gid)
		_ = unix.Setfsuid(uid)
		f()
	}()
	<-done
}

// Executable finds the program that a child with [Spec.Unprivileged] would run in dir: name is looked up in PATH, or relative to dir when
// it holds a slash, with the rights of the child's user, who must be able to enter dir as well. The error is an [*Error]; it is
// [fs.ErrNotExist] when there is no such program, and [fs.ErrPermission] when there is one that may not be run.
func Executable(name, dir string) (string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", &Error{fmt.Sprintf("there is no folder %s to start programs in", dir), fs.ErrNotExist}
	}
	path, err := lookPath(name, dir)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return "", &Error{fmt.Sprintf("there is no program %s%s", name, where(name, dir)), fs.ErrNotExist}
	}
	a := unprivileged()
	if err == nil && a == nil {
		return path, nil
	}
	if err != nil {
		return "", &Error{fmt.Sprintf("%s is no program that may be run: make it executable (chmod +x)", name), fs.ErrPermission}
	}
	const wayOut = "give that user the rights, or start simrun as an ordinary user"
	var theirs string
	var entering error
	asUser(a.uid, a.gid, func() {
		if _, entering = os.Stat(dir + "/."); entering == nil {
			theirs, err = lookPath(name, dir)
		}
	})
	switch {
	case entering != nil:
		return "", &Error{fmt.Sprintf("the user %s, as whom simrun runs programs when it is started by root, cannot enter %s: %s", a.name, dir, wayOut), fs.ErrPermission}
	case err != nil:
		return "", &Error{fmt.Sprintf("the user %s, as whom simrun runs programs when it is started by root, may not run %s: %s", a.name, path, wayOut), fs.ErrPermission}
	}
	return theirs, nil
}

// lookPath is [exec.LookPath] with another idea of what a relative name is relative to.
func lookPath(name, dir string) (string, error) {
	if strings.ContainsRune(name, '/') {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}
	path, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return filepath.Abs(path)
	}
	return "", err
}

func where(name, dir string) string {
	switch {
	case filepath.IsAbs(name):
		return ""
	case strings.ContainsRune(name, '/'):
		return " in " + dir
	}
	return " in PATH; for one in the current folder write ./" + name
}

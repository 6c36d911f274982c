package proc

import (
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

type account struct {
	name     string
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
		a := &account{name: name, uid: uid, gid: gid}
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

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMkdir(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	dir, err := r.Mkdir("data")
	require.NoError(t, err)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	_, uid, gid, _ := Unprivileged()
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.EqualValues(t, uid, info.Sys().(*syscall.Stat_t).Uid)
	require.EqualValues(t, gid, info.Sys().(*syscall.Stat_t).Gid)

	_, err = r.Mkdir("data")
	require.ErrorIs(t, err, os.ErrExist)
	_, err = r.Mkdir("../elsewhere")
	require.Error(t, err)
}

func TestWriteFile(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	dir, err := r.Mkdir("conf")
	require.NoError(t, err)
	path := filepath.Join(dir, "secret")
	for _, text := range []string{"one", "two"} {
		require.NoError(t, r.WriteFile(path, []byte(text)))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(b))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	_, uid, _, _ := Unprivileged()
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.EqualValues(t, uid, info.Sys().(*syscall.Stat_t).Uid)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// The unprivileged user may work in what Mkdir made for it and, unless it is ourselves, nowhere else.
func TestUnprivilegedChild(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	dir, err := r.Mkdir("data")
	require.NoError(t, err)
	_, uid, gid, other := Unprivileged()
	var out bytes.Buffer
	c, err := r.Start(Spec{Name: "shell", Path: "/bin/sh", Dir: dir, Stdout: &out, Unprivileged: true,
		Args: []string{"-c", "id -u; id -g; touch here && echo wrote; touch ../there 2>/dev/null || echo refused"}})
	require.NoError(t, err)
	<-c.Done()
	require.NoError(t, c.Err())
	want := fmt.Sprintf("%d\n%d\nwrote\n", uid, gid)
	if other {
		want += "refused\n"
	}
	require.Equal(t, want, out.String())
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	r, err := NewRun()
	require.NoError(t, err)
	for _, script := range scripts {
		start(t, r, script)
	}
	eventually(t, func() bool { found, err := r.quarry().find(); return err == nil && len(found) >= sleepers }, "the children are there")
	require.NoError(t, r.Close())
	found, err := r.quarry().find()
	require.NoError(t, err)
	require.Empty(t, found)
	require.NoDirExists(t, r.Dir())
	require.NotNil(t, r.reaper.ProcessState, "the reaper has ended")

	require.NoError(t, r.Close(), "again")
	_, err = r.Start(Spec{Name: "late", Path: "/bin/true"})
	require.Error(t, err)
}

func TestKillWithin(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	dir, err := r.Mkdir("inside")
	require.NoError(t, err)
	inside, err := r.Start(Spec{Name: "inside", Path: "sleep", Args: []string{"1000"}, Dir: dir, Unprivileged: true})
	require.NoError(t, err)
	outside := start(t, r, "exec sleep 1000")
	require.NoError(t, r.KillWithin(dir))
	<-inside.Done()
	state, err := outside.State()
	require.NoError(t, err)
	require.Contains(t, "SRD", state)
}

func TestTempErrors(t *testing.T) {
	t.Parallel()
	for cause, words := range map[error]string{
		syscall.ENOSPC: "there is no room left in /some/dir",
		syscall.EDQUOT: "there is no room left in /some/dir",
		syscall.EACCES: "simrun may not write in /some/dir",
		syscall.EROFS:  "simrun may not write in /some/dir",
		syscall.ENOENT: "there is no directory /some/dir",
	} {
		err := tempError("/some/dir", &os.PathError{Op: "mkdir", Path: "/some/dir/x", Err: cause})
		var sentence *Error
		require.ErrorAs(t, err, &sentence)
		require.Contains(t, sentence.Problem, words)
		require.Contains(t, sentence.Problem, "TMPDIR", "a way out")
		require.ErrorIs(t, err, cause)
	}
	other := errors.New("something else")
	require.ErrorIs(t, tempError("/some/dir", other), other)
}

// Not parallel: they change the environment of the whole process.
func TestTempDirectoryOfNoUse(t *testing.T) {
	var sentence *Error
	t.Run("missing", func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
		_, err := NewRun()
		require.ErrorAs(t, err, &sentence)
		require.Contains(t, sentence.Problem, "there is no directory")
	})
	t.Run("closed", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "closed")
		require.NoError(t, os.Mkdir(dir, 0o500))
		t.Setenv("TMPDIR", dir)
		_, err := NewRun()
		require.ErrorAs(t, err, &sentence)
		if name, _, _, other := Unprivileged(); other {
			require.Contains(t, sentence.Problem, "the user "+name)
			require.Contains(t, sentence.Problem, "cannot reach "+dir)
		} else {
			require.Contains(t, sentence.Problem, "may not write in "+dir)
		}
		require.Contains(t, sentence.Problem, "TMPDIR")
	})
	t.Run("a link", func(t *testing.T) {
		base, err := os.MkdirTemp("", "proc-test-")
		require.NoError(t, err)
		require.NoError(t, os.Chmod(base, 0o755))
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(base)) })
		require.NoError(t, os.Symlink(base, base+"/link"))
		t.Setenv("TMPDIR", base+"/link")
		r, err := NewRun()
		require.NoError(t, err)
		// /proc names directories without links, and the marks are compared with what it says.
		require.Equal(t, base, filepath.Dir(r.Dir()))
		start(t, r, "setsid env -i sleep 1000 & exec sleep 1000")
		require.NoError(t, r.Close())
		left, err := os.ReadDir(base)
		require.NoError(t, err)
		require.Len(t, left, 1, "the link")
	})
}

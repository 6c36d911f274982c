package proc

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// openDir is a folder that everybody may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "proc")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func TestExecutable(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	file := func(name string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	file("good", 0o755)
	file("data", 0o644)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	for name, want := range map[string]string{"./good": filepath.Join(dir, "good"), "sub/../good": filepath.Join(dir, "good"), filepath.Join(dir, "good"): filepath.Join(dir, "good")} {
		got, err := Executable(name, dir)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := Executable("sh", dir)
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(got), got)
	for name, kind := range map[string]error{"./none": fs.ErrNotExist, "none-at-all": fs.ErrNotExist, "./sub": fs.ErrNotExist, "./data": fs.ErrPermission, "good": fs.ErrNotExist} {
		_, err := Executable(name, dir)
		require.ErrorIs(t, err, kind, name)
		var sentence *Error
		require.ErrorAs(t, err, &sentence)
	}
	_, err = Executable("sh", filepath.Join(dir, "no-such-folder"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// In PATH, what the other user may not run is passed over, as that user's own shell would.
func TestExecutableForTheOtherUser(t *testing.T) {
	if _, _, _, other := Unprivileged(); !other {
		return // there is no other user
	}
	dir, first, second := openDir(t), openDir(t), openDir(t)
	require.NoError(t, os.Chmod(first, 0o700))
	for _, d := range []string{first, second} {
		require.NoError(t, os.WriteFile(filepath.Join(d, "prog"), []byte("#!/bin/sh\n"), 0o755))
	}
	t.Setenv("PATH", first+":"+second)
	got, err := Executable("prog", dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(second, "prog"), got)
	t.Setenv("PATH", first)
	_, err = Executable("prog", dir)
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = Executable("prog", first)
	require.ErrorContains(t, err, "cannot enter")
}

// A child that runs as another user has that user's home, and not ours.
func TestTheHomeOfAChild(t *testing.T) {
	t.Parallel()
	a := unprivileged()
	if a == nil {
		return // a child's home is ours, since it runs as us
	}
	r := newRun(t)
	var out writer
	c, err := r.Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", `echo "$HOME $USER"`}, Unprivileged: true, Stdout: &out})
	require.NoError(t, err)
	<-c.Done()
	require.Equal(t, a.home+" "+a.name+"\n", string(out))
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

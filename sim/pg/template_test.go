package pg

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-aafb3a99/simrun/internal/proc"
)

// fresh makes a cluster in a directory of its own and returns its system identifier, which initdb draws.
func fresh(t *testing.T, run *proc.Run, b binaries) string {
	t.Helper()
	dir, err := run.Mkdir(randomName())
	require.NoError(t, err)
	require.NoError(t, makeCluster(context.Background(), run, b, dir))
	return identifier(t, dir)
}

func identifier(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "data", "global", "pg_control"))
	require.NoError(t, err)
	return string(b[:8])
}

// Not parallel: the cache's place is in the environment.
func TestTemplate(t *testing.T) {
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	b, err := findBinaries()
	require.NoError(t, err)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	path := filepath.Join(cache, "simrun", "cluster-"+templateKey(b)+".tar")

	// Several at once make one.
	var g errgroup.Group
	dirs := make([]string, 2)
	for i := range dirs {
		dirs[i], err = run.Mkdir(randomName())
		require.NoError(t, err)
		g.Go(func() error { return makeCluster(context.Background(), run, b, dirs[i]) })
	}
	require.NoError(t, g.Wait())
	first := identifier(t, dirs[0])
	for _, dir := range dirs {
		require.Equal(t, first, identifier(t, dir))
	}
	require.FileExists(t, path)
	require.Empty(t, glob(t, cache+"/simrun/.new-*"))

	// The copy is the same, file by file.
	for _, name := range files(t, filepath.Join(dirs[0], "data")) {
		one, err := os.ReadFile(filepath.Join(dirs[0], "data", name))
		require.NoError(t, err)
		two, err := os.ReadFile(filepath.Join(dirs[1], "data", name))
		require.NoError(t, err)
		require.Equal(t, len(one), len(two), name)
		require.True(t, string(one) == string(two), name)
	}

	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	damage := map[string]func([]byte) []byte{
		"one byte":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut short":  func(b []byte) []byte { return b[:len(b)/3] },
		"headless":   func(b []byte) []byte { return b[:100] },
		"the header": func(b []byte) []byte { b[3] = 'x'; return b },
		"more":       func(b []byte) []byte { return append(b, 'x') },
	}
	for name, f := range damage {
		require.NoError(t, os.WriteFile(path, f(append([]byte(nil), whole...)), 0o600))
		require.ErrorIs(t, unpack(path, filepath.Join(t.TempDir(), "data")), errTemplate, name)
	}
	again := fresh(t, run, b)
	require.NotEqual(t, first, again, "made again")
	require.Equal(t, again, fresh(t, run, b), "and kept")

	// A file that somebody else could have written is not used.
	require.NoError(t, os.Chmod(path, 0o666))
	require.ErrorIs(t, unpack(path, filepath.Join(t.TempDir(), "data")), errTemplate)

	// One who waits for another's initdb can be told to stop.
	unlock, err := lockFile(context.Background(), path+".lock")
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = lockFile(ctx, path+".lock")
	require.ErrorIs(t, err, context.Canceled)
}

func TestCacheDirectory(t *testing.T) {
	usable := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", usable)
	require.Equal(t, filepath.Join(usable, "simrun"), cacheDir())

	// Somebody else can write there.
	require.NoError(t, os.Chmod(filepath.Join(usable, "simrun"), 0o777))
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	require.Equal(t, temp, filepath.Dir(cacheDir()))

	// Nowhere at all: a cluster is made without it.
	t.Setenv("XDG_CACHE_HOME", "/proc/self/nowhere")
	t.Setenv("TMPDIR", "/proc/self/nowhere")
	require.Empty(t, cacheDir())
	t.Setenv("TMPDIR", "/tmp")
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	t.Setenv("TMPDIR", "/proc/self/nowhere")
	b, err := findBinaries()
	require.NoError(t, err)
	require.NotEmpty(t, fresh(t, run, b))
}

// Somebody may take the port between the moment it was found free and the server's start.
func TestPortTakenMeanwhile(t *testing.T) {
	t.Parallel()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	busy := l.Addr().(*net.TCPAddr).Port
	b, err := findBinaries()
	require.NoError(t, err)

	tries := 0
	c := &cluster{run: run, bin: b, hba: hba, freePort: func() (int, error) {
		if tries++; tries == 1 {
			return busy, nil
		}
		return proc.FreePort()
	}}
	require.NoError(t, c.prepare(context.Background(), ""))
	require.NoError(t, c.launch(context.Background()))
	require.Equal(t, 2, tries)
	require.NotEqual(t, busy, c.port)

	// On the way back after a restart there is no choice.
	c.port = busy
	require.Error(t, c.restart(context.Background(), "fast"))
	require.NoError(t, c.stop())

	c.freePort = func() (int, error) { tries++; return 0, errors.New("none left") }
	require.ErrorContains(t, c.launch(context.Background()), "none left")
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return found
}

func files(t *testing.T, root string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, relErr := filepath.Rel(root, path)
			names, err = append(names, name), relErr
		}
		return err
	}))
	require.Greater(t, len(names), 500)
	return names
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A home is a user's machine in small: results, temporary files and caches of his own.
type home struct {
	t        *testing.T
	dir, out string
	env      []string
}

func newHome(t *testing.T) *home {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"tmp", "cache/simrun"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	return &home{t, dir, filepath.Join(dir, "simrun-out"), []string{"TMPDIR=" + filepath.Join(dir, "tmp"), "XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}}
}

func (h *home) write(path string) {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(h.t, os.WriteFile(path, make([]byte, 2048), 0o600))
}

// results makes results folders as runs leave them; the last name is latest.
func (h *home) results(names ...string) {
	h.t.Helper()
	for _, n := range names {
		h.write("simrun-out/" + n + "/histories/a.jsonl")
		h.write("simrun-out/" + n + "/result.json")
		_ = os.Remove(filepath.Join(h.out, "latest"))
		require.NoError(h.t, os.Symlink(n, filepath.Join(h.out, "latest")))
	}
}

func (h *home) list(dir string) (names []string) {
	h.t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.dir, dir))
	require.NoError(h.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (h *home) clean(args ...string) (string, string, int) {
	h.t.Helper()
	return simrunWith(h.t, h.dir, h.env, append([]string{"clean"}, args...)...)
}

const (
	r1 = "20260101T000001Z-1"
	r2 = "20260101T000002Z-1"
	r3 = "20260101T000002Z-1-1"
	r4 = "20260101T000004Z-18446744073709551615"
)

func TestCleanResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{r2, r4, "latest"}},
		{[]string{"--keep", "2"}, []string{r2, r3, r4, "latest"}},
		{[]string{"--keep", "9"}, []string{r1, r2, r3, r4, "latest"}},
		{[]string{"--keep", "0"}, nil},
	} {
		h := newHome(t)
		h.results(r4, r1, r3, r2) // latest is not the newest
		before := h.list("simrun-out")
		out, errs, status := h.clean(append(c.args, "--dry-run")...)
		require.Zero(t, status, errs)
		require.Equal(t, before, h.list("simrun-out"), "dry")
		if c.want == nil {
			require.Contains(t, out, "would go simrun-out/"+r1+"  4 KiB\n")
			require.Contains(t, out, "would remove 4 things, 16 KiB\n")
		}
		out, errs, status = h.clean(c.args...)
		require.Zero(t, status, errs)
		require.Equal(t, c.want, h.list("simrun-out"), "%v\n%s", c.args, out)
		require.NotContains(t, out, "would")
	}
	h := newHome(t)
	out, errs, status := h.clean()
	require.Zero(t, status, errs)
	require.Equal(t, "removed 0 things, 0 bytes\n", out)
	_, _, status = h.clean("--keep", "-1")
	require.Equal(t, exitUsage, status)
	_, _, status = h.clean("--out", "/proc/version")
	require.Equal(t, exitEnvironment, status)
}

// What is not simrun's stays, and no link leads the cleaning elsewhere.
func TestCleanLeavesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.results(r1, r2)
	h.write("precious/histories/a.jsonl")
	h.write("simrun-out/notes/x")
	h.write("simrun-out/thesis.txt")
	h.write("simrun-out/20260101T000009Z-1/histories/a.jsonl")
	h.write("simrun-out/20260101T000009Z-1/notes.txt")
	h.write("simrun-out/20260101T000008Z-1/result.json") // no histories: not made by a run
	h.write("simrun-out/20260101T000007Z-1")             // a file
	link := func(target, name string) {
		require.NoError(t, os.Symlink(target, filepath.Join(h.out, name)))
	}
	link("../precious", "20260101T000006Z-1")
	link("/etc", "20260101T000005Z-1")
	link("../../precious", r1+"/histories/evil")
	require.NoError(t, os.Remove(filepath.Join(h.out, "latest")))
	link("../precious", "latest")
	out, errs, status := h.clean("--keep", "0")
	require.Zero(t, status, out+errs)
	require.Equal(t, []string{"20260101T000005Z-1", "20260101T000006Z-1", "20260101T000007Z-1", "20260101T000008Z-1", "20260101T000009Z-1", "latest", "notes", "thesis.txt"}, h.list("simrun-out"))
	require.Equal(t, []string{"a.jsonl"}, h.list("precious/histories"))
	require.Contains(t, out, `it holds "notes.txt", which simrun did not write`)
	require.Contains(t, out, "left     simrun-out/thesis.txt: not a results folder")
}

// While a run writes there, nothing at all is removed.
func TestCleanRefusesWhileARunIsAlive(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.results(r1, r2)
	h.write("cache/simrun/cluster-15.tar")
	o, err := newOutDir(h.out, 7, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	before := h.list("simrun-out")
	for _, args := range [][]string{{"--keep", "0"}, {"--keep", "9"}, {"--dry-run"}} {
		_, errs, status := h.clean(args...)
		require.Equal(t, exitEnvironment, status)
		require.Contains(t, errs, "a run is writing to simrun-out/"+filepath.Base(o.dir))
		require.Equal(t, before, h.list("simrun-out"))
		require.Equal(t, []string{"cluster-15.tar"}, h.list("cache/simrun"))
	}
	foldersMu.Lock()
	i := slices.IndexFunc(folders, func(f *os.File) bool { return f.Name() == o.dir })
	require.GreaterOrEqual(t, i, 0)
	require.NoError(t, folders[i].Close()) // the run has ended
	folders = slices.Delete(folders, i, i+1)
	foldersMu.Unlock()
	out, errs, status := h.clean("--keep", "0")
	require.Zero(t, status, errs)
	require.Empty(t, h.list("simrun-out"))
	require.Contains(t, out, "removed 4 things")
}

// What dead runs left in the directory for temporary files goes, and cached clusters; what a living run has there, and everything else, stays.
func TestCleanLeftovers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.write("tmp/simrun-run-1-dead/pg/data")
	h.write("tmp/simrun-run-1-alive/pg/data")
	h.write("tmp/another/x")
	h.write("cache/simrun/cluster-15.1-abc.tar")
	h.write("cache/simrun/cluster-15.1-abc.tar.lock")
	h.write("cache/simrun/theirs")
	h.write("cache/else/cluster-15.1.tar")
	require.NoError(t, os.Symlink(filepath.Join(h.dir, "cache/else/cluster-15.1.tar"), filepath.Join(h.dir, "cache/simrun/cluster-16.tar")))
	claim(filepath.Join(h.dir, "tmp/simrun-run-1-alive")) // a run locks its directory in the same way
	out, errs, status := h.clean("--dry-run")
	require.Zero(t, status, errs)
	require.Contains(t, out, "simrun-run-1-dead  2 KiB, of a run that died")
	require.Contains(t, out, "would remove 2 things, 4 KiB")
	require.Len(t, h.list("tmp"), 3)
	out, errs, status = h.clean()
	require.Zero(t, status, errs)
	require.Contains(t, out, "removed 2 things, 4 KiB")
	require.Equal(t, []string{"another", "simrun-run-1-alive"}, h.list("tmp"))
	require.Equal(t, []string{"cluster-16.tar", "theirs"}, h.list("cache/simrun"))
	require.Equal(t, []string{"cluster-15.1.tar"}, h.list("cache/else"))
}

// A run of simrun holds the lock that clean looks for, and lets go of it when it ends.
func TestARunClaimsItsFolder(t *testing.T) {
	t.Parallel()
	cmd, tmp, out := started(t, "run", "steady", "--engine", "live", "--schedules", "50", "--seed", "1", "--workers", "1")
	require.Eventually(t, func() bool {
		m, _ := filepath.Glob(filepath.Join(cmd.Dir, "simrun-out", "*", "logs", "*"))
		return len(m) > 0
	}, time.Minute, 20*time.Millisecond)
	env := []string{"TMPDIR=" + tmp, "XDG_CACHE_HOME=" + tmp}
	_, errs, status := simrunWith(t, cmd.Dir, env, "clean", "--keep", "0")
	require.Equal(t, exitEnvironment, status, errs)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	requireNothingLeft(t, tmp, "killed")
	_, errs, status = simrunWith(t, cmd.Dir, env, "clean", "--keep", "0")
	require.Zero(t, status, errs, out.String())
	left, err := os.ReadDir(filepath.Join(cmd.Dir, "simrun-out"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAmount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1024: "1 KiB", 1536: "1.5 KiB", 40341504: "38.5 MiB", 3 << 30: "3 GiB"} {
		require.Equal(t, want, amount(n))
	}
}

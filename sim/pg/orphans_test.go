package pg_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

// traces lists the processes that have to do with a directory: by where they work, or by their environment.
func traces(t *testing.T, dir string) (pids map[int]string) {
	t.Helper()
	pids = map[int]string{}
	found, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, path := range found {
		cwd, _ := os.Readlink(path + "/cwd")
		env, _ := os.ReadFile(path + "/environ")
		if pid, _ := strconv.Atoi(filepath.Base(path)); strings.HasPrefix(cwd, dir) || bytes.Contains(env, []byte(dir)) {
			name, _ := os.ReadFile(path + "/cmdline")
			pids[pid] = string(bytes.ReplaceAll(name, []byte{0}, []byte{' '}))
		}
	}
	return pids
}

// sharedMemory lists the System V segments that one of the processes made.
func sharedMemory(t *testing.T, pids map[int]string) (ids []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/sysvipc/shm")
	require.NoError(t, err)
	for _, line := range strings.Split(string(b), "\n")[1:] {
		if f := strings.Fields(line); len(f) > 4 {
			if pid, _ := strconv.Atoi(f[4]); pids[pid] != "" {
				ids = append(ids, f[1])
			}
		}
	}
	return ids
}

// world is a directory for temporary files of a helper, who runs as the given user.
func world(t *testing.T, what string, uid, gid int) (cmd *osexec.Cmd, dir string, lines *bufio.Reader) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	cmd = osexec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperName+"="+what, "TMPDIR="+dir)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	if uid != os.Geteuid() {
		require.NoError(t, os.Chown(dir, uid, gid))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		cmd.Env = append(cmd.Env, "HOME=/nonexistent", "XDG_CACHE_HOME="+dir+"/cache")
	}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, dir, bufio.NewReader(out)
}

// Whenever it is killed, nothing of it is left: not a process, not a file, not a segment of shared memory.
func TestNothingIsLeftAfterSIGKILL(t *testing.T) {
	t.Parallel()
	pgtest.Server(t) // the cached cluster is there, so that no helper spends its life on initdb
	slots := make(chan struct{}, 2)
	for n := range 10 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			cmd, dir, lines := world(t, "wait", os.Geteuid(), os.Getegid())
			// Every stage has its turn, and the last one, with everything up, more than one.
			stage := min(n, stages)
			for range stage {
				line, err := lines.ReadString('\n')
				require.NoError(t, err)
				require.NotContains(t, line, "error")
			}
			time.Sleep(rand.N(80 * time.Millisecond))
			before := traces(t, dir)
			err := cmd.Process.Kill()
			require.NoError(t, err)
			killed := time.Now()
			_ = cmd.Wait()
			var left map[int]string
			var files []string
			// On an idle machine it takes a tenth of a second.
			for time.Since(killed) < 20*time.Second {
				files, err = filepath.Glob(dir + "/*")
				require.NoError(t, err)
				if len(files) == 0 {
					if left = traces(t, dir); len(left) == 0 {
						break
					}
				}
				time.Sleep(20 * time.Millisecond)
			}
			require.Empty(t, files, "stage %d", stage)
			require.Empty(t, left, "stage %d", stage)
			t.Logf("stage %d, %d processes: cleared %s after the kill", stage, len(before), time.Since(killed).Round(time.Millisecond))
			require.Empty(t, sharedMemory(t, before))
		})
	}
}

// An ordinary user can do all of it, without a home directory too.
func TestAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	uid, gid := os.Geteuid(), os.Getegid()
	if _, _, _, root := proc.Unprivileged(); root {
		uid, gid = 65534, 65534
	}
	cmd, dir, lines := world(t, "tidy", uid, gid)
	var last string
	for range stages {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, last)
		last = strings.TrimSpace(line)
		require.NotContains(t, last, "error")
	}
	require.Equal(t, "stopped", last)
	require.NoError(t, cmd.Wait())
	files, err := filepath.Glob(dir + "/simrun-*")
	require.NoError(t, err)
	require.Empty(t, files)
	require.Empty(t, traces(t, dir))
}

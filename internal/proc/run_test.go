package proc

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newRun(t *testing.T) *Run {
	r, err := NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func TestKilledParentLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PROC_TEST_HELPER=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dir := strings.TrimSpace(line)
	require.DirExists(t, dir)
	q := &quarry{dir: dir, started: readRegistry(dir)}
	require.Len(t, q.started, 4)
	require.Eventually(t, func() bool { found, err := q.find(); return err == nil && len(found) >= 9 }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	begin := time.Now()
	_ = cmd.Wait()
	require.Eventually(t, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) }, 5*time.Second, 5*time.Millisecond)
	t.Log(time.Since(begin))
	found, err := q.find()
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestChild(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	c, err := r.Start(Spec{Name: "cat", Path: "cat", StdinPipe: true})
	require.NoError(t, err)
	require.NoError(t, c.Kill())
	require.Error(t, c.Err())
}

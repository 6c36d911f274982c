package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestPin runs in a process of its own, since a pinned process stays pinned.
func TestPin(t *testing.T) {
	t.Parallel()
	if os.Getenv("SIMRUN_TEST_PIN") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPin$", "-test.count=1")
		cmd.Env = append(os.Environ(), "SIMRUN_TEST_PIN=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	var before unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	require.NoError(t, Pin(before.Count())) // counted round: the first
	first := 0
	for !before.IsSet(first) {
		first++
	}
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Greater(t, len(threads), 1)
	// Of a child as well, whichever thread it was started from.
	for range 2 * runtime.NumCPU() {
		status, err := exec.Command("cat", "/proc/self/status").Output()
		require.NoError(t, err)
		_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
		list, _, _ = strings.Cut(list, "\n")
		require.Equal(t, strconv.Itoa(first), list)
	}
	require.NoError(t, Pin(5), "it stays where it is")
}

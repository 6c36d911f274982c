package proc

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const pinVerb = "SIMRUN_TEST_PIN"

// allowed is where a child of this process may run.
func allowed(t *testing.T) string {
	status, err := exec.Command("cat", "/proc/self/status").Output()
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
	list, _, _ = strings.Cut(list, "\n")
	return list
}

// TestPin runs in a process of its own, since a pinned process stays pinned.
func TestPin(t *testing.T) {
	t.Parallel()
	switch os.Getenv(pinVerb) {
	case "":
		cmd := exec.Command(os.Args[0], "-test.run=^TestPin$", "-test.count=1")
		cmd.Env = append(os.Environ(), pinVerb+"=one")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	case "one":
		may, err := processors()
		require.NoError(t, err)
		require.NoError(t, Pin(len(may))) // counted round: the first
		threads, err := os.ReadDir("/proc/self/task")
		require.NoError(t, err)
		require.Greater(t, len(threads), 1)
		for range 4 { // whichever thread starts it
			require.Equal(t, fmt.Sprint(may[0]), allowed(t))
		}
		require.NoError(t, Pin(5), "it stays where it is")
	}
}

// TestPinToFree has as many processes as there are processors, and one more: each takes another, and the last is left alone.
func TestPinToFree(t *testing.T) {
	if os.Getenv(pinVerb) == "free" {
		before := allowed(t)
		got, err := PinToFree()
		require.NoError(t, err)
		if !got {
			require.Equal(t, before, allowed(t))
		}
		fmt.Println("pinned:", got, allowed(t))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	may, err := processors()
	require.NoError(t, err)
	where := map[string]int{}
	free := 0
	for range len(may) + 1 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPinToFree$", "-test.count=1")
		cmd.Env = append(os.Environ(), pinVerb+"=free")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() {
			in.Close()
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
		}()
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "pinned: ") {
		}
		if list, ok := strings.CutPrefix(lines.Text(), "pinned: true "); ok {
			where[list]++
		} else {
			require.True(t, strings.HasPrefix(lines.Text(), "pinned: false"), lines.Text())
			free++
		}
	}
	for cpu, n := range where {
		require.Equal(t, 1, n, cpu) // other simruns on this machine may have taken some
	}
	require.Positive(t, free)
}

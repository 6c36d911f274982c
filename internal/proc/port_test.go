package proc

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreePort(t *testing.T) {
	t.Parallel()
	var low int
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	require.NoError(t, err)
	_, err = fmt.Sscan(string(b), &low)
	require.NoError(t, err)
	seen := map[int]bool{}
	for range 50 {
		port, err := FreePort()
		require.NoError(t, err)
		require.False(t, seen[port], "given out twice")
		seen[port] = true
		if low > 11000 {
			require.Less(t, port, low, "an outgoing connection could sit on it")
		}
		if PortTaken(port) {
			require.False(t, listensHere(t, port), "given out without being let go of")
		}
	}
}

// listensHere reports whether this process itself listens on a port, and not one that has begun to meanwhile.
func listensHere(t *testing.T, port int) bool {
	t.Helper()
	sockets, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	ours := map[string]bool{}
	for _, f := range files {
		to, _ := os.Readlink("/proc/self/fd/" + f.Name()) // some are closed by now
		ours[to] = true
	}
	for line := range strings.Lines(string(sockets)) {
		f := strings.Fields(line)
		const local, state, inode, listen = 1, 3, 9, "0A"
		if len(f) > inode && strings.HasSuffix(f[local], fmt.Sprintf(":%04X", port)) && f[state] == listen && ours["socket:["+f[inode]+"]"] {
			return true
		}
	}
	return false
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.True(t, PortTaken(port))
	require.True(t, listensHere(t, port))
	require.NoError(t, l.Close())
	require.False(t, listensHere(t, port))
}

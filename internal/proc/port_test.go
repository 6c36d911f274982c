package proc

import (
	"fmt"
	"net"
	"os"
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
	seen, taken := map[int]bool{}, 0
	for range 50 {
		port, err := FreePort()
		require.NoError(t, err)
		require.False(t, seen[port], "given out twice")
		seen[port] = true
		if low > 11000 {
			require.Less(t, port, low, "an outgoing connection could sit on it")
		}
		if PortTaken(port) {
			taken++
		}
	}
	require.Less(t, taken, 5, "a server of another test may have begun on one meanwhile, but not on many")
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	require.True(t, PortTaken(l.Addr().(*net.TCPAddr).Port))
}

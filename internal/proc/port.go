package proc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
)

var (
	portsMu   sync.Mutex
	portsUsed = map[int]bool{}
)

// FreePort finds a TCP port on 127.0.0.1 that is free now and was not given out by this process before. Somebody else may
// take it before it is used, so try another one then.
//
// The port lies below the range from which the kernel takes the local ports of outgoing connections. A server may
// therefore be restarted on its port without finding some client sitting on it.
func FreePort() (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	low := 32768
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(b), &low)
	}
	const first = 10000
	for range 1000 {
		port := 0 // the kernel's choice, where it leaves no room below its range
		if low > first+1000 {
			port = first + rand.IntN(low-first)
		}
		if portsUsed[port] {
			continue
		}
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		port = l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		portsUsed[port] = true
		return port, nil
	}
	return 0, errors.New("find a free port: 1000 tries found none")
}

// PortTaken reports whether somebody listens on 127.0.0.1:port, or is otherwise in the way of a listener.
func PortTaken(port int) bool {
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		l.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

package netfault

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// A guard is a socket that is bound to a port and does not listen: the port is taken, and who connects is refused.
type guard int

// reservePort takes a free port. The guard and the listener share it by SO_REUSEPORT, which the kernel grants to sockets
// of one user only.
func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &port{
		addr:  fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port),
		guard: guard(fd),
	}, nil
}

func (g *guard) close() error {
	if *g < 0 {
		return nil
	}
	fd := int(*g)
	*g = -1
	return unix.Close(fd)
}

// sharePort is the listener's half of the bargain.
func sharePort(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}

// deafen makes the kernel throw away every packet that comes in on the socket, acknowledgements included, by a packet
// filter of one instruction: keep 0 bytes. Undone by hear.
func deafen(c *net.TCPConn) error {
	return control(c, func(fd int) error {
		keepNothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &keepNothing})
	})
}

func hear(c *net.TCPConn) error {
	return control(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	})
}

// discard throws away what the socket has received and nobody has read. Closing a socket with unread bytes sends RST in
// place of FIN.
func discard(c *net.TCPConn) error {
	return control(c, func(fd int) error {
		buf := make([]byte, 64<<10)
		for range 1024 { // a peer that sends without end gets its RST
			if n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); n <= 0 || err != nil {
				break
			}
		}
		return nil
	})
}

func control(c *net.TCPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

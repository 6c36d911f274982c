//go:build !linux

package netfault

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// A guard does nothing here: a refused port could be lost to another process.
type guard struct{}

func reservePort() (*port, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &port{addr: l.Addr().String()}, l.Close()
}

func (guard) close() error { return nil }

func sharePort(_, _ string, _ syscall.RawConn) error { return nil }

func deafen(*net.TCPConn) error { return errors.ErrUnsupported }
func hear(*net.TCPConn) error   { return errors.ErrUnsupported }

// discard is left to luck here: bytes that arrive in the last moment turn the FIN of a close into RST.
func discard(*net.TCPConn) error { return nil }

package netfault

import (
	"errors"
	"fmt"
	"net"
)

// HalfOpen makes the open connections half open as the server sees it, and says how many there were: none of its packets
// is answered any more, not even by the kernel, and none comes, so that all it can do is to send again, and to give up
// when its own timers (keepalives, TCP_USER_TIMEOUT, an idle timeout) say so. The client hears nothing either; when it
// leaves, the server does not notice. New connections pass.
//
// HalfOpen(false) heals: what was sent meanwhile arrives, unless the server has given up; then the client's connection is
// reset when it sends, as TCP has it. Cut closes half-open connections on both sides like others.
//
// Hold is not enough for this: there the link's kernel goes on to acknowledge what the server sends, and to answer its
// keepalives. Linux only; elsewhere the error is errors.ErrUnsupported.
func (l *Link) HalfOpen(on bool) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case on:
		for c := range l.conns {
			c.deaf = c.deaf || isClosed(c.dialled)
		}
		l.changeLocked(func(*settings) {}) // the gates hold what goes up before the server becomes unreachable
		for c := range l.conns {
			if !c.deaf || isClosed(c.over) {
				continue
			}
			// A conn that is being torn down may have closed its socket.
			if e := deafen(c.server); e == nil {
				n++
			} else if !errors.Is(e, net.ErrClosed) {
				err = errors.Join(err, fmt.Errorf("make a connection of link %s half open: %w", l.name, e))
			}
		}
	default:
		for c := range l.conns {
			if !c.deaf {
				continue
			}
			c.deaf = false
			if e := hear(c.server); e == nil {
				n++
			} else if !errors.Is(e, net.ErrClosed) {
				err = errors.Join(err, fmt.Errorf("heal a half-open connection of link %s: %w", l.name, e))
			}
		}
		l.changeLocked(func(*settings) {})
	}
	return n, err
}

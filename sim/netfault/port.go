package netfault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// A port is a TCP port of 127.0.0.1 that stays ours while nobody listens on it, so that refusing connections for a
// while cannot lose it to another process.
type port struct {
	addr  string
	guard guard

	mu       sync.Mutex
	listener *net.TCPListener
	stopped  chan struct{} // the accept loop of listener has ended
	closed   bool
}

// listen accepts connections until the port is stopped. It does nothing when it does that already, or is closed.
func (p *port) listen(accept func(*net.TCPConn)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	config := net.ListenConfig{Control: sharePort, KeepAlive: keepAlive}
	config.SetMultipathTCP(false) // the default, whose sockets share no port with the guard's kind by any promise
	l, err := config.Listen(context.Background(), "tcp4", p.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", p.addr, err)
	}
	p.listener, p.stopped = l.(*net.TCPListener), make(chan struct{})
	go acceptAll(p.listener, accept, p.stopped)
	return nil
}

func acceptAll(l *net.TCPListener, accept func(*net.TCPConn), stopped chan<- struct{}) {
	defer close(stopped)
	for {
		c, err := l.AcceptTCP()
		switch {
		case err == nil:
			accept(c)
		case errors.Is(err, net.ErrClosed):
			return
		default: // no descriptors left, or a client that went away in the queue: both pass
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// stop makes the port refuse connections; those that wait to be accepted are reset. It returns when the last accepted
// one has been handed over.
func (p *port) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopLocked()
}

func (p *port) stopLocked() error {
	if p.listener == nil {
		return nil
	}
	err := p.listener.Close()
	<-p.stopped
	p.listener = nil
	return err
}

func (p *port) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return errors.Join(p.stopLocked(), p.guard.close())
}

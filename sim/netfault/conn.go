package netfault

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// keepAlive is off on both sides of a link: the default probes would end a half-open connection by themselves.
const keepAlive = -1

// A conn is one client's connection: two sockets and a pipe each way.
//
// The end of one socket's stream travels through the pipe that leaves it, behind its bytes, and is held with them. It
// is when it arrives that the other socket is closed, in the same way, and the conn is over. Toxiproxy does the same,
// but for the way: it makes a FIN of a reset.
type conn struct {
	link    *Link
	client  *net.TCPConn
	pipes   [2]*pipe
	session *session
	deaf    bool // guarded by link.mu: the server's packets are not heard

	ctx     context.Context // ends when the conn is over
	cancel  context.CancelFunc
	dialled chan struct{} // closed when server is there
	server  *net.TCPConn

	endOnce sync.Once
	over    chan struct{} // closed when the conn is to be torn down
	endings [2]How        // of the server's socket (up) and the client's (down); valid once over is closed
	done    chan struct{} // closed when both sockets are closed and no goroutine uses them
}

func (l *Link) accept(client *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		closeSocket(client, RST)
		return
	}
	l.lastConn++
	c := &conn{link: l, client: client, dialled: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.session = newSession(c)
	c.pipes[up] = newPipe(c, up)
	c.pipes[down] = newPipe(c, down)
	l.conns[c] = struct{}{}
	l.served.Add(1)
	go c.serve(fmt.Sprint(l.lastConn))
}

// serve carries the connection from its first byte to its last.
func (c *conn) serve(name string) {
	defer c.link.served.Done()
	c.start(c.pipes[up], name+"-up", client{c}, server{c})
	if c.passable() {
		if err := c.dial(); err != nil {
			// The nearest thing to "connection refused" that is left once the client is connected.
			c.end(RST, RST)
		} else {
			c.start(c.pipes[down], name+"-down", server{c}, client{c})
		}
	}
	<-c.over
	c.tearDown()
}

func (c *conn) start(p *pipe, name string, src io.Reader, dst io.WriteCloser) {
	c.link.mu.Lock()
	p.running = true
	c.link.mu.Unlock()
	p.finished.Add(2) // its gate and its writer
	c.link.chain.startLink(p, name, src, dst)
}

// passable waits until the way to the server is open and reports whether to dial. It is false when the conn is over or
// when the client has left while the way was closed: then nobody would have heard of it.
func (c *conn) passable() bool {
	for {
		s := c.link.current()
		if s.way[up].mode == Pass {
			return true
		}
		select {
		case <-s.changed:
		case <-c.pipes[up].sourceEnded:
			c.end(FIN, FIN)
			return false
		case <-c.over:
			return false
		}
	}
}

// dial connects to the server. Toxiproxy dials in its accept loop, where one server that does not answer keeps all new
// clients and Stop waiting; here a connection waits alone, and the end of the conn ends the wait.
func (c *conn) dial() error {
	d := net.Dialer{KeepAlive: keepAlive}
	s, err := d.DialContext(c.ctx, "tcp", c.link.upstream)
	if err != nil {
		return fmt.Errorf("link %s: dial %s: %w", c.link.name, c.link.upstream, err)
	}
	c.server = s.(*net.TCPConn)
	close(c.dialled)
	return nil
}

// end decides that the conn is over and how its sockets are closed; it reports whether it was not over before.
func (c *conn) end(server, client How) (first bool) {
	c.endOnce.Do(func() {
		c.endings[up], c.endings[down] = server, client
		close(c.over)
		c.cancel()
		first = true
	})
	return first
}

// tearDown closes the sockets. All goroutines have let go of them by then, so that Close means close(2).
func (c *conn) tearDown() {
	aLongTimeAgo := time.Unix(1, 0)
	c.client.SetDeadline(aLongTimeAgo)
	if c.server != nil {
		c.server.SetDeadline(aLongTimeAgo)
	}
	for _, p := range c.pipes {
		p.finished.Wait()
	}
	c.session.ended()
	closeSocket(c.client, c.endings[down])
	if c.server != nil {
		closeSocket(c.server, c.endings[up])
	}
	l := c.link
	l.mu.Lock()
	delete(l.conns, c)
	l.over++
	l.mu.Unlock()
	close(c.done)
}

// closeSocket closes a socket that nobody uses. Errors are those of a socket that the peer has already ended; there is
// nothing left to do about them.
func closeSocket(c *net.TCPConn, how How) {
	if how == RST {
		c.SetLinger(0)
	} else {
		c.CloseWrite()
		discard(c)
	}
	c.Close()
}

// client is the client's socket as Toxiproxy sees it: the source of what goes up, the destination of what goes down.
type client struct{ *conn }

func (c client) Read(b []byte) (int, error) { return c.pipes[up].readFrom(c.client, b) }
func (c client) Write(b []byte) (int, error) {
	return c.pipes[down].writeTo(c.client, b)
}
func (c client) Close() error { c.pipes[down].delivered(); return nil }

// server is the server's socket as Toxiproxy sees it. Whoever writes to it waits until it is dialled.
type server struct{ *conn }

func (s server) Read(b []byte) (int, error) { return s.pipes[down].readFrom(s.server, b) }
func (s server) Write(b []byte) (int, error) {
	select {
	case <-s.dialled:
		return s.pipes[up].writeTo(s.server, b)
	case <-s.over:
		return 0, net.ErrClosed
	}
}
func (s server) Close() error { s.pipes[up].delivered(); return nil }

package live

import (
	"bytes"
	"context"
	"net"
	"sync"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A leasePool stands for a client pool that the lease sessions of this process belong to: it closes them when they are old enough, which
// is when it is told so, whatever they hold.
type leasePool struct {
	mu   sync.Mutex
	open map[*pooledConn]bool
}

// dial dials, and watches what the connection turns out to be for.
func (p *leasePool) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &pooledConn{Conn: conn, pool: p}, nil
}

// recycle closes all lease sessions.
func (p *leasePool) recycle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Conn.Close()
	}
	clear(p.open)
}

// A pooledConn is a connection that knows by its first message whether it is a lease session.
type pooledConn struct {
	net.Conn
	pool *leasePool
	once sync.Once
}

func (c *pooledConn) Write(b []byte) (int, error) {
	c.once.Do(func() {
		if bytes.Contains(b, []byte("/"+sim.UseLease+"/")) { // its application_name
			c.pool.mu.Lock()
			defer c.pool.mu.Unlock()
			c.pool.open[c] = true
		}
	})
	return c.Conn.Write(b)
}

func (c *pooledConn) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.open, c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

package netfault

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultLimit is how many bytes one direction of one connection keeps before it stops reading from its sender.
const DefaultLimit = 1 << 20

// A Link is a way from clients to one server that can be broken and healed. Its methods may be called from any
// goroutine. Except for Close, whatever they break they also heal.
type Link struct {
	name     string
	upstream string
	chain    *chain
	port     *port

	served sync.WaitGroup // one a connection, and the accept loop

	mu       sync.Mutex
	obeys    sync.Cond // a gate has taken over new settings, or left
	settings *settings
	conns    map[*conn]struct{}
	over     int // how many have been
	lastConn int
	closed   bool

	traps   traps
	traffic [2]traffic
}

type traffic struct{ passed, held, dropped atomic.Int64 }

// New opens a link from a free port of 127.0.0.1 to upstream, a host:port. Nothing is dialled before a client comes. The
// name appears in errors only.
func New(name, upstream string) (*Link, error) {
	if _, _, err := net.SplitHostPort(upstream); err != nil {
		return nil, fmt.Errorf("link %s: upstream address: %w", name, err)
	}
	port, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	chain, err := newChain(name, port.addr, upstream)
	if err != nil {
		return nil, errors.Join(err, port.close())
	}
	l := &Link{
		name: name, upstream: upstream, chain: chain, port: port,
		settings: &settings{limit: DefaultLimit, changed: make(chan struct{})},
		conns:    map[*conn]struct{}{},
	}
	l.obeys.L = &l.mu
	if err := l.Refuse(false); err != nil {
		return nil, errors.Join(err, port.close())
	}
	return l, nil
}

// Addr is the address clients connect to, a host:port. It stays the same for the life of the link.
func (l *Link) Addr() string { return l.port.addr }

// Set puts a direction, or both, into a mode. When it returns, every open connection goes by it, idle ones too.
//
// A connection that is made while Up does not pass gets no further than the link: the server hears of it when the mode
// is Pass again, and never if the client has given up by then.
func (l *Link) Set(dir Direction, mode Mode) {
	l.change(func(s *settings) { s.each(dir, func(w *way) { w.mode = mode }) })
}

// Delay makes every byte of a direction, and the end of the stream, arrive d later than it was sent. 0 heals: what is
// under way then arrives at once.
func (l *Link) Delay(dir Direction, d time.Duration) {
	l.change(func(s *settings) { s.each(dir, func(w *way) { w.delay = max(0, d) }) })
}

// Slow lets no more than so many bytes a second through, per connection and direction. 0 heals.
func (l *Link) Slow(dir Direction, bytesPerSecond int64) {
	l.change(func(s *settings) { s.each(dir, func(w *way) { w.rate = max(0, bytesPerSecond) }) })
}

// Limit sets how many bytes one direction of one connection keeps before the link stops reading from its sender, who
// then has to wait as soon as the kernel's buffers are full too. The last read may go over it by 32 KiB.
func (l *Link) Limit(bytes int64) {
	l.change(func(s *settings) { s.limit = max(1, bytes) })
}

// Cut closes the connections that are open, on both sides, and says how many there were. When it returns, the sockets
// are closed and FIN or RST has been sent. What the link still held of them is lost. New connections pass.
func (l *Link) Cut(how How) int {
	cut := 0
	var open []*conn
	l.mu.Lock()
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		if c.end(how, how) {
			cut++
		}
	}
	for _, c := range open {
		<-c.done
	}
	return cut
}

// Refuse makes new connections fail with ECONNREFUSED; open ones stay. Nobody else gets the port meanwhile. The error
// says that the port could not be opened again, which is no fault of the caller's.
// Connections that the kernel has made and the link has not taken yet count as new.
func (l *Link) Refuse(refuse bool) error {
	if refuse {
		return l.failed("stop listening", l.port.stop())
	}
	return l.failed("listen", l.port.listen(l.accept))
}

func (l *Link) failed(what string, err error) error {
	if err != nil {
		return fmt.Errorf("link %s: %s: %w", l.name, what, err)
	}
	return nil
}

// Open is the number of connections that are not over: also those whose client has left while Up did not pass.
func (l *Link) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Over is the number of connections that there have been and that are over.
func (l *Link) Over() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// Unreadable is the number of open connections whose statements no trap can see: they are encrypted, not Postgres, or
// cancel requests.
func (l *Link) Unreadable() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.session.isOpaque() {
			n++
		}
	}
	return n
}

// Held is the number of bytes that wait in the link for whatever reason: held, delayed, slowed, trapped or not taken by
// their receiver.
func (l *Link) Held() (upward, downward int64) {
	return l.traffic[up].held.Load(), l.traffic[down].held.Load()
}

// Dropped is the number of bytes thrown away so far.
func (l *Link) Dropped() (upward, downward int64) {
	return l.traffic[up].dropped.Load(), l.traffic[down].dropped.Load()
}

// Passed is the number of bytes handed to the receiver's socket so far.
func (l *Link) Passed() (upward, downward int64) {
	return l.traffic[up].passed.Load(), l.traffic[down].passed.Load()
}

// Close ends the link: the port is closed, open connections end by FIN, dials are given up. When it returns nothing of
// the link is left. It may be called more than once.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.served.Wait()
		return nil
	}
	l.closed = true
	l.mu.Unlock()

	err := l.port.close()
	for _, t := range l.traps.all() {
		t.miss()
	}
	l.Cut(FIN)
	l.served.Wait()
	return l.failed("close", err)
}

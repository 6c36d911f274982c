package virtual

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
)

// The way through Toxiproxy, for an engine that was told to take it. The proxy's goroutines are of this process: while
// the stepper waits for an answer that comes through them it lets them have its thread, where otherwise it keeps it.

// hop is the address of the proxy before another address.
func (e *Engine) hop(route sim.Route, to string) (string, error) {
	if !route.Pooled() {
		host, port := e.server.HostPort()
		to = net.JoinHostPort(host, strconv.Itoa(port))
	}
	hop := e.hops[to]
	if hop == nil {
		var err error
		e.outside.do(func() { hop, err = netfault.New("replicas", to) })
		if err != nil {
			return "", fmt.Errorf("put Toxiproxy before the database: %w", err)
		}
		e.hops[to] = hop
	}
	return hop.Addr(), nil
}

// A hopWait is how the stepper waits for links that lead through this process. Go's poller wakes it; a goroutine outside the
// bubble does when the time is over, since timers of the bubble show virtual time.
type hopWait struct {
	mu    sync.Mutex
	link  *link         // what is waited for, nil: nothing
	until time.Duration // real time
	late  bool          // the wait has been ended

	done chan struct{}
}

func newHopWait() *hopWait {
	k := &hopWait{done: make(chan struct{})}
	go k.watch()
	return k
}

func (k *hopWait) close() { close(k.done) }

// watch ends waits, a glance too late at most.
func (k *hopWait) watch() {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-k.done:
			return
		case <-tick.C:
		}
		k.mu.Lock()
		if k.link != nil && !k.late && now() >= k.until {
			k.late = true
			_ = k.link.file.SetReadDeadline(time.Unix(1, 0)) // fails for a closed one, which nobody waits for
		}
		k.mu.Unlock()
	}
}

// adopt has l wait here from now on.
func (k *hopWait) adopt(l *link) error {
	if err := syscall.SetNonblock(l.fd, true); err != nil {
		return fmt.Errorf("wait for a connection through Toxiproxy: %w", err)
	}
	file := os.NewFile(uintptr(l.fd), "hop")
	raw, err := file.SyscallConn()
	if err != nil {
		l.fd = -1
		return errors.Join(fmt.Errorf("wait for a connection through Toxiproxy: %w", err), file.Close())
	}
	l.hop, l.file, l.raw = k, file, raw
	return nil
}

// wait is link.readable for a link that waits here. What came is in the link's buffer.
func (k *hopWait) wait(l *link, d time.Duration) bool {
	k.mu.Lock()
	k.link, k.until = l, now()+d
	k.mu.Unlock()
	err := l.raw.Read(func(uintptr) bool {
		l.found = l.fill()
		return l.found != waiting
	})
	k.mu.Lock()
	k.link = nil
	if k.late {
		k.late = false
		_ = l.file.SetReadDeadline(time.Time{}) // as above
	}
	k.mu.Unlock()
	return err == nil
}

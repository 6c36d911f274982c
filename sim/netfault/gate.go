package netfault

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A pipe is one direction of one connection. Toxiproxy moves the bytes: a reader takes them from the source's socket, a
// noop toxic hands them on, run (our gate) keeps them or lets them go, a writer puts them into the sink's socket.
type pipe struct {
	conn     *conn
	dir      int
	traffic  *traffic
	finished sync.WaitGroup // the gate and the writer

	// Guarded by link.mu.
	running bool   // the gate has been started and has not left
	obeying uint64 // the version of the settings it goes by

	// The source, as its reader found it.
	sourceEnded chan struct{} // closed at the end of the stream
	how         How           // how it ended; valid once sourceEnded is closed
	reset       atomic.Bool   // the other pipe's writer found the source reset

	// The sink.
	mu       sync.Mutex
	endSent  bool          // the gate has passed the end of the stream on
	sinkGone chan struct{} // closed when the sink's socket takes no more

	// The gate's own.
	deaf     bool
	queue    []item
	size     int64      // bytes in queue
	taken    int64      // bytes that have come in so far; taken-size is where the head of the queue stands in the stream
	whole    int64      // from here on bytes belong to a request that is not whole yet
	barriers []*barrier // what is in the way of bytes, in order
	ended    bool       // the end of the stream is in queue
	lossy    bool       // bytes were dropped
	mute     bool       // the sink is gone: bytes are thrown away

	// What was last passed on, for the rate.
	lastAt   time.Time
	lastSize int64
	lastRate int64
}

// An item is something that waits in a pipe for its turn.
type item struct {
	data []byte // nil: the end of the stream
	at   time.Time
}

func newPipe(c *conn, dir int) *pipe {
	return &pipe{
		conn: c, dir: dir, traffic: &c.link.traffic[dir],
		sourceEnded: make(chan struct{}), sinkGone: make(chan struct{}),
	}
}

func (p *pipe) other() *pipe { return p.conn.pipes[1-p.dir] }

// readFrom is the reader's.
func (p *pipe) readFrom(c *net.TCPConn, b []byte) (int, error) {
	n, err := c.Read(b)
	if err != nil {
		if !errors.Is(err, io.EOF) || p.reset.Load() {
			p.how = RST
		}
		close(p.sourceEnded)
		if errors.Is(err, io.EOF) {
			return n, io.EOF // unwrapped: io.Copy compares
		}
	}
	return n, err
}

// writeTo is the writer's.
func (p *pipe) writeTo(c *net.TCPConn, b []byte) (int, error) {
	n, err := c.Write(b)
	p.traffic.passed.Add(int64(n))
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		// The error of a reset is reported once, and here it was: the socket's reader will find a plain end of file.
		p.other().reset.Store(true)
	}
	return n, err
}

// delivered is called by the writer as its last act: all has been written, or the sink takes no more.
func (p *pipe) delivered() {
	p.mu.Lock()
	over := p.endSent
	close(p.sinkGone)
	p.mu.Unlock()
	if over {
		p.finish()
	}
	p.finished.Done()
}

// finish ends the conn: the end of the source's stream has arrived at the sink.
func (p *pipe) finish() {
	if p.dir == up {
		p.conn.end(p.how, FIN)
	} else {
		p.conn.end(FIN, p.how)
	}
}

// run is the gate. It reads as long as there is room, so that Toxiproxy's goroutines never wait for more than that, and
// whatever it waits for, it listens for new settings and the end of the conn as well.
func (p *pipe) run(s *toxics.ToxicStub) {
	defer p.leave(s)
	set := p.conn.link.obey(p)
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		todo := p.next(set)
		if todo.end {
			return
		}
		in, out, sinkGone := s.Input, s.Output, p.sinkGone
		if p.full(set, todo) {
			in = nil
		}
		if p.mute {
			sinkGone = nil
		}
		var head *stream.StreamChunk
		if todo.piece == nil {
			out = nil
		} else {
			head = &stream.StreamChunk{Data: todo.piece}
		}
		var ring <-chan time.Time
		if todo.wait > 0 {
			alarm.Reset(todo.wait)
			ring = alarm.C
		}
		select {
		case chunk := <-in:
			p.take(chunk)
		case out <- head:
			p.sent(len(todo.piece), set)
		case <-ring:
		case <-todo.opened:
		case <-set.changed:
			set = p.conn.link.obey(p)
		case <-sinkGone:
			p.mute = true
		case <-p.conn.over:
			return
		}
	}
}

// full reports whether the gate may take nothing at the moment.
func (p *pipe) full(set *settings, todo step) bool {
	return p.ended || (p.size >= set.limit && !todo.hungry)
}

// leave ends the stream towards the writer and waits for the reader.
func (p *pipe) leave(s *toxics.ToxicStub) {
	p.conn.link.left(p)
	p.clear()
	for _, b := range p.barriers {
		b.miss()
	}
	if p.ended { // else somebody ended the conn
		p.mu.Lock()
		p.endSent = true
		gone := isClosed(p.sinkGone)
		p.mu.Unlock()
		if gone {
			p.finish()
		}
	}
	s.Close()
	for range s.Input {
		// What comes before the reader has noticed is lost.
	}
	p.finished.Done()
}

// left says that p goes by no settings any more.
func (l *Link) left(p *pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.running = false
	l.obeys.Broadcast()
}

func (p *pipe) mode(set *settings) Mode {
	if p.deaf && p.dir == up {
		return Hold // and nothing comes down
	}
	return set.way[p.dir].mode
}

func (p *pipe) take(chunk *stream.StreamChunk) {
	if chunk == nil {
		p.ended = true
		p.queue = append(p.queue, item{at: time.Now()})
		p.whole = p.taken // what is not whole yet will never be
		if p.dir == down {
			p.conn.session.ended()
		}
		return
	}
	p.queue = append(p.queue, item{data: chunk.Data, at: chunk.Timestamp})
	n := int64(len(chunk.Data))
	p.size += n
	p.taken += n
	p.traffic.held.Add(n)
	var barriers []*barrier
	if p.dir == up {
		barriers, p.whole = p.conn.session.sent(chunk.Data)
	} else {
		barriers, p.whole = p.conn.session.received(chunk.Data), p.taken
	}
	for _, b := range barriers {
		b.at = max(b.at, p.taken-p.size) // of a request too large to be kept together the front has gone
		p.barriers = append(p.barriers, b)
	}
}

// A step is what a gate may do next.
type step struct {
	piece  []byte          // pass this on
	end    bool            // leave: the stream has ended
	wait   time.Duration   // nothing before this has passed; 0: before something happens
	opened <-chan struct{} // a trap has to be let go first
	hungry bool            // nothing can be passed on before more has come in, whatever the limit
}

// next is what the gate may do under the settings.
func (p *pipe) next(set *settings) step {
	way, mode := set.way[p.dir], p.mode(set)
	if mode == Drop || p.mute {
		p.drop()
	}
	if p.mute && p.ended {
		return step{end: true}
	}
	room, blocked := p.room(set)
	if mode != Pass {
		return blocked
	}
	if p.lossy {
		p.conn.end(FIN, FIN)
		return step{end: true}
	}
	if room == 0 || len(p.queue) == 0 {
		return blocked
	}
	head, now := p.queue[0], time.Now()
	if wait := head.at.Add(way.delay).Sub(now); way.delay > 0 && wait > 0 {
		return step{wait: wait}
	}
	if head.data == nil {
		return step{end: true}
	}
	if way.rate > 0 {
		took := time.Duration(p.lastSize) * time.Second / time.Duration(max(way.rate, p.lastRate)) // a change does not charge more
		if wait := p.lastAt.Add(took).Sub(now); wait > 0 {
			return step{wait: wait}
		}
		room = min(room, max(1, way.rate/50))
	}
	return step{piece: head.data[:min(int64(len(head.data)), room)]}
}

// room is how many bytes may be passed on before a barrier, or a request that is not whole, is in the way. Where that
// is none, blocked says what to wait for. The end of the stream needs room too.
func (p *pipe) room(set *settings) (room int64, blocked step) {
	here := p.taken - p.size
	for len(p.barriers) > 0 {
		b := p.barriers[0]
		if here < b.at {
			return b.at - here, step{}
		}
		if here > b.at { // it was dropped
			b.miss()
		}
		opened := b.reached()
		if opened != nil {
			return 0, step{opened: opened, hungry: !b.ready}
		}
		p.barriers = p.barriers[1:]
	}
	if open := p.taken - p.whole; set.armed && open > 0 && open < set.limit { // larger ones go through in pieces
		return max(0, p.whole-here), step{}
	}
	return p.size + 1, step{}
}

// sent takes what has just been passed on out of the queue.
func (p *pipe) sent(n int, set *settings) {
	if rate := set.way[p.dir].rate; rate > 0 {
		p.lastAt, p.lastSize, p.lastRate = time.Now(), int64(n), rate
	}
	p.size -= int64(n)
	p.traffic.held.Add(-int64(n))
	if p.queue[0].data = p.queue[0].data[n:]; len(p.queue[0].data) == 0 {
		p.queue[0] = item{} // lets go of the bytes
		p.queue = p.queue[1:]
	}
}

// drop throws away what waits, but for the end of the stream.
func (p *pipe) drop() {
	if p.size == 0 {
		return
	}
	p.traffic.dropped.Add(p.size)
	p.lossy = p.lossy || !p.mute
	p.clear()
}

func (p *pipe) clear() {
	p.traffic.held.Add(-p.size)
	p.size = 0
	var end []item
	if p.ended {
		end = p.queue[len(p.queue)-1:]
	}
	p.queue = end
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

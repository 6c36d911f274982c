package netfault

import "time"

// A Direction says which way bytes flow. Up and Down can be combined.
type Direction uint8

// The directions.
const (
	Up   Direction = 1 << iota // from the client to the server
	Down                       // from the server to the client
	Both = Up | Down
)

// A Mode says what happens to the bytes of one direction.
type Mode uint8

// The modes.
const (
	// Pass lets bytes through, after the delay and at the rate of the direction.
	Pass Mode = iota
	// Hold keeps bytes, and the end of the stream, until the mode is Pass again. Nothing is lost.
	Hold
	// Drop throws bytes away and keeps the end of the stream. A connection that has lost bytes is closed when the mode is
	// Pass again: a stream with a hole in it is of no use to anybody.
	Drop
)

// A How says how a connection ends.
type How uint8

// The endings.
const (
	FIN How = iota // in order: the peer reads end-of-file
	RST            // the peer's reads and writes fail with ECONNRESET
)

// up and down are the indexes of the directions.
const (
	up = iota
	down
)

// settings are what the gates of a link go by. A value is never changed: a change makes a new one and closes changed.
type settings struct {
	version uint64
	way     [2]way
	limit   int64 // bytes one direction of one connection may keep
	armed   bool  // a trap is set: requests go through whole
	changed chan struct{}
}

// way is what holds for one direction.
type way struct {
	mode  Mode
	delay time.Duration
	rate  int64 // bytes a second; 0: as fast as it goes
}

func (s *settings) each(dir Direction, change func(*way)) {
	if dir&Up != 0 {
		change(&s.way[up])
	}
	if dir&Down != 0 {
		change(&s.way[down])
	}
}

// change makes new settings and returns when every open connection goes by them: no byte passes a gate on the strength
// of the old ones afterwards. A gate never waits for anything without listening for changes, so this takes microseconds.
func (l *Link) change(f func(*settings)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changeLocked(f)
}

func (l *Link) changeLocked(f func(*settings)) {
	next := *l.settings
	f(&next)
	next.version++
	next.changed = make(chan struct{})
	close(l.settings.changed)
	l.settings = &next
	for !l.obeyed(next.version) {
		l.obeys.Wait()
	}
}

func (l *Link) obeyed(version uint64) bool {
	for c := range l.conns {
		for _, p := range c.pipes {
			if p.running && p.obeying < version {
				return false
			}
		}
	}
	return true
}

// obey returns the settings in force and tells waiting changes that p goes by them from now on.
func (l *Link) obey(p *pipe) *settings {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.obeying = l.settings.version
	p.deaf = p.conn.deaf
	l.obeys.Broadcast()
	return l.settings
}

func (l *Link) current() *settings {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settings
}

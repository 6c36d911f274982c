package netfault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A When says on which side of a statement's execution a trap holds it.
type When uint8

// The sides.
const (
	// Before holds the request: nothing of it has reached the server, and nothing the client sends after it does.
	Before When = iota
	// After holds the answer: the server has executed the request and said that it is ready for the next one; the client
	// has heard nothing of it.
	After
)

// ErrMissed says that a trap will not spring any more: it was released or the link closed before its statement came, or
// the connection with its statement ended before the trap could hold it.
var ErrMissed = errors.New("the trap was missed")

// A Trap waits for a statement and holds the connection there until it is released or cut. Traps on other statements,
// other connections and the link's modes are not affected.
//
// A request is what one ReadyForQuery answers: a simple query, however many statements are in it, or the messages of the
// extended protocol up to a Sync. It matches when SQL that it executes contains the pattern without regard to case;
// merely preparing a statement is no match, and executing one that was prepared earlier is. It counts once.
type Trap struct {
	link    *Link
	when    When
	pattern string
	nth     int

	done   chan struct{} // closed when it has sprung or will not
	opened chan struct{} // closed when it holds nothing any more

	// Guarded by link.traps.mu.
	matches int
	caught  *conn
	sql     string
	session string
	sprung  bool
}

// Trap sets a trap for the nth request (from 1) from now on, on any connection, that matches the pattern. A link can have
// several; a request that several match is held until all are released. Connections that are encrypted, or are not
// Postgres, have no requests: see Unreadable. Of each statement the first 64 KiB are searched.
//
// While a trap is set, requests reach the server whole or not at all, up to the size of Limit.
func (l *Link) Trap(when When, pattern string, nth int) *Trap {
	t := &Trap{
		link: l, when: when, pattern: strings.ToLower(pattern), nth: max(1, nth),
		done: make(chan struct{}), opened: make(chan struct{}),
	}
	l.change(func(s *settings) {
		if l.closed {
			t.miss()
			return
		}
		l.traps.add(t)
		s.armed = true
	})
	return t
}

// Done is closed when the trap has sprung or can not any more.
func (t *Trap) Done() <-chan struct{} { return t.done }

// Wait waits for Done. It returns nil when the trap has sprung, ErrMissed when it can not any more, or why ctx ended.
func (t *Trap) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		if !t.Sprung() {
			return fmt.Errorf("wait for %q: %w", t.pattern, ErrMissed)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %q: %w", t.pattern, ctx.Err())
	}
}

// Sprung reports whether the trap has held its statement; it stays true.
func (t *Trap) Sprung() bool {
	t.link.traps.mu.Lock()
	defer t.link.traps.mu.Unlock()
	return t.sprung
}

// Caught is the SQL of the request that was caught, and the application_name its session began with; both empty before.
func (t *Trap) Caught() (sql, session string) {
	t.link.traps.mu.Lock()
	defer t.link.traps.mu.Unlock()
	return t.sql, t.session
}

// Release lets go what the trap holds, or takes it away when it holds nothing yet. It may be called more than once.
func (t *Trap) Release() {
	t.miss()
	t.link.change(func(s *settings) { s.armed = t.link.traps.armed() })
}

// Cut closes the connection that the trap holds, on both sides, and reports whether it was still open. With After the
// statement has been executed and its answer is lost; with Before the server has never heard of it.
func (t *Trap) Cut(how How) bool {
	defer t.Release()
	t.link.traps.mu.Lock()
	c, holds := t.caught, t.sprung && !isClosed(t.opened)
	t.link.traps.mu.Unlock()
	if !holds {
		return false
	}
	first := c.end(how, how)
	<-c.done
	return first
}

// spring says that the trap holds its statement.
func (t *Trap) spring() {
	t.link.traps.mu.Lock()
	defer t.link.traps.mu.Unlock()
	if !isClosed(t.done) {
		t.sprung = true
		close(t.done)
	}
}

// miss ends the trap, sprung or not.
func (t *Trap) miss() {
	t.link.traps.mu.Lock()
	defer t.link.traps.mu.Unlock()
	delete(t.link.traps.set, t)
	if !isClosed(t.done) {
		close(t.done)
	}
	if !isClosed(t.opened) {
		close(t.opened)
	}
}

// traps are the traps of a link that have not caught their statement yet.
type traps struct {
	mu  sync.Mutex
	set map[*Trap]struct{}
}

func (s *traps) add(t *Trap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[*Trap]struct{}{}
	}
	s.set[t] = struct{}{}
}

func (s *traps) armed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.set) > 0
}

func (s *traps) all() (all []*Trap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.set {
		all = append(all, t)
	}
	return all
}

// match counts a request that executes sql and returns the traps that catch it.
func (s *traps) match(c *conn, session string, sql []string) (before, after []*Trap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.set {
		if !slices.ContainsFunc(sql, func(q string) bool { return strings.Contains(strings.ToLower(q), t.pattern) }) {
			continue
		}
		if t.matches++; t.matches < t.nth {
			continue
		}
		delete(s.set, t)
		t.caught, t.session, t.sql = c, session, strings.Join(sql, "; ")
		if t.when == Before {
			before = append(before, t)
		} else {
			after = append(after, t)
		}
	}
	return before, after
}

// A barrier is a place in a stream that no byte passes before all its traps are let go.
type barrier struct {
	at    int64
	traps []*Trap
	ready bool // all there is to hold has come
}

// reached is called when all bytes before the barrier have been passed on. It springs the traps when what they hold is
// there, and returns what to wait for, nil when nothing is in the way.
func (b *barrier) reached() <-chan struct{} {
	for _, t := range b.traps {
		if b.ready {
			t.spring()
		}
	}
	for _, t := range b.traps {
		if !isClosed(t.opened) {
			return t.opened
		}
	}
	return nil
}

func (b *barrier) miss() {
	for _, t := range b.traps {
		t.miss()
	}
}

package session

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// An Echo repeats the probe's notification while a session leads: a pooler that is reconfigured from session to
// transaction mode leaves pid and lock as they are for as long as nobody else uses the pool, and only this shows it.
//
// Its second connection stays open between two rounds. It sends in a goroutine of its own, because the owner of the
// session must go on reading.
type Echo struct {
	open func(context.Context) (*Session, error)
	wake func()

	s *Session // of the goroutine that sends, while there is one

	mu      sync.Mutex
	round   int
	done    chan struct{} // of the last round: closed when it is decided
	cancel  context.CancelFunc
	outcome string
}

// Outcomes of a round.
const (
	Unsent = ""     // not yet, or not at all: says nothing about the session
	Sent   = "sent" // the server has it: the session must hear of it
	Echoed = "same" // heard on the second connection itself: it runs on the session's backend
)

// NewEcho makes an Echo. open opens the second connection; wake is called, by another goroutine, when a round is decided.
func NewEcho(open func(context.Context) (*Session, error), wake func()) *Echo {
	return &Echo{open: open, wake: wake}
}

// Start begins a round on channel, to be sent within limit, and returns the payload to wait for. ok is false while the
// last round is still being sent.
func (e *Echo) Start(channel string, limit time.Duration) (payload string, ok bool) {
	if _, decided := e.Outcome(); !decided {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	done := make(chan struct{})
	e.mu.Lock()
	e.round++
	payload = strconv.Itoa(e.round)
	e.done, e.cancel, e.outcome = done, cancel, Unsent
	e.mu.Unlock()
	go func() {
		defer cancel()
		outcome := e.send(ctx, channel, payload)
		e.mu.Lock()
		e.outcome = outcome
		close(done)
		e.mu.Unlock()
		e.wake()
	}()
	return payload, true
}

// send tries a kept connection first, which may have died while it was idle, and then a new one.
func (e *Echo) send(ctx context.Context, channel, payload string) string {
	for {
		kept := e.s != nil
		if !kept {
			s, err := e.open(ctx)
			if err != nil {
				return Unsent
			}
			e.s = s
		}
		stop := context.AfterFunc(ctx, e.s.Kill)
		err := e.s.Notify(channel, payload)
		if stop() && err == nil {
			if e.s.heard(channel) {
				return Echoed
			}
			return Sent
		}
		e.s.Discard("lost")
		e.s = nil
		if !kept || ctx.Err() != nil {
			return Unsent
		}
	}
}

// Outcome is how far the last round has come; decided is false while it is being sent.
func (e *Echo) Outcome() (outcome string, decided bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		return Unsent, true
	}
	select {
	case <-e.done:
		return e.outcome, true
	default:
		return Unsent, false
	}
}

// Close ends a round that is being sent, and the second connection.
func (e *Echo) Close() {
	e.mu.Lock()
	done, cancel := e.done, e.cancel
	e.mu.Unlock()
	if done != nil {
		cancel()
		<-done
	}
	if e.s != nil {
		e.s.Close("done")
		e.s = nil
	}
}

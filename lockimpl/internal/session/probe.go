package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// What the probe finds.
const (
	Stable       = "stable"
	Unstable     = "unstable"
	Inconclusive = "inconclusive"
)

// Reasons of the probe, and of the echo that repeats it.
const (
	ReasonNoSecond    = "the second connection could not be opened"
	ReasonNoListen    = "the session could not listen"
	ReasonNoNotify    = "the notification could not be sent"
	ReasonSameBackend = "the second connection runs on the same backend"
	ReasonNotHeard    = "the notification did not reach the idle session"
	ReasonLost        = "the connection broke while it waited"
	ReasonStopped     = "stopped"
)

// Probe finds out whether the backend that runs the session's statements stays attached to its idle connection. The
// session listens on channel and is then silent; second opens another connection to the same database, which notifies
// the channel. A pooler that takes the backend away when a transaction ends has nowhere to deliver the notification: it
// cannot arrive, whatever the pool's load and size. That it arrives within wait is Stable. That the other connection hears it, or nobody
// does, is Unstable. Everything else is Inconclusive: the pool is full, the server does not answer.
//
// It proves stability now, not for ever. The session keeps listening; see Echo.
//
// While it waits nothing may be sent on the session: a statement would attach a backend, and the notification would
// slip through with its answer.
func Probe(ctx context.Context, s *Session, second func(context.Context) (*Session, error), channel string, wait time.Duration) (answer, reason string, err error) {
	b, err := second(ctx)
	if err != nil {
		return Inconclusive, ReasonNoSecond, fmt.Errorf("probe: second connection: %w", err)
	}
	defer b.Close("probed")
	err = s.Do("probe: listen", func(ctx context.Context) error {
		// One message, one transaction, one backend: the pid is that of the backend which listens.
		text, err := s.simple(ctx, "listen "+channel+"; select pg_backend_pid()")
		if err != nil {
			return err
		}
		pid, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("backend pid: %w", err)
		}
		s.PID, s.Channel = int32(pid), channel
		return nil
	})
	if err != nil {
		return Inconclusive, ReasonNoListen, err
	}
	if err := b.Notify(channel, ""); err != nil {
		return Inconclusive, ReasonNoNotify, err
	}
	if b.heard(channel) { // it never listened
		unlisten(s, channel)
		unlisten(b, channel)
		return Unstable, ReasonSameBackend, nil
	}
	heard, err := s.listen(ctx, channel, "", wait)
	switch {
	case err != nil && ctx.Err() != nil:
		return Inconclusive, ReasonStopped, err
	case err != nil:
		return Inconclusive, ReasonLost, err
	case !heard:
		unlisten(s, channel)
		return Unstable, ReasonNotHeard, nil
	}
	return Stable, "", nil
}

// listen waits until channel is notified with payload, for at most wait, and reports whether it was.
func (s *Session) listen(ctx context.Context, channel, payload string, wait time.Duration) (bool, error) {
	w, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		n, err := s.Wait(w)
		switch {
		case errors.Is(err, ErrInterrupted) && ctx.Err() == nil:
			return false, nil
		case err != nil:
			return false, err
		case n.Channel == channel && n.Payload == payload:
			return true, nil
		}
	}
}

// unlisten takes the probe's trace off the pooled server connection, as far as it can: behind a pooler it may reach
// another one, where it does no harm.
func unlisten(s *Session, channel string) {
	_ = s.Do("unlisten", func(ctx context.Context) error {
		_, err := s.simple(ctx, "unlisten "+channel)
		return err
	})
}

// Notify notifies channel. Both are made up here, of letters and digits, and need no quoting: one message, where parameters
// would cost a new connection another round trip.
func (s *Session) Notify(channel, payload string) error {
	return s.Do("notify", func(ctx context.Context) error {
		_, err := s.simple(ctx, fmt.Sprintf("select pg_notify('%s', '%s')", channel, payload))
		return err
	})
}

package lockimpl

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

// A leading is one term of this process, from the bump to the end of its session. The goroutine of Lease.Run owns
// the session and goes through it in a straight line; the others leave word with ask, or are told by the term's context.
type leading struct {
	l    *Lease
	c    Config
	s    *session.Session
	term *Term
	echo *session.Echo
	done chan struct{} // closed when the work has returned
	idle chan struct{} // closed when that has been reported

	// Of the owner, or of the heartbeat's timer while the owner waits for it.
	stopped, overran bool

	mu     sync.Mutex         // never held while anything is waited for
	asked  string             // why the term shall end; the first reason counts
	askedC chan struct{}      // closed with it
	woken  bool               // somebody has news for the reader
	poke   context.CancelFunc // interrupts the pending read; nil: there is none
}

func newLeading(l *Lease, s *session.Session, id session.ID, start time.Time) *leading {
	w := &leading{l: l, c: l.cfg, s: s, done: make(chan struct{}), idle: make(chan struct{}), askedC: make(chan struct{})}
	w.term = &Term{id: id, session: s.Name, since: start, now: w.c.Now, steps: w.c.Steps.Tx}
	w.term.over = func() { w.ask(ReasonFenced) }
	w.term.trust(w.c.Steps.Trust(start, w.c.Beat, w.c.BeatDeadline))
	w.echo = session.NewEcho(func(ctx context.Context) (*session.Session, error) { return l.connect(ctx, UseProbe) }, w.wake)
	return w
}

// run leads until the term is over, and returns why it is.
func (w *leading) run(ctx context.Context, work func(context.Context, *Term) error) string {
	t := w.term
	// Not a child of ctx: when that ends, the end of the term must be told before the work is stopped.
	t.ctx, t.end = context.WithCancelCause(context.WithoutCancel(ctx))
	w.l.mu.Lock()
	w.l.lead = w
	w.l.mu.Unlock()
	w.observe(Event{Kind: EventLead, Trusted: t.TrustedUntil()})
	w.c.Log.Info("leading", "role", w.c.Role.Name, "term", t.Number())
	go func() {
		err := work(t.ctx, t)
		if err != nil && !errors.Is(err, ErrTermOver) && t.ctx.Err() == nil {
			w.c.Log.Error("the work returned", "role", w.c.Role.Name, "term", t.Number(), "error", err)
		}
		close(w.done)
		w.ask(ReasonReturned)
	}()
	unhook := context.AfterFunc(ctx, func() { w.ask(ReasonStopped) })

	reason := w.watch()

	unhook()
	w.l.mu.Lock()
	w.l.lead = nil
	w.l.mu.Unlock()
	switch reason {
	case ReasonStopped, ReasonStepDown, ReasonReturned:
		w.c.Steps.StepDown(func() { w.stop(reason) }, w.unlock)
	default:
		w.stop(reason)
		w.c.Steps.Discard(w.s, reason)
	}
	w.echo.Close()
	w.c.Log.Info("not leading any more", "role", w.c.Role.Name, "term", t.Number(), "reason", reason)
	w.linger()
	return reason
}

// ask leaves word that the term shall end.
func (w *leading) ask(reason string) {
	if !w.c.Steps.Heed(reason) {
		return
	}
	w.mu.Lock()
	if w.asked == "" {
		w.asked = reason
		close(w.askedC)
	}
	w.mu.Unlock()
	w.wake()
}

// wake interrupts the pending read, or the next one.
func (w *leading) wake() {
	w.mu.Lock()
	w.woken = true
	poke := w.poke
	w.mu.Unlock()
	if poke != nil {
		poke()
	}
}

// watch reads on the idle session, so that its end is noticed at once, and sends a heartbeat each interval, until it
// knows why the term is over.
func (w *leading) watch() (reason string) {
	if w.c.Steps.Blind {
		<-w.askedC
		return w.asked
	}
	for next := w.term.since.Add(w.c.Beat); ; next = next.Add(w.c.Beat) {
		if reason := w.readUntil(next); reason != "" {
			return reason
		}
		next = w.c.Now()
		if reason := w.beat(next); reason != "" {
			return reason
		}
	}
}

// readUntil reads until the given instant. Its answer is why the term is over, or "" when it is time.
func (w *leading) readUntil(until time.Time) (reason string) {
	for {
		n, reason := w.read(until)
		if reason != "" || n == nil && !w.c.Now().Before(until) {
			return reason
		}
	}
}

// A heard is a notification that arrived.
type heard struct{ channel, payload string }

// read is the pending read: it returns at the given instant at the latest, and also when something arrives or somebody wakes it.
func (w *leading) read(until time.Time) (*heard, string) {
	ctx, cancel := context.WithTimeout(context.Background(), until.Sub(w.c.Now()))
	defer cancel()
	w.mu.Lock()
	asked, woken := w.asked, w.woken
	w.poke, w.woken = cancel, false
	w.mu.Unlock()
	if asked != "" || woken {
		return nil, asked
	}
	n, err := w.s.Wait(ctx)
	w.mu.Lock()
	w.poke, w.woken = nil, false
	asked = w.asked
	w.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, session.ErrInterrupted):
		w.c.Log.Warn("the lease connection broke", "role", w.c.Role.Name, "error", err)
		return nil, ReasonConnection
	case asked != "":
		return nil, asked
	case err != nil:
		return nil, ""
	}
	return &heard{n.Channel, n.Payload}, ""
}

// beat is one heartbeat: the server's word that session, lock and term are the same, and then the probe's notification again. It
// returns why the term is over, or "". A request to stop waits for the answer: an unlock needs a session in order.
func (w *leading) beat(start time.Time) (reason string) {
	lost := func(reason string, err error) string {
		w.observe(Event{Kind: EventBeat, Answer: BeatLost, Reason: reason, Err: err})
		return reason
	}
	deadline := w.c.Steps.Deadline(w.c.BeatDeadline)
	expired := make(chan struct{})
	var timer *time.Timer
	if deadline > 0 {
		timer = time.AfterFunc(deadline, func() {
			// The owner of the session is stuck in the statement. First the work stops, then the socket is closed: the other way
			// round the lock might be free, and another leader at work, while this one's work goes on.
			lost(ReasonDeadline, nil)
			w.stop(ReasonDeadline)
			w.s.Kill()
			close(expired)
		})
	}
	reason, err := w.c.Steps.Beat(context.Background(), w.s, w.term.id)
	if timer != nil && !timer.Stop() {
		<-expired
		return ReasonDeadline
	}
	if reason != "" {
		return lost(reason, err)
	}
	if reason := w.repeat(start); reason != "" {
		if reason == ReasonNotHeard || reason == ReasonOneBackend {
			return lost(reason, nil)
		}
		return reason
	}
	w.term.trust(w.c.Steps.Trust(start, w.c.Beat, w.c.BeatDeadline))
	w.observe(Event{Kind: EventBeat, Answer: BeatOK, Trusted: w.term.TrustedUntil()})
	return ""
}

// repeat has the session notified by another connection, and waits, silent, until the notification arrives. Sent and
// not received: the path is no session any more. Not sent, or only in the last moment: that says nothing.
func (w *leading) repeat(start time.Time) (reason string) {
	if !w.c.Steps.Echo || w.s.Channel == "" {
		return ""
	}
	until := start.Add(w.c.BeatDeadline)
	// The sender gives up first: what it sends in the last moment says nothing, and of two deadlines at one instant either may come first.
	left := until.Sub(w.c.Now()) - w.c.BeatDeadline/8
	if left <= 0 {
		return ""
	}
	payload, ok := w.echo.Start(w.s.Channel, left)
	if !ok {
		return ""
	}
	var sent time.Time
	for {
		n, reason := w.read(until)
		if reason != "" {
			return reason
		}
		if n != nil && n.channel == w.s.Channel && n.payload == payload {
			return ""
		}
		outcome, decided := w.echo.Outcome()
		now := w.c.Now()
		switch {
		case outcome == session.Echoed:
			return ReasonOneBackend
		case decided && outcome == session.Unsent:
			return ""
		case outcome == session.Sent && sent.IsZero():
			sent = now
		}
		if !now.Before(until) {
			if !sent.IsZero() && until.Sub(sent) >= w.c.BeatDeadline/2 {
				return ReasonNotHeard
			}
			return ""
		}
	}
}

// stop ends the term and waits for the work to return, for the grace at most.
func (w *leading) stop(reason string) {
	if w.stopped {
		return
	}
	w.stopped = true
	w.observe(Event{Kind: EventEnd, Reason: reason})
	w.term.end(errors.New(reason))
	grace := time.NewTimer(w.c.StopGrace)
	defer grace.Stop()
	select {
	case <-w.done:
		w.reportIdle()
	case <-grace.C:
		w.overran = true
		go func() { // whatever the owner is at by then
			<-w.done
			w.reportIdle()
		}()
		w.c.Log.Error("the work goes on after its term and its grace", "role", w.c.Role.Name, "term", w.term.Number(), "grace", w.c.StopGrace)
	}
}

// linger waits for work that outlived its grace: this process must not run it twice.
func (w *leading) linger() { <-w.idle }

func (w *leading) reportIdle() {
	w.observe(Event{Kind: EventIdle})
	close(w.idle)
}

// unlock gives the lock back, and closes the session: only a checked unlock may take its time about it. There is none while work of the
// term goes on after its grace: then the session is closed, as at the end of any other term.
func (w *leading) unlock() {
	if w.overran {
		w.c.Steps.Discard(w.s, "its work goes on")
		return
	}
	w.observe(Event{Kind: EventUnlock, Op: OpBegin})
	answer, err := w.c.Steps.Unlock(w.s, w.c.Role.Key)
	w.observe(Event{Kind: EventUnlock, Op: OpEnd, Answer: answer, Err: err})
	if answer != Unlocked || err != nil {
		w.c.Log.Warn("unlock failed: closing the session", "role", w.c.Role.Name, "answer", answer, "error", err)
		w.c.Steps.Discard(w.s, "unlock: "+answer)
		return
	}
	w.s.Close("unlocked")
}

func (w *leading) observe(e Event) {
	e.Term, e.Session, e.Key = w.term, w.term.session, w.term.id.Key
	w.c.Observe(e)
}

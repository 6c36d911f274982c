package lockimpl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

// A Lease competes for a role, and leads when it wins. Make one with New.
type Lease struct {
	cfg  Config
	open []*session.Session // lease sessions that are not closed; of the goroutine of Run

	mu   sync.Mutex
	lead *leading // nil: standing by
}

// New checks cfg and makes a Lease.
func New(cfg Config) (*Lease, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Lease{cfg: cfg}, nil
}

// StepDown asks a leader to give up its leadership and stand by. It sits out one retry interval, so that another process has its
// chance. It does nothing to a standby, and does not wait.
func (l *Lease) StepDown() {
	l.mu.Lock()
	lead := l.lead
	l.mu.Unlock()
	if lead != nil {
		lead.ask(ReasonStepDown)
	}
}

// Term is the present term, or nil for a standby.
func (l *Lease) Term() *Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lead == nil {
		return nil
	}
	return l.lead.term
}

// Run competes for the role until ctx ends, then gives up what it has and returns nil. Each time it wins, it runs
// work in a goroutine of its own. The context that work gets ends with the term: work must return then, and the next
// term does not begin before it has. When work returns by itself, the leadership is given up.
//
// Run is called once.
func (l *Lease) Run(ctx context.Context, work func(ctx context.Context, t *Term) error) error {
	defer func() {
		for _, s := range slices.Clone(l.open) {
			s.Discard(ReasonStopped)
		}
	}()
	var s *session.Session
	for next := l.cfg.Now(); l.standBy(ctx, &s, next); {
		next = l.compete(ctx, &s, work)
	}
	if s != nil {
		s.Close(ReasonStopped)
	}
	return nil
}

// standBy waits for the next attempt, reading on the session meanwhile, if there is one. It reports false when ctx has ended.
func (l *Lease) standBy(ctx context.Context, s **session.Session, next time.Time) bool {
	for {
		d := next.Sub(l.cfg.Now())
		if ctx.Err() != nil || d <= 0 {
			return ctx.Err() == nil
		}
		w, cancel := context.WithTimeout(ctx, d)
		if *s == nil {
			<-w.Done()
		} else if _, err := (*s).Wait(w); err != nil && !errors.Is(err, session.ErrInterrupted) {
			l.cfg.Log.Warn("standby: the lease connection broke", "role", l.cfg.Role.Name, "error", err)
			(*s).Discard(ReasonConnection)
			*s = nil
		}
		cancel()
	}
}

// compete makes one attempt, and leads if it is won. It returns when the next one is due. The session is kept for the next attempt
// only after the answer busy; everything else leaves behind a session that may hold the lock.
func (l *Lease) compete(ctx context.Context, s **session.Session, work func(context.Context, *Term) error) (next time.Time) {
	c := l.cfg
	start := c.Now()
	later := func() time.Time { return c.Steps.Retry(start, c.Now(), c.Retry, c.Jitter, c.unit()) }
	if *s == nil {
		opened, err := l.session(ctx)
		if err != nil {
			return later()
		}
		*s = opened
		start = c.Now() // what is retried is the attempt
	}
	c.Observe(Event{Kind: EventAttempt, Op: OpBegin, Key: c.Role.Key, Session: (*s).Name})
	answer, err := c.Steps.Acquire(*s, c.Role.Key)
	c.Observe(Event{Kind: EventAttempt, Op: OpEnd, Key: c.Role.Key, Session: (*s).Name, Answer: answer, Err: err})
	lease := *s
	if !c.Steps.Won(answer, err) {
		if answer != Busy || err != nil {
			c.Log.Warn("attempt failed", "role", c.Role.Name, "answer", answer, "error", err)
			c.Steps.Discard(lease, "attempt: "+answer)
			*s = nil
		}
		return later()
	}
	*s = nil
	if ctx.Err() != nil {
		c.Steps.Discard(lease, ReasonStopped)
		return start
	}
	lead, err := l.begin(lease)
	if err != nil {
		c.Log.Warn("lock taken, but no term begun", "role", c.Role.Name, "error", err)
		c.Steps.Discard(lease, "no term begun")
		return later()
	}
	reason := lead.run(ctx, work)
	if reason == ReasonStepDown || reason == ReasonReturned {
		return c.Now().Add(c.Retry)
	}
	return later()
}

// session opens a lease session, has it probed, and gives it its limits.
func (l *Lease) session(ctx context.Context) (*session.Session, error) {
	c := l.cfg
	s, err := l.connect(ctx, UseLease)
	if err != nil {
		c.Log.Warn("no lease connection", "role", c.Role.Name, "error", err)
		return nil, err
	}
	if c.Steps.Probe != nil {
		answer, err := l.probe(ctx, s)
		if answer != Stable {
			s.Discard("probe: " + answer)
			if err == nil {
				err = fmt.Errorf("probe: %s", answer)
			}
			return nil, err
		}
	}
	if err := s.Configure(c.StatementTimeout, c.TTL); err != nil {
		c.Log.Warn("no lease session", "role", c.Role.Name, "error", err)
		s.Discard("session settings")
		return nil, err
	}
	return s, nil
}

// probe has s probed, and says loudly if it is refused.
func (l *Lease) probe(ctx context.Context, s *session.Session) (string, error) {
	c := l.cfg
	channel := fmt.Sprintf("lease_%016x%08x", c.uint64(), uint32(c.uint64()))
	c.Observe(Event{Kind: EventProbe, Op: OpBegin, Session: s.Name})
	second := func(ctx context.Context) (*session.Session, error) { return l.connect(ctx, UseProbe) }
	answer, reason, err := c.Steps.Probe(ctx, s, second, channel, c.ProbeWait)
	c.Observe(Event{Kind: EventProbe, Op: OpEnd, Session: s.Name, Answer: answer, Reason: reason, Err: err})
	switch cfg := s.Conn().Config(); answer {
	case Stable:
	case Unstable:
		c.Log.Error("refusing to lead: the connection is no stable session, there is a transaction pooler in between",
			"role", c.Role.Name, "host", cfg.Host, "port", cfg.Port, "database", cfg.Database, "reason", reason)
	default:
		c.Log.Warn("not leading yet: it is not known whether the connection is a stable session",
			"role", c.Role.Name, "host", cfg.Host, "port", cfg.Port, "database", cfg.Database, "reason", reason, "error", err)
	}
	return answer, err
}

// connect opens a session within the deadline of a statement.
func (l *Lease) connect(ctx context.Context, use Use) (*session.Session, error) {
	c := l.cfg
	connect, cancel := context.WithTimeout(ctx, c.BeatDeadline)
	defer cancel()
	s, err := session.Open(connect, func(ctx context.Context) (*pgx.Conn, error) { return c.Connect(ctx, use) }, c.BeatDeadline)
	if err != nil {
		return nil, fmt.Errorf("%s connection: %w", use, err)
	}
	c.Observe(Event{Kind: EventSession, Op: OpOpen, Use: use, Session: s.Name})
	if use == UseLease {
		l.open = append(l.open, s)
	}
	s.Closed = func(reason string) {
		if use == UseLease {
			l.open = slices.DeleteFunc(l.open, func(o *session.Session) bool { return o == s })
		}
		c.Observe(Event{Kind: EventSession, Op: OpClose, Use: use, Session: s.Name, Reason: reason})
	}
	return s, nil
}

// begin begins a term on a session that holds the lock.
func (l *Lease) begin(s *session.Session) (*leading, error) {
	c := l.cfg
	start := c.Now()
	id := session.ID{Key: c.Role.Key}
	if c.Steps.Bump != nil {
		id.Token = int64(c.uint64() >> 1)
		var err error
		if id.Term, err = c.Steps.Bump(s, id.Key, id.Token, c.Holder); err != nil {
			return nil, err
		}
	}
	return newLeading(l, s, id, start), nil
}

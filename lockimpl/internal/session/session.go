package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrDeadline is in the chain of an error of a statement that had no answer in time.
var ErrDeadline = errors.New("no answer in time")

// ErrInterrupted is what Wait returns when its context ended. The session is as good as before.
var ErrInterrupted = errors.New("interrupted")

// A Connector opens a connection. It gives up when its context ends.
type Connector func(ctx context.Context) (*pgx.Conn, error)

// A Session is one connection to the database and what is known of it.
type Session struct {
	// Name is the application_name, by which a person finds the session in pg_stat_activity.
	Name string
	// PID is the backend that answered the probe, 0 before. It is the server's word, not that of the connection's
	// start, which a pooler makes up.
	PID int32
	// Channel is what the session listens on, "" for nothing.
	Channel string
	// Deadline bounds each statement that is sent by Do; 0 is no bound.
	Deadline time.Duration
	// Closed, when set, is told once, by the owner, why the session was closed.
	Closed func(reason string)

	conn *pgx.Conn
	raw  net.Conn
	mode pgx.QueryExecMode
	late atomic.Bool // Kill was called by a deadline
}

// Open opens a session.
func Open(ctx context.Context, connect Connector, deadline time.Duration) (*Session, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	s := &Session{conn: conn, raw: conn.PgConn().Conn(), Deadline: deadline, Name: conn.Config().RuntimeParams["application_name"]}
	// Nothing is prepared on a lease: a pooler may have a server connection at hand on which somebody has left a statement of that name.
	if s.mode = conn.Config().DefaultQueryExecMode; s.mode != pgx.QueryExecModeSimpleProtocol {
		s.mode = pgx.QueryExecModeExec
	}
	if t, ok := s.raw.(*tls.Conn); ok {
		s.raw = t.NetConn() // closing TLS first says goodbye, and may wait for a peer that is gone
	}
	return s, nil
}

// Conn is the connection.
func (s *Session) Conn() *pgx.Conn { return s.conn }

// Row sends a statement with parameters, unprepared, and returns its only row.
func (s *Session) Row(ctx context.Context, text string, args ...any) pgx.Row {
	return s.conn.QueryRow(ctx, text, append([]any{s.mode}, args...)...)
}

// Kill closes the socket at once, whatever the owner is doing. The server ends the session as soon as it learns of it.
func (s *Session) Kill() { _ = s.raw.Close() }

// Discard ends the session without a word to the server. For the owner.
func (s *Session) Discard(reason string) {
	s.Kill()
	// The socket is closed: this only marks the connection, so that no later call of pgx tries to clean up.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.conn.Close(ctx)
	s.closed(reason)
}

// Close takes leave of the server and ends the session. For the owner.
func (s *Session) Close(reason string) {
	t := time.AfterFunc(max(s.Deadline, time.Second), s.Kill)
	defer t.Stop()
	_ = s.conn.Close(context.Background())
	s.closed(reason)
}

func (s *Session) closed(reason string) {
	if f := s.Closed; f != nil {
		s.Closed = nil
		f(reason)
	}
}

// Do sends one statement, by f, and closes the socket when there is no answer within the deadline. It cannot be
// cancelled: the answer of a statement that takes or gives a lock must be known.
func (s *Session) Do(what string, f func(ctx context.Context) error) error {
	if s.Deadline > 0 {
		t := time.AfterFunc(s.Deadline, func() {
			s.late.Store(true)
			s.Kill()
		})
		defer t.Stop()
	}
	if err := f(context.Background()); err != nil {
		if s.late.Load() {
			return fmt.Errorf("%s: %w within %s: %w", what, ErrDeadline, s.Deadline, err)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// simple sends text as one message of the simple protocol, which works in every mode of pgx and of a pooler, and returns the
// text of the first column of the last row.
func (s *Session) simple(ctx context.Context, text string) (string, error) {
	results, err := s.conn.PgConn().Exec(ctx, text).ReadAll()
	if err != nil {
		return "", err
	}
	var last string
	for _, r := range results {
		for _, row := range r.Rows {
			if len(row) > 0 {
				last = string(row[0])
			}
		}
	}
	return last, nil
}

// Wait reads, and sends nothing, until a notification arrives, the connection breaks, or ctx ends (ErrInterrupted). A
// connection that the server closes is noticed here, at once.
func (s *Session) Wait(ctx context.Context) (*pgconn.Notification, error) {
	n, err := s.conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil && !s.conn.IsClosed():
		// Our own interruption: pgx has kept what it had read of a message and goes on from there. Not asked of the
		// error: a read that fails with ETIMEDOUT is a timeout too, and not ours.
		return nil, ErrInterrupted
	}
	return nil, fmt.Errorf("read on the idle session: %w", err)
}

// heard reports whether a notification on channel has already arrived, with an earlier answer. It does not read.
func (s *Session) heard(channel string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		n, err := s.conn.WaitForNotification(ctx)
		if err != nil {
			return false
		}
		if n.Channel == channel {
			return true
		}
	}
}

// Configure gives the session its server-side limits, in milliseconds; those that are not positive are left out. Only
// after the probe: on a pooled server connection they would stay, for whoever comes next.
func (s *Session) Configure(statement, idle time.Duration) error {
	var text string
	if statement > 0 {
		text += fmt.Sprintf("set statement_timeout = %d; ", max(1, statement.Milliseconds()))
	}
	if idle > 0 {
		text += fmt.Sprintf("set idle_session_timeout = %d; ", max(1, idle.Milliseconds()))
	}
	if text == "" {
		return nil
	}
	return s.Do("set the session's time limits", func(ctx context.Context) error {
		_, err := s.simple(ctx, text)
		return err
	})
}

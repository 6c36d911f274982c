// Package probe finds out what stands between a client and Postgres: nothing, or a pooler and of which kind; and with that
// whether a session lock may be trusted there.
//
// It is made for production. It creates nothing, takes no lock, sets nothing, cancels nothing and ends no session of
// anybody. Where all it needs is to be seen it only looks; what it must leave for a moment, a LISTEN on a channel of random
// name, it takes back.
package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Verdict says whether a session lock may be trusted. The zero value is not known and never passes.
type Verdict string

// The verdicts.
const (
	Stable       Verdict = "stable"       // a session keeps its backend
	Unstable     Verdict = "unstable"     // it does not
	Inconclusive Verdict = "inconclusive" // that could not be found out
	Unreachable  Verdict = "unreachable"  // nobody could be asked
)

// What stands in between. "" is not known.
const (
	Direct      = "direct"
	Session     = "session"
	Transaction = "transaction"
	Statement   = "statement"
)

// A Finding is what was found out.
type Finding struct {
	Verdict Verdict  `json:"verdict"`
	Pooling string   `json:"pooling,omitempty"` // Direct, Session, Transaction or Statement, where it is known
	Why     []string `json:"why"`               // what was seen, in sentences
	NotTold []string `json:"not_told"`          // what this leaves open
	Server  string   `json:"server_version,omitempty"`
	Seconds float64  `json:"seconds"`
}

func (f *Finding) why(format string, a ...any) { f.Why = append(f.Why, fmt.Sprintf(format, a...)) }

func (f *Finding) notTold(format string, a ...any) {
	f.NotTold = append(f.NotTold, fmt.Sprintf(format, a...))
}

const (
	connectPatience = 5 * time.Second
	// rounds is how often the two sessions are asked in turn for their backends before anything is left anywhere.
	rounds = 5
	// tidyFor bounds the attempts to reach one server connection of a pool again.
	tidyFor = 2 * time.Second
	pause   = 5 * time.Millisecond
)

// Run probes the path of cfg. wait bounds each answer, and the wait for a notification: longer than any is on its way.
func Run(ctx context.Context, cfg *pgx.ConnConfig, wait time.Duration) *Finding {
	began := time.Now()
	p := &prober{wait: wait, f: &Finding{Verdict: Inconclusive, Why: []string{}, NotTold: []string{}}}
	p.cfg = cfg.Copy()
	p.cfg.RuntimeParams["application_name"] = "simrun probe"
	p.run(ctx)
	p.f.Seconds = time.Since(began).Seconds()
	return p.f
}

type prober struct {
	cfg     *pgx.ConnConfig
	wait    time.Duration
	f       *Finding
	a, b    *client
	channel string
}

// run takes the steps one after the other, until one of them has said what is the matter.
func (p *prober) run(ctx context.Context) {
	var err error
	if p.a, err = p.connect(ctx); err != nil {
		p.f.Verdict = Unreachable
		p.f.why("no connection: %s", p.text(err))
		return
	}
	defer p.a.close()
	p.f.Server = p.a.conn.PgConn().ParameterStatus("server_version")
	if !p.first(ctx) || !p.second(ctx) {
		p.f.notTold("whether a session lock may be trusted here")
		return
	}
	defer p.b.close()
	switch p.look(ctx) {
	case Unstable:
		p.kind(ctx)
		return
	case Inconclusive:
		p.f.notTold("whether a session lock may be trusted here")
		return
	}
	switch p.listen(ctx) {
	case Stable:
		p.f.Verdict = Stable
		p.f.Pooling = Session
		if p.a.named() {
			p.f.Pooling = Direct
			p.f.notTold("whether a proxy that passes everything on stands in between")
		}
		p.f.notTold("whether it stays so: a pooler can be reloaded into another mode under its clients, and a lock holder must watch for that")
	case Unstable:
		p.kind(ctx)
	default:
		p.f.notTold("whether a session lock may be trusted here")
	}
}

// first asks the first session for its backend.
func (p *prober) first(ctx context.Context) bool {
	rows, err := p.a.ask(ctx, "select pg_backend_pid(), pg_is_in_recovery()")
	switch {
	case late(err):
		p.f.why("the connection is there, but no statement was answered within %s: a pooler whose pool is full behaves so, and a server that is stuck", p.wait)
		return false
	case err != nil:
		p.f.why("the first statement failed: %s", p.text(err))
		return false
	}
	p.a.pid = rows[0]
	if p.a.named() {
		p.f.why("the server names the same backend at the start of the session and later (%s)", p.a.pid)
	} else {
		p.f.why("a pooler answers: at the start of the session it named backend %d, the server's is %s", p.a.conn.PgConn().PID(), p.a.pid)
	}
	if rows[1] == "t" {
		p.f.why("this server is a standby, where nobody can listen or hold a lock that the primary knows of")
		return false
	}
	return true
}

// second opens the other session, while the first one is connected and idle.
func (p *prober) second(ctx context.Context) bool {
	b, err := p.connect(ctx)
	if err != nil {
		p.f.why("a second connection, which the probe needs, was not to be had: %s", p.text(err))
		return false
	}
	rows, err := b.ask(ctx, "select pg_backend_pid()")
	if err == nil && b.conn.PgConn().Conn().RemoteAddr().String() != p.a.conn.PgConn().Conn().RemoteAddr().String() {
		b.close()
		p.f.why("the address names several servers, and two connections went to two of them: name one")
		return false
	}
	switch {
	case late(err):
		b.close()
		p.f.why("a second client got no answer within %s while the first one was connected and idle: a session pool that is full, or has room for one, behaves so, but that is no proof", p.wait)
		return false
	case err != nil:
		b.close()
		p.f.why("the second session's statement failed: %s", p.text(err))
		return false
	}
	b.pid, p.b = rows[0], b
	return true
}

// look asks both sessions in turn for their backends. It leaves nothing anywhere, and settles most cases where a session does not keep its
// backend. Stable here means only that nothing was seen.
func (p *prober) look(ctx context.Context) Verdict {
	for range rounds {
		if p.a.pid == p.b.pid {
			p.f.why("two sessions, both connected, were run by one backend (%s): each would be granted the other's session lock", p.a.pid)
			return Unstable
		}
		for _, c := range []*client{p.a, p.b} {
			rows, err := c.ask(ctx, "select pg_backend_pid()")
			switch {
			case late(err):
				p.f.why("a statement was not answered within %s on a session that had been answered before: where a backend belongs to one session that does not happen, unless the server is stuck", p.wait)
				return Inconclusive
			case err != nil:
				p.f.why("a statement failed: %s", p.text(err))
				return Inconclusive
			}
			if was := c.pid; was != rows[0] {
				p.f.why("a session was run by backend %s, and then by backend %s: a lock would have stayed behind", was, rows[0])
				return Unstable
			}
		}
	}
	return Stable
}

// listen proves stability: the first session listens and is then silent, the second one notifies it. A pooler that takes the backend away when a
// transaction ends has nowhere to deliver the notification. Nothing may be sent on the first session while it waits: a statement would attach a
// backend, and the notification would slip through with its answer.
func (p *prober) listen(ctx context.Context) Verdict {
	p.channel = "simrun_probe_" + strings.ToLower(rand.Text())
	rows, err := p.a.ask(ctx, "listen "+p.channel+"; select pg_backend_pid()")
	if err != nil {
		p.f.why("the session could not listen: %s", p.text(err))
		return Inconclusive
	}
	listening := rows[0]
	defer func() { p.tidy(ctx, listening) }()
	if listening != p.a.pid {
		p.f.why("a session was run by backend %s, and then by backend %s: a lock would have stayed behind", p.a.pid, listening)
		return Unstable
	}
	sent := time.Now()
	if _, err := p.b.ask(ctx, "select pg_notify('"+p.channel+"', '')"); err != nil {
		p.f.why("the notification could not be sent: %s", p.text(err))
		return Inconclusive
	}
	if p.b.heard(ctx, p.channel, 0) {
		p.f.why("a notification for one session was handed to another: they share a backend")
		return Unstable
	}
	if p.a.heard(ctx, p.channel, p.wait) {
		p.f.why("a notification from another session reached this one while it was idle (%s): its backend is attached to it", time.Since(sent).Round(100*time.Microsecond))
		return Stable
	}
	switch {
	case ctx.Err() != nil:
		p.f.why("stopped")
		return Inconclusive
	case p.a.conn.IsClosed():
		p.f.why("the connection broke while it waited for a notification")
		return Inconclusive
	}
	p.f.why("a notification did not reach the idle session within %s: no backend is attached to it between transactions", p.wait)
	return Unstable
}

// tidy takes the LISTEN back, on the backend that has it. On any other UNLISTEN does nothing, the name being random.
func (p *prober) tidy(ctx context.Context, listening string) {
	ctx = context.WithoutCancel(ctx) // also when somebody has lost patience
	for began := time.Now(); time.Since(began) < tidyFor; time.Sleep(pause) {
		for _, c := range []*client{p.a, p.b} {
			if rows, err := c.ask(ctx, "unlisten "+p.channel+"; select pg_backend_pid()"); err == nil && rows[0] == listening {
				return
			}
		}
		if p.a.conn.IsClosed() && p.b.conn.IsClosed() {
			break
		}
	}
	if p.a.pid == listening && p.a.conn.IsClosed() && p.a.named() {
		return // the session was its own, and has ended
	}
	p.f.why("a LISTEN on a channel of random name has stayed with backend %s, which could not be reached again; it does no harm and ends with the pooler's connection", listening)
}

// begin opens a transaction, but only on a backend that holds nothing of anybody: behind a statement pooler the attempt costs the pooler that server
// connection, and what a client left on it would be lost. One message is run by one backend, and ends at its first error (22012).
const begin = `select 1 / case when exists (select from pg_locks where pid = pg_backend_pid() and locktype = 'advisory')
 or exists (select from pg_listening_channels()) or exists (select from pg_cursors where is_holdable)
 or exists (select from pg_prepared_statements where from_sql)
 or exists (select from pg_class where relnamespace = pg_my_temp_schema()) then 0 else 1 end; begin read only`

// kind tells transaction pooling from statement pooling, which is known to be one of the two.
func (p *prober) kind(ctx context.Context) {
	p.f.Verdict = Unstable
	for range 40 {
		_, err := p.b.ask(ctx, begin)
		var pgErr *pgconn.PgError
		switch {
		case err == nil:
			_, err = p.b.ask(ctx, "rollback")
			if err == nil {
				p.f.Pooling = Transaction
				p.f.why("a transaction of several messages is let through")
				return
			}
		case errors.As(err, &pgErr) && pgErr.Code == "22012":
			time.Sleep(pause)
			continue // perhaps another one next time
		case errors.As(err, &pgErr) && pgErr.Code == "08P01":
			p.f.Pooling = Statement
			p.f.why("a transaction of several messages is refused: %s", p.text(err))
			return
		}
		p.f.notTold("whether it pools transactions or statements: %s", p.text(err))
		return
	}
	p.f.notTold("whether it pools transactions or statements: every backend that answered holds something of a client's, and finding out might have cost it")
}

// A client is one connection.
type client struct {
	conn *pgx.Conn
	wait time.Duration
	pid  string // the backend that ran its last statement
}

func (p *prober) connect(ctx context.Context) (*client, error) {
	ctx, cancel := context.WithTimeout(ctx, max(connectPatience, p.wait))
	defer cancel()
	// When an answer is late pgx asks the server to cancel, over a connection of its own. In reports of PgBouncer 1.18 and 1.19 the pooler ended as a whole
	// beside such requests (its issues 822, 847 and 904); here one of 1.18 has ended after one, once, which proves nothing. The probe needs no cancel and
	// takes no chances with other people's production: no connection is opened after the first.
	cfg := p.cfg.Copy()
	dial := cfg.DialFunc
	var connected atomic.Bool
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancel
		}
		return dial(ctx, network, addr)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	connected.Store(true)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &client{conn: conn, wait: p.wait}, nil
}

func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.conn.Close(ctx)
}

// named reports whether the backend's number is the one that the session was told at its start. Postgres tells its own; poolers make one up.
func (c *client) named() bool { return strconv.FormatUint(uint64(c.conn.PgConn().PID()), 10) == c.pid }

var errNoCancel = errors.New("the probe cancels nothing")

// errLate says that no answer came in time.
var errLate = errors.New("no answer in time")

func late(err error) bool { return errors.Is(err, errLate) }

// ask sends text as one message of the simple protocol, which is run by one backend whatever pools it, and returns the last row.
func (c *client) ask(ctx context.Context, text string) ([]string, error) {
	bounded, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	results, err := c.conn.PgConn().Exec(bounded, text).ReadAll()
	if err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", errLate, err)
		}
		return nil, err
	}
	var last []string
	for _, r := range results {
		for _, row := range r.Rows {
			last = nil
			for _, v := range row {
				last = append(last, string(v))
			}
		}
	}
	return last, nil
}

// heard waits for a notification on channel, without sending anything; with wait 0 it looks only at what has arrived.
func (c *client) heard(ctx context.Context, channel string, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		n, err := c.conn.WaitForNotification(ctx)
		if err != nil {
			return false
		}
		if n.Channel == channel {
			return true
		}
	}
}

// text is an error in one line, without the password.
func (p *prober) text(err error) string {
	var pgErr *pgconn.PgError
	s := ""
	if errors.As(err, &pgErr) {
		s = fmt.Sprintf("%s (%s)", pgErr.Message, pgErr.Code)
	} else {
		var lines []string // a line for each attempt, often the same with and without TLS
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSpace(line); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		s = strings.Join(lines, " ")
	}
	if p.cfg.Password != "" {
		s = strings.ReplaceAll(s, p.cfg.Password, "***")
	}
	return s
}

package lockimpl_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

// patience is how long a test waits for what must come; nothing is asserted about how long it took.
const patience = 30 * time.Second

// A bench is a database, and processes that compete in it.
type bench struct {
	t        *testing.T
	database string
	dsn      string
	control  *pgx.Conn
}

func setup(t *testing.T) *bench {
	t.Helper()
	s := pgtest.Server(t)
	b := &bench{t: t, database: pgtest.DatabaseIn(t, s, lockimpl.SchemaSQL+"CREATE TABLE effects (who text, term bigint)")}
	b.dsn = s.DSN(b.database)
	var err error
	b.control, err = s.Connect(context.Background(), b.database, "control")
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.control.Close(context.Background()) })
	return b
}

// exec runs a statement past every fault.
func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.control.Exec(context.Background(), sql, args...)
	require.NoError(b.t, err)
}

// value reads one number.
func (b *bench) value(sql string, args ...any) (n int64) {
	b.t.Helper()
	require.NoError(b.t, b.control.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (b *bench) terminate(session string) {
	b.t.Helper()
	gone, err := pgtest.Server(b.t).TerminateSession(context.Background(), b.database, session)
	require.NoError(b.t, err)
	require.True(b.t, gone, session)
}

// holders is how many sessions hold the role's key.
func (b *bench) holders() int64 {
	return b.value(`select count(*) from pg_locks where locktype = 'advisory' and objsubid = 1 and objid = 1840000001
		and database = (select oid from pg_database where datname = current_database())`)
}

// A process competes for the role "poller".
type process struct {
	b     *bench
	name  string
	cfg   lockimpl.Config
	lease *lockimpl.Lease
	stop  context.CancelFunc
	done  chan struct{}
	terms chan *lockimpl.Term // one for each time it leads

	mu       sync.Mutex
	sessions int
	events   []lockimpl.Event
	news     chan struct{} // closed when an event is added
}

// quick are intervals for tests: everything that a test waits for comes soon, and no deadline is ever near.
func quick() lockimpl.Config {
	return lockimpl.Config{
		Role:  lockimpl.Role{Name: "poller", Key: 1840000001},
		Retry: 50 * time.Millisecond, Beat: 100 * time.Millisecond, BeatDeadline: 10 * time.Second, ProbeWait: 10 * time.Second,
		StopGrace: 10 * time.Second, TTL: -1, StatementTimeout: -1,
	}
}

// start starts a process. change may change its configuration; link, when not nil, is its way to the database; work takes the place of
// waiting for the end of the term.
func (b *bench) start(name string, change func(*lockimpl.Config), link *netfault.Link, work func(context.Context, *lockimpl.Term) error) *process {
	b.t.Helper()
	p := &process{b: b, name: name, cfg: quick(), done: make(chan struct{}), terms: make(chan *lockimpl.Term, 100), news: make(chan struct{})}
	p.cfg.Holder = name
	p.cfg.Rand = rand.New(rand.NewPCG(1, uint64(len(name)+int(name[0]))))
	p.cfg.Connect = func(ctx context.Context, use lockimpl.Use) (*pgx.Conn, error) { return p.connect(ctx, use, link) }
	p.cfg.Observe = func(e lockimpl.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events = append(p.events, e)
		close(p.news)
		p.news = make(chan struct{})
	}
	if change != nil {
		change(&p.cfg)
	}
	var err error
	p.lease, err = lockimpl.New(p.cfg)
	require.NoError(b.t, err)
	if work == nil {
		work = func(ctx context.Context, _ *lockimpl.Term) error {
			<-ctx.Done()
			return nil
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.done)
		_ = p.lease.Run(ctx, func(ctx context.Context, t *lockimpl.Term) error {
			p.terms <- t
			return work(ctx, t)
		})
	}()
	b.t.Cleanup(p.end)
	return p
}

// connect opens a connection with a name of its own, such as a/lease/2.
func (p *process) connect(ctx context.Context, use lockimpl.Use, link *netfault.Link) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(p.b.dsn)
	if err != nil {
		return nil, err
	}
	if link != nil {
		cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, link.Addr())
		}
	}
	p.mu.Lock()
	p.sessions++
	cfg.RuntimeParams["application_name"] = fmt.Sprintf("%s/%s/%d", p.name, use, p.sessions)
	p.mu.Unlock()
	return lockimpl.ConnectOnce(ctx, cfg)
}

// end stops the process and waits until it has.
func (p *process) end() {
	p.b.t.Helper()
	p.stop()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.b.t.Errorf("process %s did not stop", p.name)
	}
}

// leads waits until the process leads, and returns its term.
func (p *process) leads() *lockimpl.Term {
	p.b.t.Helper()
	select {
	case t := <-p.terms:
		return t
	case <-time.After(patience):
		require.FailNow(p.b.t, "nobody leads", "process %s: %v", p.name, p.words())
		return nil
	}
}

// until waits for an event that fits, and returns the first.
func (p *process) until(fits func(lockimpl.Event) bool) lockimpl.Event {
	p.b.t.Helper()
	late := time.After(patience)
	for {
		p.mu.Lock()
		for _, e := range p.events {
			if fits(e) {
				p.mu.Unlock()
				return e
			}
		}
		news := p.news
		p.mu.Unlock()
		select {
		case <-news:
		case <-late:
			require.FailNow(p.b.t, "an event did not come", "process %s: %v", p.name, p.words())
		}
	}
}

// ended waits for the end of the term, and returns the reason.
func (p *process) ended(t *lockimpl.Term) string {
	p.b.t.Helper()
	p.until(func(e lockimpl.Event) bool { return e.Kind == lockimpl.EventIdle && e.Term == t })
	return p.until(func(e lockimpl.Event) bool { return e.Kind == lockimpl.EventEnd && e.Term == t }).Reason
}

// words are the events in words, for comparisons; sessions of the lease only, and no good heartbeats, of which there may be any number.
func (p *process) words() (words []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if (e.Kind != lockimpl.EventSession || e.Use == lockimpl.UseLease) && (e.Kind != lockimpl.EventBeat || e.Answer != lockimpl.BeatOK) {
			words = append(words, strings.TrimSpace(strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Op, " ", e.Answer)), " ")))
		}
	}
	return words
}

// after are the words after the last of the given ones.
func (p *process) after(word string) []string {
	words := p.words()
	for i := len(words) - 1; i >= 0; i-- {
		if words[i] == word {
			return words[i+1:]
		}
	}
	return nil
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// effect writes a row in a transaction of the term.
func effect(t *lockimpl.Term, conn *pgx.Conn) error {
	return t.Tx(context.Background(), conn, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into effects values ($1, $2)", t.Session(), t.Number())
		return err
	})
}

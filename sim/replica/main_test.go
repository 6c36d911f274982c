package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

const patience = 30 * time.Second

// quick are intervals for tests: what they wait for comes soon, and no deadline is near.
var quick = sim.Intervals{
	Retry: sim.Duration(50 * time.Millisecond), Beat: sim.Duration(100 * time.Millisecond), BeatDeadline: sim.Duration(10 * time.Second),
	ProbeWait: sim.Duration(time.Second), Tick: sim.Duration(30 * time.Millisecond), TTL: -1, StopGrace: sim.Duration(10 * time.Second),
}

// A world is a database, and what replicas report.
type world struct {
	t        *testing.T
	impl     sim.Implementation
	database string
	dsn      string
	control  *pgx.Conn
	start    time.Time

	mu     sync.Mutex
	events []sim.Event
	news   chan struct{} // closed when an event is added
}

func setup(t *testing.T, name string) *world {
	t.Helper()
	impl, ok := ByName(name)
	require.True(t, ok, name)
	server := pgtest.Server(t)
	w := &world{t: t, impl: impl, database: pgtest.DatabaseIn(t, server, impl.Migrations), start: time.Now(), news: make(chan struct{})}
	w.dsn = server.DSN(w.database)
	ctx := context.Background()
	var err error
	w.control, err = server.Connect(ctx, w.database, "control")
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.control.Close(ctx) })
	require.NoError(t, pg.InstallLedger(ctx, w.control))
	return w
}

// A life is a replica that runs.
type life struct {
	w        *world
	id       int
	stop     context.CancelFunc
	done     chan error
	commands chan sim.Command
}

func (w *world) boot(id int, change func(*sim.Env)) *life {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{w: w, id: id, stop: cancel, done: make(chan error, 1), commands: make(chan sim.Command, 1)}
	env := &sim.Env{
		Replica: id, Incarnation: 1, Replicas: 2, Role: w.impl.Role, DSN: w.dsn, ExecMode: "exec", Intervals: quick, Start: w.start,
		Now: time.Now, Rand: rand.New(rand.NewPCG(1, uint64(id))), Commands: l.commands,
		Emit: func(e sim.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			e.Replica, e.Incarnation, e.At = id, 1, sim.Duration(time.Since(w.start))
			w.events = append(w.events, e)
			close(w.news)
			w.news = make(chan struct{})
		},
	}
	if change != nil {
		change(env)
	}
	go func() { l.done <- w.impl.Run(ctx, env) }()
	w.t.Cleanup(l.end)
	return l
}

// end stops the replica, if it has not been, and waits until it has.
func (l *life) end() {
	l.w.t.Helper()
	l.stop()
	select {
	case err := <-l.done:
		require.NoError(l.w.t, err)
		l.done <- nil
	case <-time.After(patience):
		l.w.t.Errorf("replica %d did not stop", l.id)
	}
}

// until waits until the replica has reported n events that fit, and returns the nth.
func (l *life) until(n int, fits func(sim.Event) bool) sim.Event {
	l.w.t.Helper()
	late := time.After(patience)
	for {
		l.w.mu.Lock()
		seen := 0
		for _, e := range l.w.events {
			if e.Replica == l.id && fits(e) {
				if seen++; seen == n {
					l.w.mu.Unlock()
					return e
				}
			}
		}
		news := l.w.news
		l.w.mu.Unlock()
		select {
		case <-news:
		case <-late:
			require.FailNow(l.w.t, "an event did not come", "%v", l.words())
		}
	}
}

// words are the replica's events in words, without those of sessions that hold no lock and without ticks that found nothing.
func (l *life) words() (words []string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, e := range l.w.events {
		if e.Replica == l.id && e.Kind != sim.EvSession && e.Kind != sim.EvTick {
			words = append(words, word(e))
		}
	}
	return words
}

func word(e sim.Event) string {
	w := string(e.Kind)
	for _, s := range []string{e.Op, e.Answer, e.Outcome} {
		if s != "" {
			w += " " + s
		}
	}
	return w
}

func is(words string) func(sim.Event) bool { return func(e sim.Event) bool { return word(e) == words } }

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.control.Exec(context.Background(), sql, args...)
	require.NoError(w.t, err)
}

func (w *world) value(sql string, args ...any) (n int64) {
	w.t.Helper()
	require.NoError(w.t, w.control.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (w *world) load(id int, seconds float64) { w.t.Helper(); w.exec(w.impl.Load, id, seconds) }

func (w *world) holder() string {
	w.t.Helper()
	holders, err := pg.Holders(context.Background(), w.control, w.database, w.impl.Role.Key)
	require.NoError(w.t, err)
	if len(holders) == 0 {
		return ""
	}
	return holders[0].AppName
}

func (w *world) terminate(session string) {
	w.t.Helper()
	gone, err := pgtest.Server(w.t).TerminateSession(context.Background(), w.database, session)
	require.NoError(w.t, err)
	require.True(w.t, gone, session)
}

// behind puts a PgBouncer between replicas and database.
func (w *world) behind(mode string) *pgbouncer.Pooler {
	w.t.Helper()
	s := pgtest.Server(w.t)
	run, err := proc.NewRun()
	require.NoError(w.t, err)
	o := pgbouncer.Options{Run: run, Mode: mode, User: s.User()}
	o.Host, o.Port = s.HostPort()
	p, err := pgbouncer.Start(context.Background(), o)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		require.NoError(w.t, p.Stop())
		require.NoError(w.t, run.Close())
	})
	host, port := p.HostPort()
	w.dsn = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", s.User(), net.JoinHostPort(host, strconv.Itoa(port)), w.database)
	return p
}

// link is a way to the database that can be broken, and what makes a replica take it.
func (w *world) link() (*netfault.Link, func(*sim.Env)) {
	w.t.Helper()
	host, port := pgtest.Server(w.t).HostPort()
	l, err := netfault.New("replica", net.JoinHostPort(host, strconv.Itoa(port)))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	return l, func(env *sim.Env) {
		env.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, l.Addr())
		}
	}
}

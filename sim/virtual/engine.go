package virtual

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

// A Config says what an engine works with. The zero Config starts a Postgres of its own.
type Config struct {
	// Run keeps the engine's processes. nil: the engine makes one and closes it.
	Run *proc.Run
	// Server is a Postgres to use; whoever started it stops it. nil: the engine starts one as Postgres says.
	Server   *pg.Server
	Postgres pg.Options // Backend, DSN and LogDir are read
	LogDir   string     // of PgBouncer; "": a temporary one
	// Toxiproxy has the sessions of the replicas go through a proxy, as they do in the live engine. No fault of this engine
	// needs it, and histories are the same without it; it shows just that, and what the way costs.
	Toxiproxy bool
	// Watchdog is how long, in real time, replicas may take to block or to let virtual time pass. 0 is 20 s.
	Watchdog time.Duration
}

// Stats counts what an engine has done.
type Stats struct {
	Runs       int
	Statements int
	Asked      map[string]int // statements of the engine's own, by name
	Proxied    int64          // bytes that went through Toxiproxy
	Virtual    time.Duration
	Wall       time.Duration
}

// An Engine carries out plans in virtual time, one at a time. It must be made and used by the test (or the stand-in of
// one, see Main) that it was given.
type Engine struct {
	t      *testing.T
	cfg    Config
	run    *proc.Run
	ownRun bool
	server *pg.Server
	ownPG  bool

	dbs  map[string]*database
	db   *database
	lib  library
	ctl  *link // of db, as superuser where the server is ours
	warm []*link
	// cooling are sessions ended in this run; they are warm in the next.
	cooling  []*link
	secrets  uint32
	appNames map[int]string // of server processes behind a pooler, when last asked
	planSeed uint64
	calm     int  // statements since one has waited for a lock
	askAll   bool // ask the server also where the answer is known: tests compare

	hops    map[string]*netfault.Link // by the address they lead to
	hopWait *hopWait                  // for links that lead through them
	asked   map[string]bool           // addresses where a password is asked for
	poolers map[string]*poolerState
	pool    *poolerState // of the present run, nil on the direct route

	stats     Stats
	beat      atomic.Int64 // grows with every turn of the stepper
	working   atomic.Bool  // the stepper itself is at work; it has limits of its own
	cancelled atomic.Bool  // the present run's context has ended
	broken    error
	outside   *outsider
	closeOnce sync.Once
	closeErr  error
}

var _ sim.Engine = (*Engine)(nil)

// New starts an engine. t is what testing/synctest asks for; it is not failed by what replicas do. A world that cannot
// be set up is a *sim.EnvironmentError.
func New(t *testing.T, cfg Config) (*Engine, error) {
	e := &Engine{t: t, cfg: cfg, run: cfg.Run, server: cfg.Server, dbs: map[string]*database{}, lib: library{}, hops: map[string]*netfault.Link{}, asked: map[string]bool{}, poolers: map[string]*poolerState{}, secrets: 1000, stats: Stats{Asked: map[string]int{}}}
	if e.cfg.Watchdog == 0 {
		e.cfg.Watchdog = 20 * time.Second
	}
	e.outside = newOutsider()
	sharpTimers()
	if cfg.Toxiproxy {
		e.hopWait = newHopWait()
		if runtime.GOMAXPROCS(0) < 2 {
			runtime.GOMAXPROCS(2) // while a session begins and ends the stepper keeps its thread
		}
	}
	if e.run == nil {
		run, err := proc.NewRun()
		if err != nil {
			return nil, fmt.Errorf("start the virtual engine: %w", err)
		}
		e.run, e.ownRun = run, true
	}
	if e.server == nil {
		o := cfg.Postgres
		o.Run = e.run
		server, err := pg.Start(context.Background(), o)
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.server, e.ownPG = server, true
	}
	return e, nil
}

// Name is virtual.
func (e *Engine) Name() string { return "virtual" }

// Stats is what the engine has done so far.
func (e *Engine) Stats() Stats {
	s := e.stats
	for _, h := range e.hops {
		up, down := h.Passed()
		s.Proxied += up + down
	}
	return s
}

// Header is the header of run's history.
func (e *Engine) Header(run sim.Run) sim.Header {
	v := map[string]string{"go": runtime.Version(), "postgres": e.server.Version()}
	if run.Route.Pooled() {
		if b, err := pgbouncer.Installed(); err == nil {
			v["pgbouncer"] = b
		}
	}
	return sim.Header{
		V: sim.HistoryVersion, Scenario: run.Scenario, Plan: run.Plan, Engine: e.Name(), Route: run.Route, Impl: run.Impl.Name, Terms: run.Impl.Terms,
		Seed: run.Seed, Schedule: run.Schedule, Intervals: run.Scenario.Intervals.WithDefaults(), TimeScale: 1, Versions: v,
	}
}

// Run carries out the plan. A replica that panics or leaks is noted in the history and is an error too (PanicError,
// LeakError), after which the engine can go on. After a HungError it cannot.
func (e *Engine) Run(ctx context.Context, run sim.Run, rec *sim.Recorder) (err error) {
	if e.broken != nil {
		return e.broken
	}
	if err := unable(run); err != nil {
		return err
	}
	began := time.Now()
	starts, err := startsAt(run.Scenario)
	if err != nil {
		return err
	}
	if err := e.prepare(ctx, run, starts); err != nil {
		return err
	}
	without := run.Plan
	without.Picks = nil // a strategy that explores learns them only while the run goes on
	key, err := hex.DecodeString(without.Key())
	if err != nil {
		return fmt.Errorf("name the plan: %w", err)
	}
	e.planSeed = binary.BigEndian.Uint64(key)
	e.cancelled.Store(false)
	defer context.AfterFunc(ctx, func() { e.cancelled.Store(true) })()

	w := &world{eng: e, run: run, plan: run.Plan, rec: rec, triggered: slices.ContainsFunc(run.Plan.Faults, func(f sim.Fault) bool { return f.Before != nil || f.After != nil }), noted: map[string]bool{}, instants: map[int64]time.Time{}}
	leaks, err := e.watched(w, starts)
	e.stats.Runs++
	e.stats.Wall += time.Since(began)
	e.stats.Virtual += time.Duration(w.virtual)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if w.err != nil {
		e.leave() // what is left behind is not used again
		return errors.Join(w.err, w.misbehaved(leaks))
	}
	events, err := e.ledger(ctx)
	if err != nil {
		return err
	}
	w.addLedger(events[min(w.ledgerRows, len(events)):])
	return w.misbehaved(leaks)
}

// bubble runs the world in a bubble. Goroutines cannot be killed: when some are left, synctest panics here, in its
// caller, so that it can be reported. They stay blocked for good; nothing but memory is lost.
func (e *Engine) bubble(w *world, starts time.Time) (leaks []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			if leaks = leaked(); len(leaks) == 0 {
				err = fmt.Errorf("the virtual engine panicked: %v\n%s", p, trace())
			}
		}
	}()
	synctest.Test(e.t, func(*testing.T) {
		time.Sleep(time.Until(starts)) // so that every clock in the bubble agrees, time.Now as well
		w.start, w.arrive = time.Now(), make(chan struct{}, 1)
		w.loop(context.Background())
		w.virtual = w.since()
	})
	return nil, nil
}

// Close ends the engine and all it started.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		var errs []error
		e.leave()
		e.outside.stop()
		if e.hopWait != nil {
			e.hopWait.close()
		}
		for _, h := range e.hops {
			errs = append(errs, h.Close())
		}
		for _, p := range e.poolers {
			errs = append(errs, p.close())
		}
		if e.server != nil {
			for _, d := range e.dbs {
				errs = append(errs, d.drop(context.Background()))
			}
		}
		if e.ownPG && e.server != nil {
			errs = append(errs, e.server.Stop())
		}
		if e.ownRun && e.run != nil {
			errs = append(errs, e.run.Close())
		}
		e.closeErr = errors.Join(errs...)
	})
	return e.closeErr
}

// defaultStart is the database's date at the start of a run that names none: a Monday.
const defaultStart = "2026-03-02T09:00:00Z"

func startsAt(s sim.Scenario) (time.Time, error) {
	text := s.StartsAt
	if text == "" {
		text = defaultStart
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("starts_at %q is no date of RFC 3339: %w", text, err)
	}
	if epoch := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC); t.Before(epoch) {
		return t, fmt.Errorf("starts_at %s is before 2000-01-02, where virtual time begins", text)
	}
	return t, nil
}

// execMode is pgx's exec mode on a route: prepared statements do not outlive a transaction behind a pooler that gives
// every transaction another session.
func execMode(r sim.Route) string {
	if r.Stable() {
		return "cache_statement"
	}
	return "exec"
}

// Replicas see one address in every run, so that it may get into what they say. The names in it are replaced when a
// session begins.
const (
	facade   = "app"
	facadeAt = "127.0.0.1:5432"
)

func (e *Engine) dsn(sim.Route) string {
	return "postgres://" + facade + "@" + facadeAt + "/" + facade + "?sslmode=disable"
}

// address is where sessions of a route are opened.
func (e *Engine) address(route sim.Route) (string, error) {
	to := e.direct()
	if route.Pooled() && e.pool != nil {
		to = e.pool.address()
	}
	if e.cfg.Toxiproxy {
		return e.hop(route, to)
	}
	return to, nil
}

// direct is the server's own address.
func (e *Engine) direct() string {
	host, port := e.server.HostPort()
	if dir := e.server.SocketDir(); dir != "" {
		return filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(port))
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

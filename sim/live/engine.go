package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

// A Config is what an engine lives on.
type Config struct {
	Run       *proc.Run
	Server    *pg.Server
	TimeScale float64 // 0 is DefaultTimeScale
	LogDir    string  // logs of poolers and replicas
}

// An Engine runs one plan at a time; several engines may share a server.
type Engine struct {
	cfg       Config
	templates map[string]string
	poolers   map[poolKey]*pgbouncer.Pooler
	log       *os.File
}

// A poolKey is what tells one pooler from another.
type poolKey struct {
	route sim.Route
	pool  sim.Pool
}

// New makes an engine.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.TimeScale == 0 {
		cfg.TimeScale = DefaultTimeScale
	}
	e := &Engine{cfg: cfg, templates: map[string]string{}, poolers: map[poolKey]*pgbouncer.Pooler{}}
	log, err := os.OpenFile(filepath.Join(cfg.LogDir, "replicas.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the replicas' log: %w", err)
	}
	e.log = log
	return e, nil
}

// Name is "live".
func (*Engine) Name() string { return "live" }

// Header describes what Run would do.
func (e *Engine) Header(run sim.Run) sim.Header {
	h := sim.Header{
		Scenario: run.Scenario, Plan: run.Plan, Engine: e.Name(), Route: run.Route, Impl: run.Impl.Name, Terms: run.Impl.Terms,
		Seed: run.Seed, Schedule: run.Schedule, TimeScale: e.cfg.TimeScale, Allowance: sim.Duration(allowance),
		Intervals: scaleIntervals(run.Scenario.Intervals, e.cfg.TimeScale),
		Versions:  map[string]string{"postgres": e.cfg.Server.Version()},
	}
	if h.Scenario.BeliefOverlap != nil {
		o := scaled(*h.Scenario.BeliefOverlap, e.cfg.TimeScale)
		h.Scenario.BeliefOverlap = &o
	}
	return h
}

// Close stops the poolers and drops what was made on the server.
func (e *Engine) Close() error {
	var errs []error
	for _, p := range e.poolers {
		errs = append(errs, p.Stop())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, name := range slices.Sorted(maps.Values(e.templates)) {
		errs = append(errs, e.cfg.Server.DropDatabase(ctx, name))
	}
	return errors.Join(append(errs, e.log.Close())...)
}

func execMode(r sim.Route) string {
	if r.Pooled() {
		return "exec" // PgBouncer before 1.21 knows no prepared statements
	}
	return "cache_statement"
}

// template is a database with the implementation's tables and the ledger, made once.
func (e *Engine) template(ctx context.Context, impl sim.Implementation) (string, error) {
	key := impl.Migrations + "\x00" + impl.Ledger
	if name, ok := e.templates[key]; ok {
		return name, nil
	}
	name := e.cfg.Server.NewDatabaseName()
	if err := e.cfg.Server.CreateDatabase(ctx, name, ""); err != nil {
		return "", err
	}
	if err := e.migrate(ctx, name, impl); err != nil {
		return "", errors.Join(err, e.cfg.Server.DropDatabase(context.WithoutCancel(ctx), name))
	}
	e.templates[key] = name
	return name, nil
}

func (e *Engine) migrate(ctx context.Context, database string, impl sim.Implementation) error {
	conn, err := e.cfg.Server.Connect(ctx, database, "simrun migrations")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, impl.Migrations); err != nil {
		return fmt.Errorf("migrations of %s: %w", impl.Name, pg.Located(err, cmp.Or(impl.MigrationsFile, "migrations"), impl.Migrations))
	}
	// A dump sets its own search_path, and what comes now is ours.
	if _, err := conn.Exec(ctx, "RESET search_path"); err != nil {
		return fmt.Errorf("migrations of %s: %w", impl.Name, err)
	}
	if err := pg.InstallLedger(ctx, conn); err != nil {
		return err
	}
	if impl.Ledger == "" {
		return nil
	}
	return pg.CheckLedgerQuery(ctx, conn, impl.Ledger)
}

// pooler is the PgBouncer of a route, started once and used by one run after another.
func (e *Engine) pooler(ctx context.Context, route sim.Route, pool sim.Pool) (*pgbouncer.Pooler, error) {
	key := poolKey{route, pool}
	if p, ok := e.poolers[key]; ok {
		return p, nil
	}
	o, err := e.poolerOptions(route, pool)
	if err != nil {
		return nil, err
	}
	o.Name = fmt.Sprintf("pgbouncer-%s-%d", route.PoolMode(), len(e.poolers)+1)
	p, err := pgbouncer.Start(ctx, o)
	if err != nil {
		return nil, &sim.EnvironmentError{Problem: "PgBouncer did not start", Err: err}
	}
	e.poolers[key] = p
	return p, nil
}

func (e *Engine) poolerOptions(route sim.Route, pool sim.Pool) (pgbouncer.Options, error) {
	host, port := e.cfg.Server.HostPort()
	u, err := url.Parse(e.cfg.Server.DSN("postgres"))
	if err != nil {
		return pgbouncer.Options{}, errors.New("read the server's address") // the error would print it
	}
	password, _ := u.User.Password()
	return pgbouncer.Options{
		Run: e.cfg.Run, Mode: route.PoolMode(), PoolSize: pool.Size, RoundRobin: pool.RoundRobin,
		Host: host, Port: port, User: u.User.Username(), Password: password, LogDir: e.cfg.LogDir,
	}, nil
}

// poolerDSN is the pooler's own address, past every link.
func (e *Engine) poolerDSN(p *pgbouncer.Pooler, database string) (string, error) {
	u, err := url.Parse(e.cfg.Server.DSN(database))
	if err != nil {
		return "", errors.New("read the server's address")
	}
	host, port := p.HostPort()
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	return u.String(), nil
}

// A world is one run.
type world struct {
	e         *Engine
	run       sim.Run
	plan      sim.Plan // scaled
	intervals sim.Intervals
	rec       *sim.Recorder
	database  string
	control   *pgx.Conn
	pooler    *pgbouncer.Pooler
	start     time.Time
	log       io.Writer
	end       context.CancelFunc // of the run

	mu       sync.Mutex
	replicas []*replica
	err      error // first failure of the harness
	ended    bool  // no replica is started any more
	struck   bool  // a fault has begun
	watched  []int64
}

// Run carries out run.Plan; see the package comment.
func (e *Engine) Run(ctx context.Context, run sim.Run, rec *sim.Recorder) (err error) {
	if len(run.Impl.Command) == 0 {
		return fmt.Errorf("%s cannot run as a process", run.Impl.Name)
	}
	w := &world{
		e: e, run: run, rec: rec, log: e.log, plan: scalePlan(run.Plan, e.cfg.TimeScale),
		intervals: scaleIntervals(run.Scenario.Intervals, e.cfg.TimeScale),
	}
	fmt.Fprintf(e.log, "--- %s, %s, %s, schedule %d of seed %d\n", run.Scenario.Name, run.Route, run.Impl.Name, run.Schedule, run.Seed)
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	if err := w.prepare(ctx); err != nil {
		return err
	}
	return w.play(ctx)
}

func (w *world) prepare(ctx context.Context) error {
	template, err := w.e.template(ctx, w.run.Impl)
	if err != nil {
		return err
	}
	if w.run.Plan.Has(sim.PostgresRestart) { // not just before the crash: what is not flushed by then is lost, as it should be
		if err := w.e.cfg.Server.Checkpoint(ctx); err != nil {
			return err
		}
	}
	w.database = w.e.cfg.Server.NewDatabaseName()
	if err := w.e.cfg.Server.CreateDatabase(ctx, w.database, template); err != nil {
		return err
	}
	if w.control, err = w.e.cfg.Server.Connect(ctx, w.database, "simrun control"); err != nil {
		return err
	}
	upstreamHost, upstreamPort := w.e.cfg.Server.HostPort()
	if w.run.Route.Pooled() {
		if w.pooler, err = w.e.pooler(ctx, w.run.Route, w.run.Scenario.Pool); err != nil {
			return err
		}
		upstreamHost, upstreamPort = w.pooler.HostPort()
	}
	for i := range w.run.Scenario.Replicas {
		link, err := netfault.New(fmt.Sprintf("r%d", i+1), upstreamHost+":"+strconv.Itoa(upstreamPort))
		if err != nil {
			return fmt.Errorf("link of replica %d: %w", i+1, err)
		}
		w.replicas = append(w.replicas, &replica{id: i + 1, link: link})
	}
	for i := range w.run.Scenario.Workload.Rows {
		due := scaled(w.run.Scenario.Workload.Every, w.e.cfg.TimeScale) * sim.Duration(i+1)
		if _, err := w.control.Exec(ctx, w.run.Impl.Load, int64(i+1), due.Seconds()); err != nil {
			return fmt.Errorf("load row %d: %w", i+1, pg.Located(err, "load", w.run.Impl.Load))
		}
	}
	return nil
}

// play is the run itself, from the first process to the closing of the ledger.
func (w *world) play(ctx context.Context) error {
	runCtx, end := context.WithCancel(ctx)
	defer end()
	w.start, w.end = time.Now(), end
	w.watched = append([]int64{w.run.Impl.Role.Key}, w.run.Impl.Keys...)
	var running sync.WaitGroup
	observer, err := w.e.cfg.Server.Connect(ctx, w.database, "simrun observer")
	if err != nil {
		return err
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watchers sync.WaitGroup
	watchers.Go(func() { w.observe(watching, observer) })
	watchers.Go(func() { w.watchStalls(runCtx) })
	for i, r := range w.replicas {
		running.Go(func() {
			if len(w.plan.Phase) > 0 && !w.sleepUntil(runCtx, w.plan.Phase[i%len(w.plan.Phase)].D()) {
				return
			}
			if err := w.boot(r, 0); err != nil {
				w.fail(err)
			}
		})
	}
	for i, f := range w.plan.Faults {
		running.Go(func() { w.carryOut(runCtx, i+1, f) })
	}
	w.sleepUntil(runCtx, w.plan.Horizon.D())
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	end()
	running.Wait()
	w.stopAll()
	err = w.readLedger(context.WithoutCancel(ctx))
	stopWatching()
	watchers.Wait()
	return errors.Join(ctx.Err(), w.failure(), err)
}

// readLedger waits until no replica's session is left that could still commit, and records what was committed.
func (w *world) readLedger(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	// A pooler keeps its connections; one that is idle has nothing to commit.
	const busy = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND application_name NOT LIKE 'simrun %' AND NOT ($1 AND state = 'idle')`
	for end := time.Now().Add(5 * time.Second); ; {
		var n int
		if err := w.control.QueryRow(ctx, busy, w.run.Route.Pooled()).Scan(&n); err != nil {
			return fmt.Errorf("wait for the replicas' sessions to end: %w", err)
		}
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			w.note("%d sessions outlived their replicas and were ended before the ledger was read", n)
			if _, err := w.control.Exec(ctx, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()
				AND pid <> pg_backend_pid() AND application_name NOT LIKE 'simrun %'`); err != nil {
				return fmt.Errorf("end the replicas' sessions: %w", err)
			}
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	events, err := w.committed(ctx)
	if err != nil {
		return err
	}
	for _, ev := range events {
		w.rec.Add(ev)
	}
	return nil
}

// committed is what was committed: by the ledger, or by the program's own tables.
func (w *world) committed(ctx context.Context) ([]sim.Event, error) {
	if w.run.Impl.Ledger != "" {
		return pg.QueryLedger(ctx, w.control, w.run.Impl.Ledger, w.start)
	}
	return pg.ReadLedger(ctx, w.control, w.start)
}

// close undoes prepare. Everything is tried, whatever failed before.
func (w *world) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var errs []error
	for _, r := range w.replicas {
		if r.child != nil {
			_ = r.child.Kill() // usually gone already
		}
		errs = append(errs, r.link.Close())
	}
	if w.control != nil {
		errs = append(errs, w.control.Close(ctx))
		errs = append(errs, w.e.cfg.Server.DropDatabase(ctx, w.database))
	}
	return errors.Join(errs...)
}

func (w *world) note(format string, a ...any) {
	w.add(sim.Event{Kind: sim.EvNote, Text: fmt.Sprintf(format, a...)})
}

func (w *world) since() time.Duration { return time.Since(w.start) }

// add records an event of the engine at this instant.
func (w *world) add(e sim.Event) {
	e.At, e.Source = sim.Duration(w.since()), sim.FromEngine
	w.rec.Add(e)
}

func (w *world) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.end()
}

// over says that the horizon was reached, or the run given up.
func (w *world) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// sleepUntil waits for an offset from the start; false when ctx ended first.
func (w *world) sleepUntil(ctx context.Context, at time.Duration) bool {
	t := time.NewTimer(at - w.since())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dsn is the route's address through the replica's link.
func (w *world) dsn(r *replica) string {
	u, err := url.Parse(w.e.cfg.Server.DSN(w.database))
	if err != nil {
		panic("the server's address is no URL") // pg made it; the error would print it
	}
	u.Host = r.link.Addr()
	return u.String()
}

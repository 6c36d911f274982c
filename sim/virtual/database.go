package virtual

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

// A database is an implementation's database: created once, wiped between runs.
type database struct {
	eng       *Engine
	name      string
	impl      sim.Implementation
	owner     *pgx.Conn // for migrations, loading and the ledger
	superuser string
	print     string // fingerprint of its catalog
	tables    []string
	seeded    []string            // those with rows in them
	sequences string              // sets them to where the migrations left them
	moved     string              // an expression that says whether one stands elsewhere
	used      bool                // there was a run in it
	clock     uint32              // the OID of the sequence that keeps the time
	plain     map[string][]string // see plainTables
	deferred  bool                // a COMMIT may check constraints, and so wait
	notifies  bool                // a function or trigger may send notifications
	stops     bool                // one may end sessions
	pooled    bool                // a pooler may still have server sessions in it, and they may hold locks
}

//go:embed clock.sql
var clockSQL string

// prepare gives the run a database as the migrations leave it, with the workload in it. It is not broken off half-way, since the next
// run goes on from where it ends.
func (e *Engine) prepare(ctx context.Context, run sim.Run, starts time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if run.Plan.Has(sim.PostgresRestart) { // not just before the crash: what is not flushed by then is lost, as it should be
		if err := e.server.Checkpoint(ctx); err != nil {
			return err
		}
	}
	key := run.Impl.Migrations
	d := e.dbs[key]
	if d == nil {
		d = &database{eng: e, impl: run.Impl}
		if err := d.create(ctx); err != nil {
			return err
		}
		e.dbs[key] = d
	}
	if e.db != d {
		e.leave()
		if err := e.enter(ctx, d); err != nil {
			return err
		}
	}
	e.reuse()
	if err := e.enterRoute(ctx, run); err != nil {
		return err
	}
	if err := d.wipe(ctx); err != nil {
		e.leave()
		delete(e.dbs, key) // what is left of it is not used again
		return errors.Join(fmt.Errorf("reset the database: %w", err), d.drop(ctx))
	}
	if run.Route.Pooled() && e.pool == nil { // the database was made anew, and the poolers in front of the old one closed
		if err := e.enterRoute(ctx, run); err != nil {
			return err
		}
	}
	if err := e.tellTime(starts.UnixMicro()); err != nil {
		return err
	}
	err := d.load(ctx, run)
	d.used = true
	return err
}

// leave gives up the connections to the present database.
func (e *Engine) leave() {
	e.closeWarm()
	if e.ctl != nil {
		e.ctl.close()
		e.ctl = nil
	}
	e.closeOwner()
	e.db = nil
}

func (e *Engine) closeOwner() {
	if e.db != nil && e.db.owner != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.db.owner.Close(ctx) // it is given up whatever the server says
		e.db.owner = nil
	}
}

// ownerConn is the owner's connection, opened again if it has gone.
func (d *database) ownerConn(ctx context.Context) (*pgx.Conn, error) {
	if d.owner == nil || d.owner.IsClosed() {
		conn, err := d.eng.server.Connect(ctx, d.name, "simrun ledger")
		if err != nil {
			return nil, &sim.EnvironmentError{Problem: "the database cannot be reached", Err: err}
		}
		d.owner = conn
	}
	return d.owner, nil
}

// enter opens them.
func (e *Engine) enter(ctx context.Context, d *database) (err error) {
	if _, err = d.ownerConn(ctx); err != nil {
		return err
	}
	e.db = d
	return e.control()
}

// control opens the control connection.
func (e *Engine) control() error {
	s := startup{head: []byte{0, 3, 0, 0}, params: []string{"user", e.db.superuser, "database", e.db.name}}
	l, err := e.openLink(e.direct(), s, "simrun control")
	if err == nil && l.hello.failed != "" {
		why := "the server refused the control connection"
		if l.hello.failed == "28000" { // no entry in pg_hba.conf
			why += "; if it lets nobody in without TLS, use the live engine: this one speaks none"
		}
		err = &serverError{l.hello.failed, why}
	}
	if err != nil {
		return &sim.EnvironmentError{Problem: "the control connection to the database cannot be opened", Err: err}
	}
	for name, sql := range controlStatements {
		if _, err := l.query("PREPARE " + name + " AS " + sql); err != nil {
			l.close()
			return fmt.Errorf("prepare the control statement %s: %w", name, err)
		}
	}
	e.ctl = l
	return nil
}

func (d *database) create(ctx context.Context) (err error) {
	s := d.eng.server
	d.name = s.NewDatabaseName()
	if err := s.CreateDatabase(ctx, d.name, ""); err != nil {
		return fmt.Errorf("create the run's database: %w", err)
	}
	d.used, d.seeded = false, nil
	if err := d.setUp(ctx); err != nil {
		return err
	}
	if d.owner, err = s.Connect(ctx, d.name, "simrun ledger"); err != nil {
		return fmt.Errorf("connect to the run's database: %w", err)
	}
	if _, err := d.owner.PgConn().Exec(ctx, d.impl.Migrations).ReadAll(); err != nil {
		return fmt.Errorf("run the migrations of %s: %w", d.impl.Name, err)
	}
	if err := pg.InstallLedger(ctx, d.owner); err != nil {
		return fmt.Errorf("prepare the run's database: %w", err)
	}
	return d.examine(ctx)
}

// setUp installs the virtual clock, on a connection of its own: settings of a database are for later sessions.
func (d *database) setUp(ctx context.Context) error {
	conn, err := d.eng.server.Connect(ctx, d.name, "simrun set-up")
	if err != nil {
		return fmt.Errorf("connect to the run's database: %w", err)
	}
	defer conn.Close(ctx)
	d.superuser = conn.Config().User
	id := pgx.Identifier{d.name}.Sanitize()
	sql := clockSQL + ";\nALTER DATABASE " + id + " SET search_path = public, simclock, pg_catalog;\n"
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	if version >= 150000 { // without WAL, and without a transaction id; a crash resets it, and the engine sets it again
		sql = strings.Replace(sql, "CREATE SEQUENCE", "CREATE UNLOGGED SEQUENCE", 1)
	}
	if d.eng.server.Owned() {
		sql = "SET ROLE NONE;\n" + sql + fmt.Sprintf("ALTER DATABASE %s SET deadlock_timeout = '%dms';\nALTER DATABASE %[1]s SET log_lock_waits = off;\n", id, deadlockTimeout.Milliseconds())
	}
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("install the virtual clock: %w", err)
	}
	if err := conn.QueryRow(ctx, "SELECT 'simclock.clock'::regclass::oid").Scan(&d.clock); err != nil {
		return fmt.Errorf("find the virtual clock: %w", err)
	}
	return nil
}

const userTables = `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'simclock') ORDER BY 1`

// fingerprint changes when something is created, altered or dropped. Schemas of temporary tables stay behind, empty.
const fingerprint = `SELECT concat_ws('/',
	(SELECT concat(count(*), ' ', max(oid), ' ', sum(relnatts), ' ', sum(relhastriggers::int)) FROM pg_class WHERE oid >= 16384 AND relpersistence <> 't' AND relkind <> 't'),
	(SELECT concat(count(*), ' ', max(oid), ' ', max(xmin::text::bigint)) FROM pg_proc WHERE oid >= 16384),
	(SELECT concat(count(*), ' ', max(oid)) FROM pg_constraint), (SELECT concat(count(*), ' ', max(oid)) FROM pg_trigger),
	(SELECT concat(count(*), ' ', max(oid)) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'), (SELECT count(*) FROM pg_extension))`

// reaching looks for functions that reach other sessions, which a statement's text does not tell.
const reaching = `SELECT coalesce(bool_or(f ~* 'notify'), false), coalesce(bool_or(f ~* 'pg_(terminate|cancel)_backend'), false)
	FROM (SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE p.prokind IN ('f', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'simclock', 'simrun')) AS functions (f)`

// examine learns what the database looks like before a run.
func (d *database) examine(ctx context.Context) error {
	rows, err := d.owner.Query(ctx, userTables)
	if err == nil {
		d.tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return fmt.Errorf("list the tables of the run's database: %w", err)
	}
	for _, t := range d.tables {
		var some bool
		if err := d.owner.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+t+")").Scan(&some); err != nil {
			return fmt.Errorf("look into table %s: %w", t, err)
		}
		if some {
			d.seeded = append(d.seeded, t)
		}
	}
	if err := d.keep(ctx); err != nil {
		return err
	}
	if err := d.owner.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid WHERE tgdeferrable AND f.pronamespace <> 'simrun'::regnamespace)").Scan(&d.deferred); err != nil {
		return fmt.Errorf("look for deferred constraints: %w", err)
	}
	if err := d.owner.QueryRow(ctx, reaching).Scan(&d.notifies, &d.stops); err != nil {
		return fmt.Errorf("look at the functions of the run's database: %w", err)
	}
	if d.plain, err = d.plainTables(ctx); err != nil {
		return err
	}
	if err := d.owner.QueryRow(ctx, fingerprint).Scan(&d.print); err != nil {
		return fmt.Errorf("examine the run's database: %w", err)
	}
	return nil
}

// wipe makes the database what the migrations left. What they put into tables is kept aside and put back; a run that
// changed the catalog costs a new database.
func (d *database) wipe(ctx context.Context) error {
	if !d.used {
		return nil
	}
	if _, err := d.ownerConn(ctx); err != nil {
		return err
	}
	var print string
	if err := d.owner.QueryRow(ctx, fingerprint).Scan(&print); err != nil {
		return fmt.Errorf("examine the run's database: %w", err)
	}
	if print != d.print || len(d.seeded) > 0 && !d.eng.server.Owned() {
		return d.renew(ctx)
	}
	filled, moved, err := d.filled(ctx)
	if err != nil || len(filled)+len(d.seeded) == 0 && !moved {
		return err
	}
	sql := ""
	if len(filled) > 0 {
		sql = "TRUNCATE " + strings.Join(filled, ", ") + " CASCADE;\n"
	}
	for i, t := range d.seeded {
		sql += fmt.Sprintf("INSERT INTO %s OVERRIDING SYSTEM VALUE TABLE simclock.kept_%d;\n", t, i+1)
	}
	sql += d.sequences
	if d.eng.server.Owned() { // without triggers and foreign keys
		sql = "SET ROLE NONE; SET session_replication_role = replica;\n" + sql + "RESET session_replication_role; SET ROLE " + pgx.Identifier{d.eng.server.User()}.Sanitize()
	}
	if _, err := d.owner.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("empty the tables: %w", err)
	}
	return nil
}

// keep puts what the migrations left aside: rows, and where sequences stand.
func (d *database) keep(ctx context.Context) error {
	if d.eng.server.Owned() {
		sql := "SET ROLE NONE;\n"
		for i, t := range d.seeded {
			sql += fmt.Sprintf("CREATE TABLE simclock.kept_%d AS TABLE %s;\n", i+1, t)
		}
		sql += "SET ROLE " + pgx.Identifier{d.eng.server.User()}.Sanitize()
		if _, err := d.owner.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("keep the rows of the migrations: %w", err)
		}
	}
	rows, err := d.owner.Query(ctx, `SELECT s.seqrelid, s.seqrelid::regclass::text AS name, has_sequence_privilege(s.seqrelid, 'SELECT') AS readable,
			coalesce(pg_sequence_last_value(s.seqrelid), s.seqstart) AS last, pg_sequence_last_value(s.seqrelid) IS NOT NULL AS called
		FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace <> 'simclock'::regnamespace ORDER BY 1`)
	if err != nil {
		return fmt.Errorf("list the sequences: %w", err)
	}
	type sequence struct {
		Seqrelid uint32
		Name     string
		Readable bool
		Last     int64
		Called   bool
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[sequence])
	if err != nil {
		return fmt.Errorf("list the sequences: %w", err)
	}
	d.sequences, d.moved = "", "false"
	for _, q := range all {
		if q.Readable {
			if err := d.owner.QueryRow(ctx, "SELECT last_value, is_called FROM "+q.Name).Scan(&q.Last, &q.Called); err != nil {
				return fmt.Errorf("look at the sequence %s: %w", q.Name, err)
			}
			d.moved += fmt.Sprintf(" OR (SELECT (last_value, is_called) IS DISTINCT FROM (%d, %t) FROM %s)", q.Last, q.Called, q.Name)
		}
		d.sequences += fmt.Sprintf("SELECT setval(%d, %d, %t);\n", q.Seqrelid, q.Last, q.Called)
	}
	return nil
}

// filled are the tables that have pages; moved says whether a sequence has been used, which may be so although its table is empty.
func (d *database) filled(ctx context.Context) (tables []string, moved bool, err error) {
	err = d.owner.QueryRow(ctx, "SELECT coalesce(array_agg(t ORDER BY t) FILTER (WHERE pg_relation_size(t::regclass) > 0), '{}'), "+d.moved+
		" FROM unnest($1::text[]) t", d.tables).Scan(&tables, &moved)
	if err != nil {
		return nil, false, fmt.Errorf("look for used tables: %w", err)
	}
	return tables, moved, nil
}

// renew replaces the database by a new one.
func (d *database) renew(ctx context.Context) error {
	e := d.eng
	e.leave()
	e.closePools()
	if err := e.server.DropDatabase(ctx, d.name); err != nil {
		return fmt.Errorf("drop the run's database: %w", err)
	}
	if err := d.create(ctx); err != nil {
		return err
	}
	return e.enter(ctx, d)
}

func (d *database) drop(ctx context.Context) error {
	if d.name == "" {
		return nil
	}
	return d.eng.server.DropDatabase(ctx, d.name)
}

// load adds the workload.
func (d *database) load(ctx context.Context, run sim.Run) error {
	n, every := run.Scenario.Workload.Rows, run.Scenario.Workload.Every
	if n == 0 || run.Impl.Load == "" {
		return nil
	}
	b := &pgx.Batch{}
	for i := 1; i <= n; i++ {
		b.Queue(run.Impl.Load, int64(i), float64(i)*every.Seconds())
	}
	if err := d.owner.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("load the workload of %s: %w", run.Impl.Name, err)
	}
	return nil
}

// ledger reads what was committed, with the time in microseconds since 1970.
func (e *Engine) ledger(ctx context.Context) ([]sim.Event, error) {
	conn, err := e.db.ownerConn(ctx)
	if err != nil {
		return nil, err
	}
	return pg.ReadLedger(ctx, conn, time.Unix(0, 0))
}

// The engine's own statements on the control connection.
var controlStatements = map[string]string{
	"tell_time": `SELECT setval('simclock.clock', $1)`,
	"waits":     `SELECT p, pg_blocking_pids(p)::text, '' FROM unnest($1::int[]) p`,
	"sessions": `SELECT a.pid, CASE WHEN a.state <> 'idle' THEN pg_blocking_pids(a.pid)::text ELSE '{}' END, a.application_name, a.state
		FROM pg_stat_get_activity(NULL) a WHERE a.datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND a.pid <> pg_backend_pid()
		ORDER BY a.state = 'idle', a.state_change DESC`, // of several that a client had of a pool, that which works for it now is first, then the last one
	"moving": `SELECT a.pid FROM pg_stat_get_activity(NULL) a WHERE a.datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND a.pid <> pg_backend_pid()
		AND a.backend_type = 'client backend' AND a.application_name NOT LIKE 'simrun %'
		AND CASE WHEN a.state LIKE 'idle%' THEN a.wait_event IS DISTINCT FROM 'ClientRead' ELSE a.wait_event_type IS DISTINCT FROM 'Lock' END`,
	"holder": `SELECT l.pid, (SELECT a.application_name FROM pg_stat_get_activity(l.pid) a) FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid = (($1::bigint >> 32) & 4294967295)::oid AND l.objid = ($1::bigint & 4294967295)::oid
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
	"holds":     `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = $1::int)`,
	"ledger":    `SELECT kind, app, role, key, row_id, unit, term, token, position FROM simrun.ledger WHERE position > $1 ORDER BY position`,
	"terminate": `SELECT pg_terminate_backend($1::int)`,
	"cancel":    `SELECT pg_cancel_backend($1::int)`,
	"asleep":    `SELECT pid FROM pg_catalog.pg_stat_get_activity(NULL) WHERE state = 'active' AND query = $1::text`,
}

// ask runs one of them. A connection that has gone with its server is opened again, once.
func (e *Engine) ask(name string, args ...string) ([][]string, error) {
	e.stats.Asked[name]++
	for try := 0; ; try++ {
		b, err := e.ctl.roundTrip(bindExecute(name, args), 1)
		if err == nil {
			return rowsOf(b)
		}
		if try > 0 || !errors.Is(err, errServerGone) && e.ctl.fd >= 0 {
			return nil, fmt.Errorf("control statement %s: %w", name, err)
		}
		e.ctl.close()
		if err := e.control(); err != nil {
			return nil, err
		}
	}
}

// answers reports whether the server says at once who waits for whom. When it does not, help is called for, and the
// answer waited for.
func (e *Engine) answers(within time.Duration, help func()) (atOnce bool, err error) {
	if err := e.ctl.send(bindExecute("holder", []string{"0"})); err != nil {
		return false, fmt.Errorf("ask the server: %w", err)
	}
	switch p, _ := e.ctl.recv(1, within); p {
	case answered:
		return true, nil
	case gone:
		return false, fmt.Errorf("ask the server: %w", errServerGone)
	}
	help()
	for began := now(); now()-began < patience; {
		if p, _ := e.ctl.recv(1, time.Millisecond); p != waiting {
			return false, nil
		}
	}
	return false, fmt.Errorf("the database did not answer within %v", patience)
}

// tellTime sets the database's clock, in microseconds since 1970.
func (e *Engine) tellTime(micros int64) error {
	if _, err := e.ask("tell_time", strconv.FormatInt(micros, 10)); err != nil {
		return fmt.Errorf("set the database's clock: %w", err)
	}
	return nil
}

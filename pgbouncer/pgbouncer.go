// Package pgbouncer runs a real PgBouncer in front of a given Postgres, in any pool mode, and does to it what operators
// do: reload it into another mode, restart it, ask its console, kill it.
package pgbouncer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-aafb3a99/simrun/internal/proc"
)

// The pool modes.
const (
	Session     = "session"
	Transaction = "transaction"
	Statement   = "statement"
)

// Options say how a pooler behaves and what stands behind it.
type Options struct {
	Run        *proc.Run
	Mode       string // Session, Transaction or Statement
	PoolSize   int    // server connections per database and user; 0 is 20
	RoundRobin bool   // hand out server connections in turn; PgBouncer's own way is the one used last
	// Host and Port of the Postgres behind it. Clients may name any database; they connect as User. With a Password,
	// both sides use it; without, the server is one that trusts User, and so does the pooler.
	Host           string
	Port           int
	User, Password string
	LogDir, Name   string            // its log is LogDir/Name.log; "" is the run's directory, and pgbouncer
	Settings       map[string]string // added to the section [pgbouncer] of its configuration, over ours
}

// An UnavailableError says in a sentence, without secrets, why there is no PgBouncer.
type UnavailableError struct {
	Problem string
	Err     error
}

func (e *UnavailableError) Error() string {
	if e.Err != nil {
		return e.Problem + ": " + e.Err.Error()
	}
	return e.Problem
}

func (e *UnavailableError) Unwrap() error { return e.Err }

const (
	localhost = "127.0.0.1"
	// startPatience bounds the wait for a pooler to answer; it takes 10 to 20 ms.
	startPatience = 15 * time.Second
)

// A Pooler is a PgBouncer. Its methods may be called from any goroutine.
type Pooler struct {
	program string
	version string
	port    int
	dir     string
	log     *os.File
	logPath string
	admin   account

	freePort func() (int, error)

	mu      sync.Mutex // held by what starts and stops it
	opts    Options
	child   *proc.Child
	stopped bool
}

// Start starts a PgBouncer on a free port of 127.0.0.1 and waits until it answers. When there is none, or it does not
// start, the error is an *UnavailableError. The caller must call Stop.
func Start(ctx context.Context, o Options) (*Pooler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Run == nil {
		return nil, errors.New("start PgBouncer: Options.Run is missing")
	}
	if _, uid, _, _ := proc.Unprivileged(); uid == 0 {
		return nil, &UnavailableError{Problem: "PgBouncer refuses to run as root, and there is no user postgres or nobody to run it as: create one, or start simrun as an ordinary user"}
	}
	p := &Pooler{opts: o, admin: newAdmin(), freePort: proc.FreePort}
	if p.program, p.version, err = find(); err != nil {
		return nil, err
	}
	if err = p.prepare(); err == nil {
		err = p.launch(ctx)
	}
	if err != nil {
		err = errors.Join(err, p.Stop())
		var cannot *proc.Error
		if errors.As(err, &cannot) {
			return nil, &UnavailableError{cannot.Problem, cannot.Err}
		}
		return nil, &UnavailableError{"PgBouncer could not be started", err}
	}
	return p, nil
}

func (o Options) withDefaults() (Options, error) {
	switch o.Mode {
	case Session, Transaction, Statement:
	default:
		return o, &UnavailableError{Problem: fmt.Sprintf("there is no pool mode %q: use session, transaction or statement", o.Mode)}
	}
	if o.PoolSize == 0 {
		o.PoolSize = 20
	}
	if o.Name == "" {
		o.Name = "pgbouncer"
	}
	return o, nil
}

// usual is where Debian puts it, which is not in every user's PATH.
var usual = "/usr/sbin/pgbouncer"

// find finds the program: $SIMRUN_PGBOUNCER and nothing else when it is set, else along PATH, else the usual place.
func find() (program, version string, err error) {
	missing := &UnavailableError{Problem: "PgBouncer is not installed: apt-get install pgbouncer (or set SIMRUN_PGBOUNCER)"}
	program = os.Getenv("SIMRUN_PGBOUNCER")
	if program != "" {
		missing = &UnavailableError{Problem: "SIMRUN_PGBOUNCER is set to " + program + ", but there is no working PgBouncer: set it to the program's path"}
		if program, err = exec.LookPath(program); err != nil {
			missing.Err = err
			return "", "", missing
		}
	} else if program, err = exec.LookPath("pgbouncer"); err != nil {
		if program, err = exec.LookPath(usual); err != nil {
			return "", "", missing
		}
	}
	out, err := exec.Command(program, "--version").Output()
	m := regexp.MustCompile(`PgBouncer (\S+)`).FindSubmatch(out)
	if err != nil || m == nil {
		missing.Err = fmt.Errorf("%s does not tell its version: %w", program, errors.Join(err, errors.New("no version in its output")))
		return "", "", missing
	}
	return program, string(m[1]), nil
}

// HostPort is the address for clients. It stays the same over Restart.
func (p *Pooler) HostPort() (string, int) { return localhost, p.port }

// Version is PgBouncer's version, such as 1.18.0.
func (p *Pooler) Version() string { return p.version }

// prepare makes the directory for its files, and its log.
func (p *Pooler) prepare() (err error) {
	if p.dir, err = p.opts.Run.Mkdir(p.opts.Name + "-" + randomText()[:8]); err != nil {
		return err
	}
	logDir := p.opts.LogDir
	if logDir == "" {
		logDir = p.dir
	}
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return logError(logDir, err)
	}
	p.logPath = filepath.Join(logDir, p.opts.Name+".log")
	// Opened here and handed down: the user whom PgBouncer runs as may have no right to write there.
	if p.log, err = os.OpenFile(p.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return logError(logDir, err)
	}
	return nil
}

func logError(dir string, err error) error {
	return &proc.Error{Problem: "the log of PgBouncer cannot be written in " + dir + ": choose another directory for the output", Err: err}
}

// launch starts it on a free port, on another one when somebody took the port meanwhile.
func (p *Pooler) launch(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := p.freePort()
		if err != nil {
			return err
		}
		p.port = port
		if err = p.start(ctx); err == nil || try == 5 || !proc.PortTaken(port) {
			return err
		}
	}
}

// start starts it on its port and waits until it answers.
func (p *Pooler) start(ctx context.Context) error {
	if err := p.configure(p.opts); err != nil {
		return err
	}
	offset, err := p.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	p.child, err = p.opts.Run.Start(proc.Spec{
		Name: "PgBouncer", Path: p.program, Args: []string{p.configPath()},
		Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}, Dir: p.dir,
		Stdout: p.log, Stderr: p.log, Unprivileged: true,
	})
	if err != nil {
		return err
	}
	if err := p.ready(ctx); err != nil {
		if words := p.lastWords(offset); words != "" {
			err = fmt.Errorf("%w; the end of its log: %s", err, words)
		}
		return errors.Join(err, p.child.Kill())
	}
	return nil
}

// ready waits until the console answers, and answers as ours: somebody else's pooler may have taken the port.
func (p *Pooler) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		file, err := p.setting(ctx, "conffile")
		if err == nil && file == p.configPath() {
			return nil
		}
		select {
		case <-p.child.Done():
			return fmt.Errorf("it ended (%v)", p.child.Err())
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// setting asks the console for a setting in force.
func (p *Pooler) setting(ctx context.Context, name string) (string, error) {
	rows, err := p.Admin(ctx, "SHOW CONFIG")
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		if row[0] == name {
			return row[1], nil
		}
	}
	return "", fmt.Errorf("SHOW CONFIG has no %s", name)
}

// Admin runs a command of PgBouncer's console, such as SHOW POOLS or PAUSE, and returns its rows, if it has any, as text.
func (p *Pooler) Admin(ctx context.Context, cmd string) (rows [][]string, err error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s dbname=pgbouncer sslmode=disable", localhost, p.port, p.admin.user))
	if err != nil {
		return nil, fmt.Errorf("PgBouncer %s: the environment variables PG... stand in the way of a connection: %w", cmd, err)
	}
	cfg.Password = p.admin.password
	cfg.RuntimeParams = map[string]string{}
	conn, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("PgBouncer %s: connect to its console: %w", cmd, err)
	}
	defer conn.Close(ctx)
	results, err := conn.Exec(ctx, cmd).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("PgBouncer %s: %w", cmd, err)
	}
	for _, result := range results {
		for _, row := range result.Rows {
			text := make([]string, len(row))
			for i, v := range row {
				text[i] = string(v)
			}
			rows = append(rows, text)
		}
	}
	return rows, nil
}

// Reload changes the configuration of the running pooler, its clients staying connected: mode, pool size, round robin
// and settings are taken from o, the rest stays. It returns when the new pool mode is in force.
func (p *Pooler) Reload(ctx context.Context, o Options) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, err := o.withDefaults()
	if err != nil {
		return err
	}
	changed := p.opts
	changed.Mode, changed.PoolSize, changed.RoundRobin, changed.Settings = next.Mode, next.PoolSize, next.RoundRobin, next.Settings
	if err := p.configure(changed); err != nil {
		return err
	}
	if _, err := p.Admin(ctx, "RELOAD"); err != nil {
		return err
	}
	mode, err := p.setting(ctx, "pool_mode")
	if err != nil {
		return err
	}
	if mode != changed.Mode {
		return fmt.Errorf("PgBouncer RELOAD: the pool mode is %s and not %s", mode, changed.Mode)
	}
	p.opts = changed
	return nil
}

// Kill kills it (SIGKILL). Restart brings it back.
func (p *Pooler) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kill()
}

func (p *Pooler) kill() error {
	if p.child == nil {
		return nil
	}
	return p.child.Kill()
}

// Restart ends it, if it runs, and starts it again on the same port.
func (p *Pooler) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errors.New("restart PgBouncer: it was stopped for good")
	}
	if err := p.end(); err != nil {
		return fmt.Errorf("restart PgBouncer: %w", err)
	}
	if err := p.start(ctx); err != nil {
		return fmt.Errorf("restart PgBouncer: %w", err)
	}
	return nil
}

// Stop ends it and removes its files. It may be called again.
func (p *Pooler) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	err := p.end()
	if p.log != nil {
		err = errors.Join(err, p.log.Close())
	}
	if p.dir != "" {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

// end asks it to shut down, and kills it when it waits for something: from version 1.23 on it waits for its clients.
func (p *Pooler) end() error {
	if p.child == nil {
		return nil
	}
	if err := p.child.Signal(syscall.SIGTERM); err == nil {
		t := time.NewTimer(300 * time.Millisecond)
		defer t.Stop()
		select {
		case <-p.child.Done():
		case <-t.C:
		}
	}
	return p.kill()
}

// Done is closed when the running process has ended. After Restart there is another one.
func (p *Pooler) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.Done()
}

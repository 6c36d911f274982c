package pg

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// An adminSession is the connection over which a server's own work is done. It is opened when it is needed and opened
// again when it broke.
type adminSession struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

func (a *adminSession) do(ctx context.Context, s *Server, f func(*pgx.Conn) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.conn != nil && !a.conn.IsClosed() && a.conn.Ping(ctx) != nil {
		a.shut() // the server was restarted
	}
	if a.conn == nil || a.conn.IsClosed() {
		cfg, err := s.config(s.home(), "simrun admin")
		if err != nil {
			return err
		}
		if a.conn, err = s.connect(ctx, cfg); err != nil {
			return err
		}
	}
	return f(a.conn)
}

// home is the database that is there already.
func (s *Server) home() string {
	if s.attached != nil {
		return s.attached.home
	}
	return superuser
}

func (a *adminSession) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shut()
}

func (a *adminSession) shut() {
	if a.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = a.conn.Close(ctx) // it is given up whatever the server says
	a.conn = nil
}

func (s *Server) readVersion(ctx context.Context, conn *pgx.Conn) error {
	var text string
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('server_version_num')::int").Scan(&text, &s.number); err != nil {
		return fmt.Errorf("ask the server for its version: %w", err)
	}
	s.version, _, _ = strings.Cut(text, " ") // "15.18 (Debian 15.18-0+deb12u1)"
	return nil
}

// NewDatabaseName is a name for CreateDatabase that nobody else uses.
func (s *Server) NewDatabaseName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counter++
	return fmt.Sprintf("%s_%d", s.prefix, s.counter)
}

// databaseName is what a database of ours may be called.
var databaseName = regexp.MustCompile(`^simrun_[a-z0-9_]{1,50}$`)

// CreateDatabase creates a database that belongs to User, as a copy of template or, when that is "", of an empty one.
// The name must begin with simrun_; NewDatabaseName makes one. Nobody may be connected to the template.
func (s *Server) CreateDatabase(ctx context.Context, name, template string) error {
	if !databaseName.MatchString(name) {
		return fmt.Errorf("create database %q: the names of simrun's databases are simrun_ and small letters, digits and underscores", name)
	}
	if template == "" {
		template = "template0" // not template1: on a given server somebody may have put things there
	}
	sql := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s", quote(name), quote(template), quote(s.user))
	if s.local != nil && s.number >= 150000 {
		sql += " STRATEGY file_copy" // twice as quick on a server that does not flush
	}
	// A session that was closed a moment ago still counts as connected until its backend has ended. The server itself
	// waits for that, up to five seconds.
	err := s.admin.do(ctx, s, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	s.mu.Lock()
	s.made[name] = true
	s.mu.Unlock()
	return nil
}

// standGuard opens the session that shows others that this run lives, as long as it lasts: its name is what the names of
// the run's databases begin with.
func (s *Server) standGuard(ctx context.Context) error {
	cfg, err := s.config(s.home(), s.prefix)
	if err != nil {
		return err
	}
	cfg.RuntimeParams["idle_session_timeout"] = "0"
	s.guard, err = s.connect(ctx, cfg)
	return err
}

func hasCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}

// DropDatabase drops a database that CreateDatabase made, and ends the sessions in it. It refuses any other.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if !s.owns(name) {
		return fmt.Errorf("drop database %q: it was not made by this run", name)
	}
	err := s.admin.do(ctx, s, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
		return err
	})
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	s.mu.Lock()
	delete(s.made, name)
	s.mu.Unlock()
	return nil
}

// owns reports whether this run made the database.
func (s *Server) owns(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[name]
}

// detach drops this run's databases in a given server.
func (s *Server) detach() error {
	ctx, cancel := context.WithTimeout(context.Background(), attachPatience)
	defer cancel()
	s.mu.Lock()
	var names []string
	for name := range s.made {
		names = append(names, name)
	}
	s.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, s.DropDatabase(ctx, name))
	}
	s.admin.close()
	if s.guard != nil {
		errs = append(errs, s.guard.Close(ctx))
	}
	return scrub(errors.Join(errs...), s.attached.password)
}

// sweepDatabases drops what dead runs left in a given server: databases of our own role with a name of ours, whose run's
// guard is gone. One that still has a session in it is left alone.
func (s *Server) sweepDatabases(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_database d
		WHERE datname ~ '^simrun_[a-z0-9]{10}_[0-9]+$' AND datdba = (SELECT oid FROM pg_roles WHERE rolname = current_user)
		AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = substr(d.datname, 1, 17))`)
	if err != nil {
		return fmt.Errorf("look for databases of earlier runs: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for databases of earlier runs: %w", err)
	}
	for _, name := range names {
		// In use, or dropped by another run that sweeps: not ours to care about.
		if _, err := conn.Exec(ctx, "DROP DATABASE "+quote(name)); err != nil && !hasCode(err, "55006") && !hasCode(err, "3D000") {
			return fmt.Errorf("drop database %s of an earlier run: %w", name, err)
		}
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

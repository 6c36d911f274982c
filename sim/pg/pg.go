// Package pg gives a run a real Postgres: a private server started from local binaries, or databases of its own in a
// server that it is given. It also knows what can be done to and asked of a server: end sessions, say who holds a lock,
// and keep a ledger of what was committed, in commit order.
package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
)

// Where a server may come from.
const (
	Auto  = "auto"  // the given address when there is one, else local
	Local = "local" // a private server from local binaries
	DSN   = "dsn"   // databases in the server at Options.DSN
)

// Options say which Postgres to use.
type Options struct {
	Run     *proc.Run // keeps the server's processes and files; for a local server
	Backend string    // Auto, Local or DSN; "" is Auto
	DSN     string    // address of a given server; may hold a password, which then appears in no error
	LogDir  string    // a local server's postgres.log goes there; "" is the server's own directory, which Stop removes
	Durable bool      // a local server flushes its writes to disk, as a user's would
	// Settings are added to a local server's postgresql.conf, after ours.
	Settings map[string]string
}

// A Server is a running Postgres. Its methods may be called from any goroutine.
type Server struct {
	backend  string
	version  string // "15.18"
	number   int    // 150018
	host     string
	port     int
	user     string
	prefix   string // of the names of its databases: simrun_ and random letters
	local    *cluster
	attached *attachment

	mu      sync.Mutex
	counter int
	made    map[string]bool // databases it created and has not dropped

	admin adminSession
	guard *pgx.Conn // see standGuard; nil on an owned server
}

// Start starts a server, or connects to the given one. When it cannot, the error is a *sim.EnvironmentError. The caller
// must call Stop.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{made: map[string]bool{}, prefix: "simrun_" + randomName()}
	switch backend := o.Backend; {
	case backend == DSN, (backend == Auto || backend == "") && o.DSN != "":
		if o.DSN == "" {
			return nil, &sim.EnvironmentError{Problem: "no address of a Postgres server was given: set SIMRUN_DSN to postgres://user@host:5432/database"}
		}
		s.backend = DSN
		if err := s.attach(ctx, o); err != nil {
			return nil, err
		}
	case backend == Local, backend == Auto, backend == "":
		s.backend = Local
		if err := s.startLocal(ctx, o); err != nil {
			return nil, err
		}
	default:
		return nil, &sim.EnvironmentError{Problem: fmt.Sprintf("there is no Postgres backend %q: use %s, %s or %s", backend, Auto, Local, DSN)}
	}
	return s, nil
}

// Backend is Local or DSN.
func (s *Server) Backend() string { return s.backend }

// Version is the server's version, such as 15.18.
func (s *Server) Version() string { return s.version }

// Owned reports whether the server was started by us, so that it may be restarted and its settings changed.
func (s *Server) Owned() bool { return s.local != nil }

// HostPort is the server's TCP address.
func (s *Server) HostPort() (string, int) { return s.host, s.port }

// SocketDir is the directory of an owned server's Unix socket, "" of a given server. Only root and the user whom the
// server runs as can enter it.
func (s *Server) SocketDir() string {
	if s.local == nil {
		return ""
	}
	return s.local.sockets
}

// User is the role in DSN. It owns the databases made by CreateDatabase, and on an owned server it is no superuser.
func (s *Server) User() string { return s.user }

// Password is the password in DSN; "" on an owned server, which trusts User.
func (s *Server) Password() string {
	if s.attached == nil {
		return ""
	}
	return s.attached.password
}

// DSN is the address of a database, for the code under test. It may hold a password.
func (s *Server) DSN(database string) string {
	if s.attached != nil {
		return s.attached.dsn(database)
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(s.user),
		Host:     net.JoinHostPort(s.host, strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Connect opens a control connection that no fault touches: straight to the server, by its Unix socket when it is ours,
// where it also gets one of the slots that are kept for superusers. What it creates belongs to User all the same; SET
// ROLE NONE turns it into a superuser on an owned server. "" as appName is "simrun control".
func (s *Server) Connect(ctx context.Context, database, appName string) (*pgx.Conn, error) {
	cfg, err := s.config(database, appName)
	if err != nil {
		return nil, err
	}
	if s.local != nil {
		cfg.RuntimeParams["role"] = s.user
	}
	return s.connect(ctx, cfg)
}

func (s *Server) connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", cfg.Database, scrub(err, s.Password()))
	}
	return conn, nil
}

// config is the configuration of a control connection: as superuser when the server is ours.
func (s *Server) config(database, appName string) (*pgx.ConnConfig, error) {
	if appName == "" {
		appName = "simrun control"
	}
	var cfg *pgx.ConnConfig
	var err error
	if s.local != nil {
		cfg, err = s.local.config(database)
	} else if cfg, err = pgx.ParseConfig(s.attached.dsn(database)); err != nil {
		err = errors.New("the address of the Postgres server cannot be read") // pgx's own text quotes it
	}
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = appName
	return cfg, nil
}

// Stop drops the databases made in a given server, or ends an owned server and removes its files. It may be called
// again.
func (s *Server) Stop() error {
	if s.local != nil {
		s.admin.close()
		return s.local.stop()
	}
	return s.detach()
}

// Alive is nil as long as an owned server's process lives, and while it is being restarted. It is the word of the
// operating system: a given server is always said to live.
func (s *Server) Alive() error {
	if s.local == nil {
		return nil
	}
	child := s.local.child.Load()
	if child == nil {
		return nil
	}
	select {
	case <-child.Done():
		return &sim.EnvironmentError{Problem: "Postgres ended by itself: its log may say why", Err: child.Err()}
	default:
		return nil
	}
}

// Checkpoint has an owned server write out what it changed, so that it is up again soon after a crash: what has to be replayed is what came
// since the last checkpoint, and without this one that may be an hour's work of many runs. It does nothing to a given server.
func (s *Server) Checkpoint(ctx context.Context) error {
	if s.local == nil {
		return nil
	}
	err := s.admin.do(ctx, s, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CHECKPOINT")
		return err
	})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Restart stops an owned server, fast (sessions are ended with a message) or immediate (as in a crash), and starts it on
// the same port. It returns when the server accepts connections again.
func (s *Server) Restart(ctx context.Context, mode string) error {
	if s.local == nil {
		return errors.New("restart Postgres: a given server is not ours to restart")
	}
	s.admin.close()
	if err := s.local.restart(ctx, mode); err != nil {
		return fmt.Errorf("restart Postgres (%s): %w", mode, err)
	}
	return nil
}

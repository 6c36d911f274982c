package pg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-aafb3a99/simrun/sim"
)

// attachPatience bounds the wait for a given server.
const attachPatience = 15 * time.Second

// An attachment is what is known of a given server's address.
type attachment struct {
	user, password string
	host           string
	port           int
	home           string     // the database in the address
	extra          url.Values // sslmode and the like
}

// attach connects to the given server, and says in one sentence why it is of no use.
func (s *Server) attach(ctx context.Context, o Options) error {
	a, err := parseAddress(o.DSN)
	if err != nil {
		return err
	}
	s.attached, s.host, s.port, s.user = a, a.host, a.port, a.user
	ctx, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	err = s.admin.do(ctx, s, func(conn *pgx.Conn) error {
		if err := s.readVersion(ctx, conn); err != nil {
			return err
		}
		return s.suits(ctx, conn)
	})
	if err == nil {
		err = s.standGuard(ctx)
	}
	if err == nil {
		return nil
	}
	s.admin.close()
	var env *sim.EnvironmentError
	if errors.As(err, &env) {
		return env
	}
	return &sim.EnvironmentError{Problem: a.problem(err), Err: scrub(err, a.password)}
}

// suits says why the server does not suit.
func (s *Server) suits(ctx context.Context, conn *pgx.Conn) error {
	where := s.attached.where()
	if s.number < oldest*10000 {
		return &sim.EnvironmentError{Problem: fmt.Sprintf("the Postgres at %s is version %s, but simrun needs %d or later", where, s.version, oldest)}
	}
	var pid uint32
	var standby, mayCreate bool
	err := conn.QueryRow(ctx, `SELECT pg_backend_pid(), pg_is_in_recovery(),
		(SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user)`).Scan(&pid, &standby, &mayCreate)
	switch {
	case err != nil:
		return fmt.Errorf("ask the server about itself: %w", err)
	case pid != conn.PgConn().PID():
		// PgBouncer makes up the number in the key for cancelling; Postgres sends its own.
		return &sim.EnvironmentError{Problem: fmt.Sprintf("there is a connection pooler at %s: set SIMRUN_DSN to the address of Postgres itself, simrun brings its own poolers", where)}
	case standby:
		return &sim.EnvironmentError{Problem: fmt.Sprintf("the Postgres at %s is a standby and cannot be written to: set SIMRUN_DSN to the address of the primary", where)}
	case !mayCreate:
		return &sim.EnvironmentError{Problem: fmt.Sprintf("the role %s may not create databases at %s, and simrun works only in its own: ALTER ROLE ... CREATEDB, or name another role in SIMRUN_DSN", s.user, where)}
	}
	return s.sweepDatabases(ctx, conn)
}

// parseAddress reads an address in either of the forms that Postgres knows. Errors do not quote it.
func parseAddress(dsn string) (*attachment, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, &sim.EnvironmentError{Problem: "SIMRUN_DSN is not an address of a Postgres server: write postgres://user@host:5432/database"}
	}
	a := &attachment{user: cfg.User, password: cfg.Password, host: cfg.Host, port: int(cfg.Port), home: cfg.Database, extra: extras(dsn)}
	if a.home == "" {
		a.home = a.user
	}
	if strings.HasPrefix(a.host, "/") {
		return nil, &sim.EnvironmentError{Problem: "SIMRUN_DSN names a Unix socket, but faults of the network need TCP: write postgres://user@host:5432/database"}
	}
	for _, f := range cfg.Fallbacks { // the same host again, without TLS, is no other host
		if f.Host != cfg.Host || f.Port != cfg.Port {
			return nil, &sim.EnvironmentError{Problem: "SIMRUN_DSN names several hosts: name one"}
		}
	}
	return a, nil
}

// extras are the settings in an address besides those that dsn writes itself.
func extras(dsn string) url.Values {
	v := url.Values{}
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		if u, err := url.Parse(dsn); err == nil {
			v = u.Query()
		}
	} else {
		v = keywords(dsn)
	}
	for _, own := range []string{"host", "hostaddr", "port", "user", "password", "dbname", "database", "application_name"} {
		v.Del(own)
	}
	return v
}

// keywords reads the form "key=value key='another value'" (libpq, 34.1.1.1), which pgx has found well-formed.
func keywords(s string) url.Values {
	v := url.Values{}
	for {
		key, rest, ok := strings.Cut(s, "=")
		if !ok {
			return v
		}
		rest = strings.TrimLeft(rest, " \t\r\n")
		quoted := strings.HasPrefix(rest, "'")
		rest = strings.TrimPrefix(rest, "'")
		var value strings.Builder
		i := 0
		for ; i < len(rest); i++ {
			c := rest[i]
			if c == '\\' && i+1 < len(rest) {
				i++
				value.WriteByte(rest[i])
				continue
			}
			if quoted && c == '\'' || !quoted && strings.IndexByte(" \t\r\n", c) >= 0 {
				i++
				break
			}
			value.WriteByte(c)
		}
		v.Set(strings.TrimSpace(key), value.String())
		s = rest[i:]
	}
}

// dsn is the address of another database of the same server.
func (a *attachment) dsn(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(a.user), Host: a.where(), Path: "/" + database, RawQuery: a.extra.Encode()}
	if a.password != "" {
		u.User = url.UserPassword(a.user, a.password)
	}
	return u.String()
}

// where is the address as people may see it.
func (a *attachment) where() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// problem puts a failed connection into words.
func (a *attachment) problem(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch {
		case strings.HasPrefix(pgErr.Code, "28"):
			return fmt.Sprintf("the Postgres at %s does not let the role %s in: check the role and the password in SIMRUN_DSN", a.where(), a.user)
		case pgErr.Code == "3D000":
			return fmt.Sprintf("there is no database %s at %s: name one that exists in SIMRUN_DSN", a.home, a.where())
		case pgErr.Code == "53300":
			return fmt.Sprintf("the Postgres at %s has no connection left: end some, or raise max_connections", a.where())
		}
		return fmt.Sprintf("the Postgres at %s cannot be used", a.where())
	}
	return fmt.Sprintf("no Postgres answers at %s: start it, or correct SIMRUN_DSN", a.where())
}

// scrub returns err if its text does not hold the password, and otherwise its text without it.
func scrub(err error, password string) error {
	if err == nil || password == "" {
		return err
	}
	text := err.Error()
	for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
		text = strings.ReplaceAll(text, form, "***")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

func randomName() string { return strings.ToLower(rand.Text()[:10]) }

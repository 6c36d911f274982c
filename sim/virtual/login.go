package virtual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// The engine speaks the protocol itself, but no authentication. Where a given server wants to know who we are, pgx logs in,
// outside the bubble, and its socket is taken over.

// openLink starts a session with s under a name, with the server's password where that is asked for.
func (e *Engine) openLink(addr string, s startup, name string) (*link, error) {
	if !e.asked[addr] {
		l, err := openLink(addr, s, name)
		if !errors.Is(err, errPassword) || e.server.Password() == "" {
			return l, err
		}
		e.asked[addr] = true
	}
	var l *link
	var err error
	e.outside.do(func() { l, err = e.login(addr, s, name) })
	return l, err
}

func (e *Engine) login(addr string, s startup, name string) (*link, error) {
	cfg, err := pgconn.ParseConfig(e.server.DSN(s.get("database")))
	if err != nil {
		return nil, errors.New("the server's address cannot be read") // err may quote it, password and all
	}
	cfg.TLSConfig, cfg.Fallbacks = nil, nil
	cfg.User, cfg.ConnectTimeout = s.get("user"), patience
	cfg.RuntimeParams = map[string]string{}
	for i := 0; i+1 < len(s.params); i += 2 {
		if k := s.params[i]; k != "user" && k != "database" {
			cfg.RuntimeParams[k] = s.params[i+1]
		}
	}
	cfg.RuntimeParams["application_name"] = name
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		network := "tcp"
		if strings.HasPrefix(addr, "/") {
			network = "unix"
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // addr is where it is
	conn, err := pgconn.ConnectConfig(context.Background(), cfg)
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		raw, err := (&pgproto3.ErrorResponse{Severity: refused.Severity, SeverityUnlocalized: cmp.Or(refused.SeverityUnlocalized, "FATAL"), Code: refused.Code, Message: refused.Message}).Encode(nil)
		return &link{fd: -1, key: s.key(), hello: hello{raw: raw, failed: refused.Code}}, err
	}
	if err != nil {
		return nil, fmt.Errorf("log in to the database: %w", err)
	}
	h, err := conn.Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over a connection to the database: %w", err)
	}
	defer h.Conn.Close()
	fd, err := duplicate(h.Conn)
	if err != nil {
		return nil, fmt.Errorf("take over a connection to the database: %w", err)
	}
	l := &link{fd: fd, key: s.key()}
	l.hello = parseHello(greeting(h))
	return l, nil
}

// duplicate is a descriptor of c's socket that outlives c.
func duplicate(c net.Conn) (fd int, err error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a %T has no socket of its own", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	var problem error
	err = raw.Control(func(old uintptr) {
		n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, old, syscall.F_DUPFD_CLOEXEC, 0)
		if fd = int(n); errno != 0 {
			problem = errno
		}
	})
	return fd, errors.Join(err, problem)
}

// greeting is what the server said to a session that has logged in, without the authentication; settings in order of their names.
func greeting(h *pgconn.HijackedConn) []byte {
	b := rawMessage('R', []byte{0, 0, 0, 0})
	for _, name := range slices.Sorted(maps.Keys(h.ParameterStatuses)) {
		b = append(b, message('S', name+"\x00"+h.ParameterStatuses[name])...)
	}
	key := append([]byte(nil), h.SecretKey...)
	pid := h.PID
	k := append([]byte{byte(pid >> 24), byte(pid >> 16), byte(pid >> 8), byte(pid)}, key...)
	b = append(b, rawMessage('K', k)...)
	return append(b, rawMessage('Z', []byte{'I'})...)
}

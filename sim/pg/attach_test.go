package pg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
)

// secret is a password with everything in it that an address has to escape.
const secret = `p@s:s/w r'd\%41?&=`

func start(t *testing.T) *Server {
	t.Helper()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	s, err := Start(context.Background(), Options{Run: run, Backend: Local})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// given is a server as somebody else would run it: roles with passwords, no trust, and a database of theirs.
func given(t *testing.T) *Server {
	t.Helper()
	s := start(t)
	sql(t, s, superuser, "CREATE ROLE alice LOGIN CREATEDB PASSWORD "+literal(secret))
	sql(t, s, superuser, "CREATE ROLE bob LOGIN PASSWORD "+literal(secret))
	sql(t, s, superuser, "CREATE DATABASE theirs OWNER alice")
	require.NoError(t, s.local.run.WriteFile(filepath.Join(s.local.data, "pg_hba.conf"), []byte("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")))
	sql(t, s, superuser, "SELECT pg_reload_conf()")
	return s
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// sql runs a statement as superuser.
func sql(t *testing.T, s *Server, database, text string) {
	t.Helper()
	cfg, err := s.config(database, "somebody else")
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.PgConn().Exec(context.Background(), text).ReadAll()
	require.NoError(t, err)
}

func databases(t *testing.T, s *Server) (names []string) {
	t.Helper()
	require.NoError(t, s.admin.do(context.Background(), s, func(conn *pgx.Conn) error {
		rows, err := conn.Query(context.Background(), "SELECT datname FROM pg_database WHERE datname ~ '^(simrun|theirs)' ORDER BY 1")
		require.NoError(t, err)
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	return names
}

func TestAttach(t *testing.T) {
	t.Parallel()
	server := given(t)
	t.Run("use", func(t *testing.T) { testAttach(t, server) })
	t.Run("sweep", func(t *testing.T) { testAttachSweeps(t, server) })
	t.Run("failures", func(t *testing.T) { testAttachFailures(t, server) }) // makes it a standby in the end
}

func testAttach(t *testing.T, server *Server) {
	ctx := context.Background()
	a := attachment{user: "alice", password: secret, host: localhost, port: server.port}
	address := a.dsn("theirs")
	kv := fmt.Sprintf(`host=127.0.0.1 port=%d user=alice dbname = theirs password='%s' sslmode=disable`, server.port, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(secret))

	for form, dsn := range map[string]string{"url": address + "?sslmode=disable", "keywords": kv} {
		t.Run(form, func(t *testing.T) {
			s, err := Start(ctx, Options{DSN: dsn})
			require.NoError(t, err)
			require.Equal(t, DSN, s.Backend())
			require.False(t, s.Owned())
			require.Equal(t, server.Version(), s.Version())
			require.Equal(t, "alice", s.User())
			require.Equal(t, secret, s.Password())
			require.Empty(t, s.SocketDir())
			host, port := s.HostPort()
			require.Equal(t, localhost, host)
			require.Equal(t, server.port, port)
			require.Error(t, s.Restart(ctx, "fast"))

			name := s.NewDatabaseName()
			require.NoError(t, s.CreateDatabase(ctx, name, ""))
			require.Contains(t, s.DSN(name), "sslmode=disable")
			victim, err := pgx.Connect(ctx, s.DSN(name)+"&application_name=victim")
			require.NoError(t, err)
			defer victim.Close(ctx)
			require.NoError(t, InstallLedger(ctx, victim))
			control, err := s.Connect(ctx, name, "")
			require.NoError(t, err)
			defer control.Close(ctx)
			_, err = victim.Exec(ctx, "SELECT pg_advisory_lock(4)")
			require.NoError(t, err)
			holders, err := Holders(ctx, control, name, 4)
			require.NoError(t, err)
			require.Len(t, holders, 1)
			require.Equal(t, "victim", holders[0].AppName)
			gone, err := s.TerminateSession(ctx, name, "victim")
			require.NoError(t, err)
			require.True(t, gone)

			// Sessions and databases of others are not ours to end.
			_, err = s.TerminateSession(ctx, "theirs", "somebody else")
			require.Error(t, err)
			require.Error(t, s.DropDatabase(ctx, "theirs"))
			require.NoError(t, control.Close(ctx))
			require.NoError(t, s.CreateDatabase(ctx, s.NewDatabaseName(), name), "a copy")

			require.NoError(t, s.Stop())
			require.Equal(t, []string{"theirs"}, databases(t, server))
			require.NoError(t, s.Stop(), "again")
		})
	}
}

// What a killed run left is dropped by the next one, and nothing else is.
func testAttachSweeps(t *testing.T, server *Server) {
	ctx := context.Background()
	a := attachment{user: "alice", password: secret, host: localhost, port: server.port}
	living, err := Start(ctx, Options{DSN: a.dsn("theirs")})
	require.NoError(t, err)
	name := living.NewDatabaseName()
	require.NoError(t, living.CreateDatabase(ctx, name, ""))
	living.admin.close() // its guard is enough

	for _, left := range []string{"simrun_aaaaaaaaaa_1", "simrun_aaaaaaaaaa_22", "simrun_inuse00000_1", "simrun_mine"} {
		sql(t, server, superuser, "CREATE DATABASE "+left+" OWNER alice")
	}
	sql(t, server, superuser, "CREATE DATABASE simrun_ofothers00_1")
	cfg, err := server.config("simrun_inuse00000_1", "somebody else")
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	defer conn.Close(ctx)

	next, err := Start(ctx, Options{DSN: a.dsn("theirs")})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{name, "simrun_inuse00000_1", "simrun_mine", "simrun_ofothers00_1", "theirs"}, databases(t, server))
	require.NoError(t, next.Stop())
	require.NoError(t, living.Stop())
}

func testAttachFailures(t *testing.T, server *Server) {
	ctx := context.Background()
	address := func(user, password, database string) string {
		a := attachment{user: user, password: password, host: localhost, port: server.port}
		return a.dsn(database)
	}
	port, err := proc.FreePort()
	require.NoError(t, err)
	nobody := attachment{user: "alice", password: secret, host: localhost, port: port}

	host, backend := server.HostPort()
	pooler, err := pgbouncer.Start(ctx, pgbouncer.Options{Run: server.local.run, Mode: pgbouncer.Session, Host: host, Port: backend, User: "alice", Password: secret})
	require.NoError(t, err)
	_, poolerPort := pooler.HostPort()
	pooled := attachment{user: "alice", password: secret, host: localhost, port: poolerPort}

	fails := func(t *testing.T, dsn, words string) {
		t.Helper()
		_, err := Start(ctx, Options{Backend: DSN, DSN: dsn})
		var env *sim.EnvironmentError
		require.ErrorAs(t, err, &env)
		require.Contains(t, env.Problem, words)
		for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", env.Err)} {
			for _, part := range []string{secret, "w r'd", "not-the-one", "p%40s"} {
				require.NotContains(t, text, part)
			}
		}
	}
	for name, c := range map[string]struct{ dsn, words string }{
		"none":           {"", "no address of a Postgres server was given"},
		"garbage":        {"postgres://alice:not-the-one@[::/x?y=" + secret, "is not an address of a Postgres server"},
		"more garbage":   {"host=127.0.0.1 password=not-the-one port=many", "is not an address of a Postgres server"},
		"wrong password": {address("alice", "not-the-one", "theirs"), "does not let the role alice in"},
		"no such role":   {address("carol", secret, "theirs"), "does not let the role carol in"},
		"no database":    {address("alice", secret, "missing"), "there is no database missing"},
		"nobody there":   {nobody.dsn("theirs"), "no Postgres answers at 127.0.0.1"},
		"may not create": {address("bob", secret, "theirs"), "the role bob may not create databases"},
		"a pooler":       {pooled.dsn("theirs"), "there is a connection pooler at"},
		"a socket":       {"host=" + server.SocketDir() + " user=alice dbname=theirs", "names a Unix socket"},
		"several hosts":  {"postgres://alice@127.0.0.1,127.0.0.2/theirs", "names several hosts"},
	} {
		t.Run(name, func(t *testing.T) { fails(t, c.dsn, c.words) })
	}
	t.Run("a standby", func(t *testing.T) {
		require.NoError(t, server.local.run.WriteFile(filepath.Join(server.local.data, "standby.signal"), nil))
		// Our own pg_hba.conf comes back with a restart: alice is no role it knows.
		server.local.hba = "local all all trust\nhost all all all trust\n"
		require.NoError(t, server.Restart(ctx, "fast"))
		fails(t, address("alice", secret, "theirs"), "is a standby")
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://u:p@h:1/d?sslmode=require&application_name=x&connect_timeout=3": "postgres://u:p@h:1/new?connect_timeout=3&sslmode=require",
		"postgresql://u@h/d":                "postgres://u@h:5432/new",
		"postgres://u@[::1]:7/d":            "postgres://u@[::1]:7/new",
		"host=h user=u":                     "postgres://u@h:5432/new",
		"host = h user='u u' password=p\\'": "postgres://u%20u:p%27@h:5432/new",
		"postgres:///d?host=h&user=u&password=p&options=-c%20x%3Dy": "postgres://u:p@h:5432/new?options=-c+x%3Dy",
		"host=h user=u options='-c x=y' sslmode=disable":            "postgres://u@h:5432/new?options=-c+x%3Dy&sslmode=disable",
	} {
		a, err := parseAddress(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, want, a.dsn("new"), dsn)
		_, err = pgx.ParseConfig(a.dsn("new"))
		require.NoError(t, err)
	}
}

func TestScrub(t *testing.T) {
	t.Parallel()
	plain := os.ErrNotExist
	require.Equal(t, plain, scrub(plain, secret))
	require.Equal(t, plain, scrub(plain, ""))
	require.NoError(t, scrub(nil, secret))
	a := attachment{user: "alice", password: secret, host: "h", port: 1}
	err := scrub(fmt.Errorf("cannot use %s (%s): %w", a.dsn("d"), secret, plain), secret)
	require.NotContains(t, err.Error(), "w r'd")
	require.NotContains(t, err.Error(), "41?")
	require.Contains(t, err.Error(), "***")
}

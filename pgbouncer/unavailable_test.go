package pgbouncer

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

func newRun(t *testing.T) *proc.Run {
	t.Helper()
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	return run
}

func own(t *testing.T) Options {
	s := pgtest.Server(t)
	o := Options{Run: newRun(t), Mode: Session, User: s.User()}
	o.Host, o.Port = s.HostPort()
	return o
}

// Not parallel: it changes where the program is looked for.
func TestUnavailable(t *testing.T) {
	o := own(t)
	fails := func(words string) {
		t.Helper()
		_, err := Start(context.Background(), o)
		var unavailable *UnavailableError
		require.ErrorAs(t, err, &unavailable)
		require.Contains(t, unavailable.Problem, words)
	}
	t.Run("not installed", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		defer func(was string) { usual = was }(usual)
		usual = "/nonexistent/pgbouncer"
		fails("PgBouncer is not installed: apt-get install pgbouncer (or set SIMRUN_PGBOUNCER)")
	})
	t.Run("not in PATH", func(t *testing.T) {
		program, _, err := find()
		require.NoError(t, err)
		t.Setenv("PATH", t.TempDir())
		defer func(was string) { usual = was }(usual)
		usual = program
		_, version, err := find()
		require.NoError(t, err)
		require.NotEmpty(t, version)
	})
	t.Run("named wrongly", func(t *testing.T) {
		t.Setenv("SIMRUN_PGBOUNCER", "/nonexistent/pgbouncer")
		fails("SIMRUN_PGBOUNCER is set to /nonexistent/pgbouncer")
		t.Setenv("SIMRUN_PGBOUNCER", "/bin/true")
		fails("SIMRUN_PGBOUNCER is set to /bin/true")
	})
	t.Run("no such mode", func(t *testing.T) {
		o.Mode = "weekly"
		defer func() { o.Mode = Session }()
		fails(`there is no pool mode "weekly"`)
	})
	t.Run("no log", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		o.LogDir = file + "/logs"
		defer func() { o.LogDir = "" }()
		fails("the log of PgBouncer cannot be written in")
	})
	t.Run("it does not start", func(t *testing.T) {
		o.Settings = map[string]string{"default_pool_size": "many"}
		fails("PgBouncer could not be started")
		_, err := Start(context.Background(), o)
		require.ErrorContains(t, err, "default_pool_size", "its own last words")
	})
	left, err := filepath.Glob(o.Run.Dir() + "/[^.]*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// Somebody may take the port between the moment it was found free and the start.
func TestPortTakenMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	busy := l.Addr().(*net.TCPAddr).Port
	o, err := own(t).withDefaults()
	require.NoError(t, err)
	tries := 0
	p := &Pooler{opts: o, admin: newAdmin(), freePort: func() (int, error) {
		if tries++; tries == 1 {
			return busy, nil
		}
		return proc.FreePort()
	}}
	p.program, p.version, err = find()
	require.NoError(t, err)
	require.NoError(t, p.prepare())
	require.NoError(t, p.launch(ctx))
	require.Equal(t, 2, tries)
	require.NotEqual(t, busy, p.port)
	require.NoError(t, p.Stop())
}

// In front of a server with a password the pooler asks for it too, and shows it to nobody.
func TestPassword(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const secret = `p"s' w\rd`
	run := newRun(t)
	s, err := pg.Start(ctx, pg.Options{Run: run})
	require.NoError(t, err)
	name := s.NewDatabaseName()
	require.NoError(t, s.CreateDatabase(ctx, name, ""))
	control, err := s.Connect(ctx, name, "")
	require.NoError(t, err)
	defer control.Close(ctx)
	var hbaFile string
	_, err = control.Exec(ctx, "SET ROLE NONE")
	require.NoError(t, err)
	require.NoError(t, control.QueryRow(ctx, "SHOW hba_file").Scan(&hbaFile))
	for _, encryption := range []string{"scram-sha-256", "md5"} {
		t.Run(encryption, func(t *testing.T) {
			require.NoError(t, run.WriteFile(hbaFile, []byte("local all all trust\nhost all all 127.0.0.1/32 "+encryption+"\n")))
			_, err := control.PgConn().Exec(ctx, "SET password_encryption = '"+encryption+"'; ALTER ROLE simrun PASSWORD '"+strings.ReplaceAll(secret, "'", "''")+"'; SELECT pg_reload_conf()").ReadAll()
			require.NoError(t, err)
			logs := t.TempDir()
			o := Options{Run: run, Mode: Transaction, User: s.User(), Password: secret, LogDir: logs, Name: encryption}
			o.Host, o.Port = s.HostPort()
			p, err := Start(ctx, o)
			require.NoError(t, err)
			defer p.Stop()

			cfg, err := pgx.ParseConfig("sslmode=disable dbname=" + name)
			require.NoError(t, err)
			host, port := p.HostPort()
			cfg.Host, cfg.Port, cfg.User, cfg.Password = host, uint16(port), s.User(), secret
			cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
			conn, err := pgx.ConnectConfig(ctx, cfg)
			require.NoError(t, err)
			require.NoError(t, conn.Ping(ctx))
			require.NoError(t, conn.Close(ctx))
			cfg.Password = "wrong"
			_, err = pgx.ConnectConfig(ctx, cfg)
			require.Error(t, err)
			_, err = p.Admin(ctx, "SHOW POOLS")
			require.NoError(t, err)

			info, err := os.Stat(p.usersPath())
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			log, err := os.ReadFile(p.logPath)
			require.NoError(t, err)
			ini, err := os.ReadFile(p.configPath())
			require.NoError(t, err)
			args, err := os.ReadFile("/proc/" + strconv.Itoa(p.child.Pid()) + "/cmdline")
			require.NoError(t, err)
			env, err := os.ReadFile("/proc/" + strconv.Itoa(p.child.Pid()) + "/environ")
			require.NoError(t, err)
			for _, text := range [][]byte{log, ini, args, env} {
				require.NotEmpty(t, text)
				require.NotContains(t, string(text), secret)
				require.NotContains(t, string(text), p.admin.password)
			}
		})
	}
	require.NoError(t, s.Stop())
}

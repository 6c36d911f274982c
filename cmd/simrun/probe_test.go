package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/stretchr/testify/require"
)

const secret = "correct-horse-battery"

// lockedPooler is a pooler that asks for a password.
func lockedPooler(t *testing.T, mode string, size int) (host string, port int, user string) {
	t.Helper()
	s := pgtest.Server(t)
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	logs := t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(logs, "pgbouncer.log"))
			t.Logf("%s", b)
		}
	})
	o := pgbouncer.Options{Run: run, LogDir: logs, Mode: mode, PoolSize: size, User: s.User(), Password: secret}
	o.Host, o.Port = s.HostPort()
	p, err := pgbouncer.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	host, port = p.HostPort()
	return host, port, s.User()
}

// Every verdict has its status, says why and how long it took, and none of it holds the password.
func TestProbe(t *testing.T) {
	t.Parallel()
	direct := pgtest.Server(t).DSN("postgres")
	pooled := func(mode string, size int, password string) string {
		host, port, user := lockedPooler(t, mode, size)
		return fmt.Sprintf("postgres://%s:%s@%s:%d/postgres?sslmode=disable", user, password, host, port)
	}
	for _, c := range []struct {
		name, dsn string
		status    int
		want      []string
	}{
		{"direct", direct, exitOK, []string{"stable: ", "direct, no pooler", "why  ", "not told  ", "took  "}},
		{"session", pooled("session", 5, secret), exitOK, []string{"stable: ", "session pooling", "a pooler answers"}},
		{"transaction", pooled("transaction", 5, secret), exitViolated, []string{"unstable: ", "transaction pooling", "one backend"}},
		{"statement", pooled("statement", 5, secret), exitViolated, []string{"unstable: ", "statement pooling", "08P01"}},
		{"full", pooled("session", 1, secret), exitInconclusive, []string{"inconclusive: ", "not known", "full"}},
		{"wrong password", pooled("session", 1, "a-wrong-one"), exitEnvironment, []string{"unreachable: ", "no connection: "}},
		{"nobody there", "postgres://u:" + secret + "@127.0.0.1:1/d", exitEnvironment, []string{"unreachable: ", "refused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, errs, status := simrunWith(t, t.TempDir(), []string{"SIMRUN_DSN=" + c.dsn}, "probe", "--wait", "1s")
			require.Equal(t, c.status, status, out+errs)
			for _, w := range c.want {
				require.Contains(t, out, w)
			}
			require.NotContains(t, out+errs, secret)
			require.NotContains(t, out+errs, "a-wrong-one")

			out, errs, status = simrunWith(t, t.TempDir(), []string{"SIMRUN_DSN=" + c.dsn}, "probe", "--wait", "1s", "--json")
			require.Equal(t, c.status, status, out+errs)
			var got probed
			require.NoError(t, json.Unmarshal([]byte(out), &got))
			require.NotEmpty(t, got.Why)
			require.NotZero(t, got.Port)
			require.NotContains(t, out+errs, secret)
		})
	}
}

// A service of pg_service.conf is an address; what cannot be one is wrong usage, and is not repeated.
func TestProbeAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	host, port, user := lockedPooler(t, "session", 5)
	file := filepath.Join(dir, "services")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[prod]\nhost=%s\nport=%d\nuser=%s\npassword=%s\ndbname=postgres\nsslmode=disable\n", host, port, user, secret), 0o600))
	env := []string{"PGSERVICEFILE=" + file}
	out, errs, status := simrunWith(t, dir, env, "probe", "prod")
	require.Zero(t, status, out+errs)
	require.Contains(t, out, "session pooling")
	require.NotContains(t, out+errs, secret)
	for _, c := range []struct {
		env  string
		args []string
		want string
	}{
		{"", nil, "SIMRUN_DSN"},
		{"", []string{"nosuch"}, "services"},
		{"", []string{"postgres://u:" + secret + "@h/d"}, "SIMRUN_DSN"},
		{"", []string{"host=h password=" + secret}, "SIMRUN_DSN"},
		{"", []string{"--password", secret}, "unknown flag"},
		{"", []string{"a", "b"}, "one service"},
		{"SIMRUN_DSN=postgres://u:" + secret + "@h:x/d", nil, "SIMRUN_DSN"},
		{"SIMRUN_DSN=" + secret, nil, "SIMRUN_DSN"},
		{"", []string{"prod", "--wait", "1h"}, "--wait"},
	} {
		out, errs, status := simrunWith(t, dir, append(env, c.env), append([]string{"probe"}, c.args...)...)
		require.Equal(t, exitUsage, status, c)
		require.Contains(t, errs, c.want)
		require.NotContains(t, out+errs, secret)
	}
}

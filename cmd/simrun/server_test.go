package main

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/stretchr/testify/require"
)

// givenServer is a server as a user would give it: a role with a password that may create databases and is no superuser. (The server
// trusts it; that passwords are used is tested in sim/pg.) It also returns what lists the server's databases and roles.
func givenServer(t *testing.T) (dsn, password string, list func() []string) {
	t.Helper()
	// One for each test: others make databases on the shared one meanwhile.
	run, err := proc.NewRun()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, run.Close()) })
	server, err := pg.Start(t.Context(), pg.Options{Run: run, Backend: pg.Local})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	conn, err := server.Connect(t.Context(), "postgres", "test")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	password = "correct-horse-battery"
	_, err = conn.Exec(t.Context(), "SET ROLE NONE; ALTER ROLE simrun CREATEDB PASSWORD '"+password+"'")
	require.NoError(t, err)
	u, err := url.Parse(server.DSN("postgres"))
	require.NoError(t, err)
	u.User = url.UserPassword("simrun", password)
	list = func() []string {
		rows, err := conn.Query(t.Context(), "SELECT datname FROM pg_database UNION ALL SELECT rolname FROM pg_roles ORDER BY 1")
		require.NoError(t, err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return names
	}
	return u.String(), password, list
}

// Package pgtest gives tests a real Postgres: one server for the test process, and databases of their own in it.
package pgtest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

var shared = sync.OnceValues(func() (*pg.Server, error) {
	run, err := proc.NewRun()
	if err != nil {
		return nil, err
	}
	return pg.Start(context.Background(), pg.Options{Run: run, Backend: pg.Local})
})

// Server is the test process's server. It is started by the first test that asks and ends with the process. A machine
// without Postgres fails the test.
func Server(t testing.TB) *pg.Server {
	t.Helper()
	s, err := shared()
	require.NoError(t, err)
	return s
}

// Database creates a database, runs the migrations in it, and drops it when the test ends. It returns its address.
func Database(t testing.TB, migrations ...string) (dsn string) {
	t.Helper()
	s := Server(t)
	return s.DSN(DatabaseIn(t, s, migrations...))
}

// DatabaseIn is Database on a given server; it returns the database's name.
func DatabaseIn(t testing.TB, s *pg.Server, migrations ...string) (name string) {
	t.Helper()
	ctx := context.Background() // the test's own is over when the clean-up runs
	name = s.NewDatabaseName()
	require.NoError(t, s.CreateDatabase(ctx, name, ""))
	t.Cleanup(func() { require.NoError(t, s.DropDatabase(ctx, name)) })
	if len(migrations) == 0 {
		return name
	}
	conn, err := s.Connect(ctx, name, "migrations")
	require.NoError(t, err)
	defer conn.Close(ctx)
	for _, sql := range migrations {
		_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
		require.NoError(t, err)
	}
	return name
}

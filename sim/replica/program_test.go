package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A program finds the reference's tables unless it brings its own, and its first key is its role's.
func TestProgram(t *testing.T) {
	t.Parallel()
	reference, ok := ByName(Reference)
	require.True(t, ok)
	got := Program("exec:./a b", sim.Program{Exec: []string{"./a", "b"}}, "/there")
	require.Equal(t, sim.Implementation{
		Name: "exec:./a b", Role: reference.Role, Migrations: reference.Migrations, Load: reference.Load, Command: []string{"./a", "b"}, Dir: "/there",
	}, got)
	got = Program("exec:./a", sim.Program{Exec: []string{"./a"}, Keys: []int64{42, 43}, Migrations: "s.sql", MigrationsSQL: "CREATE", Ledger: "SELECT"}, "/there")
	require.Equal(t, sim.Implementation{
		Name: "exec:./a", Role: sim.Role{Name: "publish", Key: 42}, Keys: []int64{43}, Migrations: "CREATE", MigrationsFile: "s.sql", Ledger: "SELECT", Command: []string{"./a"}, Dir: "/there",
	}, got, "rows of the reference do not fit into other tables")
}

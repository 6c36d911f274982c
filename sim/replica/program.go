package replica

import (
	"cmp"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Program is a program of somebody else's as an implementation: name is exec:COMMAND, dir the folder it is started in. Unless it brings
// migrations of its own it finds the reference's tables, and due rows in data_rows.
func Program(name string, p sim.Program, dir string) sim.Implementation {
	like := implementationOf(Reference)
	m := sim.Implementation{
		Name: name, Role: like.Role, Migrations: like.Migrations, Load: cmp.Or(p.Load, like.Load), Command: p.Exec, Dir: dir, Ledger: p.Ledger,
	}
	if len(p.Keys) > 0 {
		m.Role.Key, m.Keys = p.Keys[0], p.Keys[1:]
	}
	if p.MigrationsSQL != "" {
		m.Migrations, m.MigrationsFile, m.Load = p.MigrationsSQL, p.Migrations, p.Load
	}
	return m
}

func implementationOf(name string) sim.Implementation {
	m, ok := ByName(name)
	if !ok {
		panic("there is no implementation " + name)
	}
	return m
}

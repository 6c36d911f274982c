package flawed

import "github.com/seed-aafb3a99/simrun/lockimpl"

var keyMismatch = Flaw{
	Name: "key-mismatch",
	Models: "Every other process was built with another way to derive the key, so that they lock different numbers for one role: " +
		"exclusion vanished between nodes of different tool chains (Gitlawb/node #210).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		if v.replica%2 == 0 {
			v.lease.Role.Key++
			v.lease.Keys = lockimpl.Keys{v.lease.Role}
		}
	},
}

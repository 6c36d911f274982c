package flawed

import "github.com/seed-aafb3a99/simrun/lockimpl"

var rekeyed = Flaw{
	Name: "rekeyed",
	Models: "Its new version derives the key in another way: while both versions are deployed each elects a leader of its own " +
		"(Gitlawb/node #210).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		if v.version > 1 {
			v.lease.Role.Key++
			v.lease.Keys = lockimpl.Keys{v.lease.Role}
		}
	},
}

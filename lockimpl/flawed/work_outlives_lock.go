package flawed

var workOutlivesLock = Flaw{
	Name: "work-outlives-lock",
	Models: "It gives the lock back first and stops its work afterwards: " +
		"the order at shut-down let another node claim what the first was still at (boundary/ordasity #28).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.StepDown = func(stop, unlock func()) {
			unlock()
			stop()
		}
	},
}

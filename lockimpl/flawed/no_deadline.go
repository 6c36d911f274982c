package flawed

import "time"

var noDeadline = Flaw{
	Name: "no-deadline",
	Models: "Its heartbeat waits for the answer as long as it takes, and leads meanwhile: " +
		"on a half-open connection the elector's liveness query blocks for the operating system's patience (Tr3kkR/Yuzu #4013).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Deadline = func(time.Duration) time.Duration { return 0 }
		v.l.Trust = func(time.Time, time.Duration, time.Duration) time.Time { return time.Time{} }
	},
}

package flawed

import (
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl"
)

var noHeartbeat = Flaw{
	Name: "no-heartbeat",
	Models: "Once it leads it never looks at its lease session again, and believes for ever: " +
		"after its backend had been ended on the server a node went on beside its successor (JasperFx/wolverine #2602).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		v.l.Blind = true
		v.l.Trust = func(time.Time, time.Duration, time.Duration) time.Time { return time.Time{} }
		v.l.Heed = func(reason string) bool { return reason != lockimpl.ReasonFenced }
	},
}

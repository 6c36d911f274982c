package flawed

import (
	"context"
	"time"
)

var idleLeader = Flaw{
	Name: "idle-leader",
	Models: "The news of its election is lost when its scheduler is still starting up, and it leads without working: " +
		"the job schedulers could miss that their node had become leader (mattermost/mattermost #17602).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		now := v.lease.Now
		if now == nil {
			now = time.Now
		}
		started := now()
		v.p.Ready = func(ctx context.Context, tick time.Duration) error {
			if now().Sub(started) >= tick {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
	},
}

package mylock

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
	"github.com/seed-aafb3a99/simrun/sim/simtest"
)

func TestLead(t *testing.T) {
	simtest.Run(t, sim.Scenario{Replicas: 2}, func(ctx context.Context, env *sim.Env) error {
		cfg, err := connect.PoolConfig(env, "lease")
		if err != nil {
			return err
		}
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer pool.Close()
		Lead(ctx, pool, env.Role.Key, func(leads bool) {
			kind := sim.EvEnd
			if leads {
				kind = sim.EvLead
			}
			env.Emit(sim.Event{Kind: kind, Role: env.Role.Name, Key: env.Role.Key})
		})
		return nil
	}, simtest.Role("mine", 42), simtest.Schedules(10))
}

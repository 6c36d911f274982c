package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// Four sessions update two rows in opposite orders. Whoever closes the cycle is the victim, and who goes on after it is decided: a session
// that got its place in a row's queue waits once more, for the transaction, and its own deadlock check must have been made by the next step.
func TestDeadlocksOverRows(t *testing.T) {
	e := newEngine(t)
	impl := script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "work")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		first, second := 1, 2
		if env.Replica%2 == 0 {
			first, second = 2, 1
		}
		for ; ctx.Err() == nil; pauseFor(ctx, 900*time.Millisecond) {
			tx, err := c.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err = tx.Exec(ctx, "UPDATE acct SET v = v + 1 WHERE id = $1", first); err == nil {
				pauseFor(ctx, 100*time.Millisecond)
				_, err = tx.Exec(ctx, "UPDATE acct SET v = v + 1 WHERE id = $1", second)
			}
			if err != nil {
				_ = tx.Rollback(ctx)
				continue
			}
			_ = tx.Commit(ctx)
		}
		return nil
	}, "CREATE TABLE acct (id int PRIMARY KEY, v int); INSERT INTO acct VALUES (1, 0), (2, 0)")
	plan := sim.Plan{
		Horizon: 40 * sec, Phase: []sim.Duration{0, 3 * ms, 20 * ms, 31 * ms}, Picks: []int{1, 0, 2, 1, 1, 0, 1, 3, 0, 2, 1},
		Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 2 * ms}}, {{Req: 2 * ms, Resp: 1 * ms}, {}}, {{Resp: 4 * ms}, {}}, {{}}},
	}
	first, err := carry(t, e, world1(4, plan, impl))
	require.NoError(t, err)
	victims := 0
	for _, x := range first.Events {
		if x.Answer == "ERROR 40P01" {
			victims++
			require.Empty(t, x.BlockedBy, "the victim closed the cycle")
		}
	}
	require.Greater(t, victims, 10)
	for range 5 {
		again, err := carry(t, e, world1(4, plan, impl))
		require.NoError(t, err)
		same(t, first, again)
	}
}

// Who waits for a session that the server ends for its silence goes on at that instant, and not when somebody sends the next statement.
func TestWhoWaitsForASilentSession(t *testing.T) {
	e := newEngine(t)
	for _, route := range []sim.Route{sim.Direct, sim.PgBouncerSession} {
		run := world1(2, sim.Plan{Horizon: 60 * sec, Phase: []sim.Duration{0, 500 * ms}, Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 1 * ms}}}}, script(func(ctx context.Context, env *sim.Env) error {
			c, err := dial(ctx, env, "work")
			if err != nil {
				return err
			}
			defer c.Close(context.WithoutCancel(ctx))
			tx, err := c.Begin(ctx)
			if err != nil {
				return err
			}
			if env.Replica == 1 {
				if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = '2s'"); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7)"); err != nil {
				return err
			}
			pauseFor(ctx, 30*time.Second)
			return nil
		}, ""))
		run.Route = route
		h := twice(t, e, run)
		waited := sim.Duration(0)
		for _, x := range h.Events {
			if x.Replica == 2 && len(x.BlockedBy) > 0 {
				waited = x.Lasts
				require.Equal(t, "SELECT 1", x.Answer)
			}
		}
		require.Greater(t, waited, 1*sec, route)
		require.Less(t, waited, 2*sec, route)
	}
}

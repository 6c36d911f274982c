package virtual

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// silent has replica 1 wait on an idle session and say what it heard and when; the others do what act says at 5, 10 and 15 s.
func silent(act string) sim.Implementation {
	return script(func(ctx context.Context, env *sim.Env) error {
		c, err := dial(ctx, env, "lease")
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		if env.Replica == 1 {
			if _, err := c.Exec(ctx, "LISTEN c"); err != nil {
				return err
			}
			for ctx.Err() == nil {
				n, err := c.WaitForNotification(ctx)
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					env.Emit(sim.Event{Kind: sim.EvNote, Text: "lost its session"})
					return nil
				}
				env.Emit(sim.Event{Kind: sim.EvNote, Text: "heard " + n.Payload})
			}
			return nil
		}
		for i := 1; i <= 3; i++ {
			pauseFor(ctx, time.Until(env.Start.Add(time.Duration(5*i)*time.Second)))
			if _, err := c.Exec(ctx, act); err != nil {
				return err
			}
		}
		return nil
	}, `CREATE TABLE jobs (id int);
CREATE FUNCTION wake() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('c', 'a job'); RETURN NULL; END $$;
CREATE TRIGGER wake AFTER INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION wake();
CREATE FUNCTION call_it() RETURNS int LANGUAGE sql AS $$ SELECT 1 FROM pg_notify('c', 'a call') $$;
CREATE FUNCTION end_it() RETURNS bool LANGUAGE sql AS $$ SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'r1/%' AND datname = current_database() $$;`)
}

// TestWhatAStatementDoesToOthers: what another session is sent because of a statement, though its text does not say so, arrives
// at the instant that the plan's delays make it, in every run.
func TestWhatAStatementDoesToOthers(t *testing.T) {
	e := newEngine(t)
	for act, want := range map[string][]string{
		"INSERT INTO jobs VALUES (1)": {"5.002 heard a job", "10.002 heard a job", "15.002 heard a job"},
		"SELECT call_it()":            {"5.002 heard a call", "10.002 heard a call", "15.002 heard a call"},
		"NOTIFY c, 'plain'":           {"5.002 heard plain", "10.002 heard plain", "15.002 heard plain"},
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'r1/%' AND datname = current_database()": {"5.002 lost its session"},
		"SELECT end_it()": {"5.002 lost its session"},
	} {
		t.Run(strings.Fields(act)[1], func(t *testing.T) {
			for i := range 6 {
				run := world1(2, sim.Plan{Horizon: 20 * sec, Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 1 * ms}}}}, silent(act))
				run.Scenario.Workload = sim.Workload{}
				if i%2 == 1 {
					run.Route = sim.PgBouncerSession
				}
				h, err := carry(t, e, run)
				require.NoError(t, err)
				var got []string
				for _, ev := range h.Events {
					if ev.Kind == sim.EvNote && ev.Replica == 1 {
						got = append(got, fmt.Sprintf("%.3f %s", ev.At.Seconds(), ev.Text))
					}
				}
				require.Equal(t, want, got, text(h))
			}
		})
	}
}

// TestALockOfASessionEndedBySQL: whoever waits for it gets it at that instant, however idle the session was.
func TestALockOfASessionEndedBySQL(t *testing.T) {
	e := newEngine(t)
	for _, first := range []string{"SELECT pg_advisory_lock(7)", "BEGIN; SELECT pg_advisory_xact_lock(7)"} {
		for range 5 {
			run := world1(3, sim.Plan{Horizon: 20 * sec, Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 1 * ms}}}}, script(func(ctx context.Context, env *sim.Env) error {
				c, err := dial(ctx, env, "lease")
				if err != nil {
					return err
				}
				defer c.Close(context.WithoutCancel(ctx))
				pauseFor(ctx, time.Until(env.Start.Add(time.Duration(env.Replica)*time.Second)))
				act := map[int]string{1: first, 2: "SELECT pg_advisory_lock(7)", 3: "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'r1/%' AND datname = current_database()"}
				_, err = c.Exec(ctx, act[env.Replica])
				env.Emit(sim.Event{Kind: sim.EvNote, Text: fmt.Sprint("done: ", err == nil)})
				pauseFor(ctx, 10*time.Second)
				return nil
			}, ""))
			run.Scenario.Workload = sim.Workload{}
			h, err := carry(t, e, run)
			require.NoError(t, err)
			require.Contains(t, text(h), "3.002 r2 note | done: true", text(h))
		}
	}
}

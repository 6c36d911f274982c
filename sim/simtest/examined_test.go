package simtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
)

// idle waits until it is told to stop.
func idle(ctx context.Context, _ *sim.Env) error {
	<-ctx.Done()
	return nil
}

func TestInvalidScenarioIsRefused(t *testing.T) {
	window := sim.Range{From: sim.Duration(10 * time.Second), To: sim.Duration(20 * time.Second)}
	for name, c := range map[string]struct {
		s    sim.Scenario
		want string
	}{
		"invariant": {sim.Scenario{Invariants: []string{"one-leadr"}}, `unknown invariant "one-leadr" (did you mean "one-leader"?)`},
		"fault":     {sim.Scenario{Faults: []sim.FaultSpec{{Kind: "kil", Target: sim.TargetLeader, Window: window}}}, `unknown fault "kil" (did you mean "kill"?)`},
		"target":    {sim.Scenario{Faults: []sim.FaultSpec{{Kind: sim.Disconnect, Target: "3", Window: window}}}, "there is no replica 3"},
		"no target": {sim.Scenario{Faults: []sim.FaultSpec{{Kind: sim.Disconnect, Window: window}}}, "disconnect needs a target"},
		"route":     {sim.Scenario{Routes: []sim.Route{"dirct"}}, `unknown route "dirct" (did you mean "direct"?)`},
		"replicas":  {sim.Scenario{Replicas: sim.MaxReplicas + 1}, "replicas must be from 1 to 32, not 33"},
		"negative":  {sim.Scenario{Replicas: -1}, "replicas must be from 1 to 32, not -1"},
		"duration":  {sim.Scenario{Duration: -1}, "duration must be more than 0"},
		"metric":    {sim.Scenario{Require: []sim.Require{{What: "election", AtLeast: 1}}}, `unknown metric "election" (did you mean "elections"?)`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := explore(t, c.s, idle, nil)
			require.ErrorContains(t, err, "the scenario is invalid")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), PlanVariable)
			require.Empty(t, text)
			t.Setenv(PlanVariable, `{"v":1,"faults":[],"horizon":"1m0s"}`)
			_, err = explore(t, c.s, idle, nil)
			require.ErrorContains(t, err, c.want, "a plan that is carried out again")
		})
	}
}

// Who connects by the address alone leaves the virtual world, and is told how to come in.
func TestOutsideOfTheVirtualWorld(t *testing.T) {
	text, err := explore(t, sim.Scenario{}, func(ctx context.Context, env *sim.Env) error {
		_, err := pgx.Connect(ctx, env.DSN)
		return err
	}, []Option{Schedules(1)})
	require.NoError(t, err)
	require.Contains(t, text, "inconclusive")
	require.Contains(t, text, "dial tcp <address>: ")
	require.Contains(t, text, "connect by the package sim/connect")
}

func TestHostilePlanIsRefused(t *testing.T) {
	for plan, want := range map[string]string{
		`{"v":1,"horizon":"1m","faults":[{"kind":"kil","target":"1","at":"3s"}]}`:   `unknown fault "kil" (did you mean "kill"?)`,
		`{"v":1,"horizon":"1m","faults":[{"kind":"kill","target":"77","at":"3s"}]}`: "there is no replica 77",
		`{"v":1,"horizon":"1m","faults":[{"kind":"kill","target":"1","at":"-3s"}]}`: "not between the start and the end",
		`{"v":1,"horizon":"1m","picks":[1,-1]}`:                                     "picks count from 0",
		`{"v":1,"horizon":"9999h"}`:                                                 "at most 24h",
	} {
		t.Setenv(PlanVariable, plan)
		_, err := explore(t, sim.Scenario{Workload: sim.Workload{Rows: 10, Every: sim.Duration(11 * time.Second)}}, idle, []Option{Load("SELECT $1::bigint, $2::float8")})
		require.ErrorContains(t, err, PlanVariable+" cannot be carried out")
		require.ErrorContains(t, err, want)
	}
}

func TestNoScheduleIsRefused(t *testing.T) {
	for _, n := range []int{0, -1} {
		_, err := explore(t, sim.Scenario{}, idle, []Option{Schedules(n)})
		require.ErrorContains(t, err, "at least one schedule has to be run")
	}
}

func TestNothingJudgedIsInconclusive(t *testing.T) {
	text, err := explore(t, sim.Scenario{}, idle, []Option{Schedules(2)})
	require.NoError(t, err)
	require.Contains(t, text, "inconclusive: on the route direct, in 2 schedules: one-leader could not be judged in any: ")
	require.Contains(t, text, "(schedule 0)")
	require.Contains(t, text, "take it out of Invariants")
	require.NotContains(t, text, "before its context ended")
	t.Log(text)

	t.Setenv(PlanVariable, `{"v":1,"faults":[],"horizon":"1m0s"}`)
	text, err = explore(t, sim.Scenario{}, idle, nil)
	require.NoError(t, err)
	require.Empty(t, text, "a plan that is carried out again is only asked for violations")
	t.Setenv(PlanVariable, `{}`)
	_, err = explore(t, sim.Scenario{}, idle, nil)
	require.ErrorContains(t, err, PlanVariable+" cannot be carried out")
}

func TestReplicasThatEndAreNamed(t *testing.T) {
	text, err := explore(t, sim.Scenario{}, func(ctx context.Context, env *sim.Env) error {
		conn, err := connect.Connect(ctx, env, "lease")
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		_, err = conn.Exec(ctx, "SELECT pg_try_advisory_lok(1)")
		return err
	}, []Option{Schedules(2)})
	require.NoError(t, err)
	require.Contains(t, text, "inconclusive: ")
	require.Regexp(t, `r\d returned an error: SQLSTATE 42883 at \S+ of schedule 0, before its context ended; its last statement was SELECT pg_try_advisory_lok\(1\)`, text)
	t.Log(text)

	text, err = explore(t, sim.Scenario{}, func(context.Context, *sim.Env) error { return nil }, []Option{Schedules(1)})
	require.NoError(t, err)
	require.Regexp(t, `r\d returned at \S+ of schedule 0`, text)
}

func TestNothingBrokenIsInconclusive(t *testing.T) {
	text, err := explore(t, scenario, careful, []Option{Migrations(tables), Load(load), Schedules(4)})
	require.NoError(t, err)
	require.Regexp(t, `^inconclusive: .*nothing was broken: \d+ planned faults? came to nothing.*there was no leader \(schedule \d\)`, text)
	t.Log(text)

	s := scenario
	s.Faults = []sim.FaultSpec{}
	text, err = explore(t, s, careful, []Option{Migrations(tables), Load(load), Schedules(1)})
	require.NoError(t, err)
	require.Empty(t, text, "none was wanted")
}

func TestTooLittleIsInconclusive(t *testing.T) {
	s := sim.Scenario{Require: []sim.Require{{What: sim.Elections, AtLeast: 1000}, {What: sim.Refusals, AtLeast: 1, Route: sim.Direct, Impl: "another"}}}
	text, err := explore(t, s, ownLock, []Option{Role("mine", 42), Schedules(2)})
	require.NoError(t, err)
	require.Regexp(t, `^inconclusive: .*not enough happened: elections: [1-9]\d*, required 1000\n`, text)
	t.Log(text)

	s.Require[0].AtLeast = 1
	text, err = explore(t, s, ownLock, []Option{Role("mine", 42), Schedules(2)})
	require.NoError(t, err)
	require.Empty(t, text)
}

// A violation on a later route is told of before what is only inconclusive.
func TestViolationIsWorse(t *testing.T) {
	s := sim.Scenario{Routes: []sim.Route{sim.Direct, sim.PgBouncerTransaction}, Faults: []sim.FaultSpec{}}
	text, err := explore(t, s, func(ctx context.Context, env *sim.Env) error {
		if env.ExecMode == "exec" { // behind the pooler everybody leads
			env.Emit(sim.Event{Kind: sim.EvLead, Role: env.Role.Name, Key: env.Role.Key})
		}
		return idle(ctx, env)
	}, []Option{Schedules(1)})
	require.NoError(t, err)
	require.Contains(t, text, "one-leader is violated on the route pgbouncer-transaction")
	require.NotContains(t, text, "inconclusive")
}

// A plan is no help where the world could not be set up; it is where the replicas did something wrong.
func TestPlanIsOfferedWhereItMatters(t *testing.T) {
	_, err := explore(t, sim.Scenario{}, idle, []Option{Migrations("CREATE TABEL jobs ()"), Schedules(1)})
	require.ErrorContains(t, err, "on the route direct, before anything ran: ")
	require.NotContains(t, err.Error(), PlanVariable)
	t.Log(err)

	_, err = explore(t, sim.Scenario{}, func(context.Context, *sim.Env) error { panic("no") }, []Option{Schedules(1)})
	require.ErrorContains(t, err, "panicked: no")
	require.ErrorContains(t, err, PlanVariable+"='{")
}

func TestTally(t *testing.T) {
	h := func(events ...sim.Event) *sim.History {
		return &sim.History{Header: sim.Header{Plan: sim.Plan{Horizon: sim.Duration(time.Minute), Faults: []sim.Fault{{Kind: sim.Kill, Target: "1"}}}}, Events: events}
	}
	s := sim.Scenario{Invariants: []string{"one-leader"}}
	held, unsure := []sim.Verdict{{Invariant: "one-leader", Status: sim.StatusHeld}}, []sim.Verdict{{Invariant: "one-leader", Reason: "nobody led"}}
	moot, applied := sim.Event{Kind: sim.EvFault, Op: sim.OpMoot, Fault: 1}, sim.Event{Kind: sim.EvFault, Op: sim.OpApplied, Fault: 1}

	some := newTally()
	some.add(0, h(moot), unsure)
	some.add(1, h(applied), held)
	require.Empty(t, some.doubt(s, sim.Direct, "replica"), "some schedules are enough")

	failed := newTally()
	failed.add(0, h(applied, sim.Event{Kind: sim.EvFault, Op: sim.OpFailed, Fault: 1, Reason: "no such process"}), unsure)
	failed.add(1, h(applied), held)
	require.Contains(t, failed.doubt(s, sim.Direct, "replica"), "1 fault could not be carried out; the first, kill r1 at 0s: no such process (schedule 0)")

	stopped := newTally() // by a fault, and at the end: neither is of its own accord
	stopped.add(0, h(sim.Event{Kind: sim.EvDown, Replica: 1, Fault: 1, Reason: "returned"}, sim.Event{Kind: sim.EvDown, Replica: 2, At: sim.Duration(time.Minute), Reason: "returned"}), unsure)
	require.Empty(t, stopped.ended)
}

package reports

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A writer makes histories by hand, for the reports to show. at is in seconds.
type writer struct {
	events []sim.Event
	header sim.Header
	commit int64
}

func at(s float64) sim.Duration { return sim.Duration(s * float64(time.Second)) }

func (w *writer) add(s float64, source string, e sim.Event) {
	e.At, e.Source = at(s), source
	w.events = append(w.events, e)
}

func (w *writer) engine(s float64, e sim.Event)  { w.add(s, sim.FromEngine, e) }
func (w *writer) replica(s float64, e sim.Event) { w.add(s, sim.FromReplica, e) }

const roleKey = 982410937

func lease(r, life int) string { return sim.SessionName(r, life, sim.UseLease, 1) }

func (w *writer) up(s float64, r, life, fault int) {
	w.engine(s, sim.Event{Kind: sim.EvUp, Replica: r, Incarnation: life, Fault: fault})
	w.replica(s+0.03, sim.Event{Kind: sim.EvSession, Op: sim.OpOpen, Replica: r, Incarnation: life, Session: lease(r, life), Use: sim.UseLease, Route: w.header.Route})
	w.replica(s+0.04, sim.Event{Kind: sim.EvProbe, Op: sim.OpBegin, Replica: r, Incarnation: life, Session: lease(r, life)})
	w.replica(s+0.09, sim.Event{Kind: sim.EvProbe, Op: sim.OpEnd, Answer: sim.Stable, Replica: r, Incarnation: life, Session: lease(r, life)})
}

func (w *writer) attempt(s float64, r, life int, answer string) {
	e := sim.Event{Kind: sim.EvAttempt, Op: sim.OpBegin, Replica: r, Incarnation: life, Session: lease(r, life), Role: "publish", Key: roleKey}
	w.replica(s, e)
	e.Op, e.Answer = sim.OpEnd, answer
	w.replica(s+0.012, e)
}

func (w *writer) lead(s float64, r, life int, term int64, trusted float64) {
	w.attempt(s, r, life, sim.Acquired)
	w.held(s+0.008, lease(r, life))
	w.commit++
	w.add(s+0.02, sim.FromLedger, sim.Event{Kind: sim.EvTerm, Op: sim.OpCommit, Role: "publish", Key: roleKey, Term: term, Token: fmt.Sprint(term), Session: lease(r, life), Commit: w.commit})
	w.replica(s+0.025, sim.Event{Kind: sim.EvLead, Replica: r, Incarnation: life, Role: "publish", Key: roleKey, Term: term, Token: fmt.Sprint(term), Session: lease(r, life), Trusted: at(trusted)})
}

func (w *writer) beat(s float64, r, life int, term int64, trusted float64) {
	w.replica(s, sim.Event{Kind: sim.EvBeat, Answer: sim.BeatOK, Replica: r, Incarnation: life, Term: term, Trusted: at(trusted)})
}

func (w *writer) end(s float64, r, life int, term int64, reason string) {
	w.replica(s, sim.Event{Kind: sim.EvEnd, Replica: r, Incarnation: life, Role: "publish", Key: roleKey, Term: term, Reason: reason})
	w.replica(s+0.01, sim.Event{Kind: sim.EvIdle, Replica: r, Incarnation: life, Role: "publish", Key: roleKey, Term: term})
}

func (w *writer) tick(s float64, r, life int, term int64, from, n int) {
	w.replica(s, sim.Event{Kind: sim.EvTick, Op: sim.OpBegin, Replica: r, Incarnation: life, Term: term})
	w.replica(s+0.01, sim.Event{Kind: sim.EvTick, Op: sim.OpListed, N: n, Replica: r, Incarnation: life, Term: term})
	effects := sim.SessionName(r, life, sim.UseEffect, 1)
	for i := range n {
		t := s + 0.02 + float64(i)*0.05
		row := int64(from + i)
		w.replica(t, sim.Event{Kind: sim.EvEffect, Op: sim.OpBegin, Replica: r, Incarnation: life, Row: row, Unit: 1, Term: term, Session: effects})
		w.commit++
		w.add(t+0.02, sim.FromLedger, sim.Event{Kind: sim.EvEffect, Op: sim.OpCommit, Row: row, Unit: 1, Term: term, Session: effects, Commit: w.commit})
		w.replica(t+0.03, sim.Event{Kind: sim.EvEffect, Op: sim.OpEnd, Outcome: sim.OutcomeDone, Replica: r, Incarnation: life, Row: row, Unit: 1, Term: term, Session: effects})
	}
	w.replica(s+0.03+float64(n)*0.05, sim.Event{Kind: sim.EvTick, Op: sim.OpEnd, Outcome: sim.OutcomeOK, N: n, Replica: r, Incarnation: life, Term: term})
}

func (w *writer) held(s float64, session string) {
	w.add(s, sim.FromObserver, sim.Event{Kind: sim.EvHeld, Key: roleKey, Session: session})
}

func (w *writer) fault(s float64, n int, op string, e sim.Event) {
	e.Kind, e.Op, e.Fault = sim.EvFault, op, n
	w.engine(s, e)
}

func (w *writer) sql(s float64, session, sql, answer string, lasts float64, blockedBy ...string) {
	r, life, _, _ := sim.ParseSession(session)
	w.engine(s, sim.Event{Kind: sim.EvStatement, Replica: r, Incarnation: life, Session: session, SQL: sql, Answer: answer, Lasts: at(lasts), BlockedBy: blockedBy})
}

// history is what was written, through a recorder and back, as the command line sees it.
func (w *writer) history(t testing.TB) (*sim.History, []byte) {
	var b bytes.Buffer
	rec, err := sim.NewRecorder(&b, w.header)
	require.NoError(t, err)
	for _, e := range w.events {
		rec.Add(e)
	}
	_, err = rec.Close()
	require.NoError(t, err)
	h, err := sim.ReadHistory(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	return h, b.Bytes()
}

func headerOf(t testing.TB, scenario, impl, engine string, route sim.Route, faults []sim.Fault, seconds float64) sim.Header {
	s, ok := scenarios.ByName(scenario)
	require.True(t, ok)
	s = scenarios.Resolve(s)
	return sim.Header{
		Scenario: s, Engine: engine, Route: route, Impl: impl, Terms: true, Seed: 1, TimeScale: 1, Intervals: s.Intervals,
		Plan:     sim.Plan{V: sim.PlanVersion, Faults: faults, Horizon: at(seconds)},
		Versions: map[string]string{"postgres": "15.18", "pgbouncer": "1.18.0"},
	}
}

// killLeader is a passing run: the leader is killed, a standby takes over in time.
func killLeader(t testing.TB) *writer {
	w := &writer{header: headerOf(t, "kill-leader", "reference", "virtual", sim.Direct, []sim.Fault{{Kind: sim.Kill, Target: sim.TargetLeader, At: at(20), For: at(10)}}, 70)}
	w.up(0.4, 1, 1, 0)
	w.up(1.1, 2, 1, 0)
	w.up(2.6, 3, 1, 0)
	w.held(0.1, "")
	w.sql(0.5, lease(1, 1), "SELECT CASE WHEN pg_backend_pid() <> $2 THEN 'moved' WHEN pg_try_advisory_lock($1) THEN 'acquired' ELSE 'busy' END", "acquired", 0.012)
	w.sql(0.515, lease(1, 1), "INSERT INTO lock_terms AS t SELECT $1::bigint, 1 ... RETURNING term", "1 row", 0.009)
	w.lead(0.5, 1, 1, 1, 20.5)
	for _, s := range []float64{1.25, 6.25, 11.25, 16.25} {
		w.attempt(s, 2, 1, sim.Busy)
	}
	for _, s := range []float64{2.75, 7.75, 12.75, 17.75} {
		w.attempt(s, 3, 1, sim.Busy)
	}
	w.tick(0.53, 1, 1, 1, 1, 1)
	w.tick(10.53, 1, 1, 1, 2, 19)
	w.beat(15.5, 1, 1, 1, 35.5)
	w.fault(20, 1, sim.OpPlanned, sim.Event{})
	w.engine(20, sim.Event{Kind: sim.EvDown, Replica: 1, Incarnation: 1, Fault: 1})
	w.fault(20.001, 1, sim.OpApplied, sim.Event{Targets: []int{1}, Text: "the process is gone"})
	w.held(20.002, "")
	w.sql(21.25, lease(2, 1), "SELECT CASE WHEN pg_backend_pid() <> $2 THEN 'moved' WHEN pg_try_advisory_lock($1) THEN 'acquired' ELSE 'busy' END", "acquired", 0.012)
	w.sql(21.262, lease(2, 1), "INSERT INTO lock_terms AS t SELECT $1::bigint, 1 ... RETURNING term", "1 row", 0.009, sim.SessionName(1, 1, sim.UseEffect, 1))
	w.lead(21.25, 2, 1, 2, 41.25)
	w.tick(21.28, 2, 1, 2, 21, 21)
	w.attempt(22.75, 3, 1, sim.Busy)
	w.fault(30, 1, sim.OpHealed, sim.Event{})
	w.up(30, 1, 2, 1)
	for s := 30.2; s < 68; s += 5 {
		w.attempt(s, 1, 2, sim.Busy)
		w.attempt(s+2.55, 3, 1, sim.Busy)
	}
	w.tick(31.28, 2, 1, 2, 42, 20)
	w.tick(41.28, 2, 1, 2, 62, 20)
	w.tick(51.28, 2, 1, 2, 82, 20)
	w.tick(61.28, 2, 1, 2, 102, 19)
	for s := 36.25; s < 68; s += 15 {
		w.beat(s, 2, 1, 2, s+20)
	}
	w.end(70, 2, 1, 2, "asked to stop")
	for i, life := range []int{2, 1, 1} {
		r := i + 1
		w.engine(70.05, sim.Event{Kind: sim.EvDown, Replica: r, Incarnation: life, Reason: "the run is over"})
	}
	w.held(70.03, "")
	return w
}

// pausedLeader is a failing run: the paused leader wakes up, looks at nothing and leads on beside the new one.
func pausedLeader(t testing.TB) *writer {
	faults := []sim.Fault{
		{Kind: sim.Pause, Target: sim.TargetLeader, At: at(12), For: at(16)},
		{Kind: sim.TerminateBackend, Target: sim.TargetLeader, At: at(17)},
	}
	w := &writer{header: headerOf(t, "pause-leader-terminated", "no-heartbeat", "virtual", sim.Direct, faults, 70)}
	w.up(0.4, 1, 1, 0)
	w.up(1.1, 2, 1, 0)
	w.held(0.1, "")
	w.lead(0.5, 1, 1, 1, 0)
	w.tick(0.53, 1, 1, 1, 1, 1)
	w.tick(10.53, 1, 1, 1, 2, 8)
	for _, s := range []float64{1.25, 6.25, 11.25, 16.25} {
		w.attempt(s, 2, 1, sim.Busy)
	}
	w.fault(12, 1, sim.OpPlanned, sim.Event{})
	w.engine(12, sim.Event{Kind: sim.EvPaused, Replica: 1, Incarnation: 1, Fault: 1})
	w.fault(12.001, 1, sim.OpApplied, sim.Event{Targets: []int{1}, Text: "the process is in state T"})
	w.fault(17, 2, sim.OpPlanned, sim.Event{})
	w.fault(17.004, 2, sim.OpApplied, sim.Event{Targets: []int{1}, Text: "its backend is gone"})
	w.held(17.003, "")
	w.lead(21.25, 2, 1, 2, 41.25)
	w.tick(21.28, 2, 1, 2, 10, 12)
	w.engine(28, sim.Event{Kind: sim.EvResumed, Replica: 1, Incarnation: 1, Fault: 1})
	w.fault(28.001, 1, sim.OpHealed, sim.Event{})
	effects := sim.SessionName(1, 1, sim.UseEffect, 1)
	w.replica(30.54, sim.Event{Kind: sim.EvTick, Op: sim.OpBegin, Replica: 1, Incarnation: 1, Term: 1})
	w.replica(30.55, sim.Event{Kind: sim.EvTick, Op: sim.OpListed, N: 6, Replica: 1, Incarnation: 1, Term: 1})
	w.sql(30.56, effects, "BEGIN ISOLATION LEVEL READ COMMITTED", "BEGIN", 0.004)
	w.replica(30.56, sim.Event{Kind: sim.EvEffect, Op: sim.OpBegin, Replica: 1, Incarnation: 1, Row: 22, Unit: 1, Term: 1, Session: effects})
	w.sql(30.58, effects, "select lock_guard($1,$2,$3); commit", "ERROR LT001 term 1 of key 982410937 is over", 0.006)
	w.replica(30.59, sim.Event{Kind: sim.EvEffect, Op: sim.OpEnd, Outcome: sim.OutcomeRefused, Reason: "term 1 is over", Replica: 1, Incarnation: 1, Row: 22, Unit: 1, Term: 1, Session: effects})
	w.replica(30.6, sim.Event{Kind: sim.EvTick, Op: sim.OpEnd, Outcome: sim.OutcomeTermOver, N: 0, Replica: 1, Incarnation: 1, Term: 1})
	w.tick(31.28, 2, 1, 2, 22, 25)
	w.beat(36.25, 2, 1, 2, 56.25)
	w.tick(41.28, 2, 1, 2, 47, 25)
	w.beat(51.25, 2, 1, 2, 71.25)
	w.tick(51.28, 2, 1, 2, 72, 25)
	w.end(70, 1, 1, 1, "asked to stop")
	w.end(70, 2, 1, 2, "asked to stop")
	w.engine(70.05, sim.Event{Kind: sim.EvDown, Replica: 1, Incarnation: 1, Reason: "the run is over"})
	w.engine(70.05, sim.Event{Kind: sim.EvDown, Replica: 2, Incarnation: 1, Reason: "the run is over"})
	w.held(70.03, "")
	return w
}

// twoLeaders is a live run behind a transaction pooler, its times multiplied by 0.04.
func twoLeaders(t testing.TB) *writer {
	w := &writer{header: headerOf(t, "two-leaders-pooler", "naive-pooled", "live", sim.PgBouncerTransaction, nil, 50)}
	w.header.TimeScale, w.header.Allowance = 0.04, at(0.05)
	w.header.Terms = false
	w.held(0.002, "")
	for i, s := range []float64{0.01, 0.055, 0.13} {
		r := i + 1
		w.engine(s, sim.Event{Kind: sim.EvUp, Replica: r, Incarnation: 1})
		w.replica(s+0.02, sim.Event{Kind: sim.EvSession, Op: sim.OpOpen, Replica: r, Incarnation: 1, Session: lease(r, 1), Use: sim.UseLease, Route: w.header.Route})
		w.attempt(s+0.025, r, 1, sim.Acquired)
		w.replica(s+0.05, sim.Event{Kind: sim.EvLead, Replica: r, Incarnation: 1, Role: "publish", Key: roleKey, Session: lease(r, 1)})
	}
	w.held(0.04, lease(1, 1))
	w.held(0.09, lease(2, 1))
	w.held(0.165, lease(3, 1))
	for k := range 5 {
		for r := 1; r <= 3; r++ {
			w.tick(0.2+0.4*float64(k)+0.01*float64(r), r, 1, 0, 1+6*k+2*r, 2)
		}
	}
	for r := 1; r <= 3; r++ {
		w.replica(2, sim.Event{Kind: sim.EvEnd, Replica: r, Incarnation: 1, Role: "publish", Key: roleKey, Reason: "asked to stop"})
		w.engine(2.05, sim.Event{Kind: sim.EvDown, Replica: r, Incarnation: 1, Reason: "the run is over"})
	}
	return w
}

// sample is a run with a failing, a passing, an expected, an undecided and a broken entry.
func sample(t testing.TB) Page {
	r := &sim.Result{
		Schema: sim.ResultVersion, Seed: 1, StartedAt: time.Date(2026, 11, 29, 18, 30, 0, 0, time.UTC), Seconds: 41.23,
		Versions: sim.Versions{Simrun: "simrun 0.1.0", Go: "go1.26.8", Postgres: "15.18", PgBouncer: "1.18.0"}, Backend: "local",
		ExitStatus: 1, ExitReason: "pause-leader-terminated, direct, no-heartbeat: violated: one-leader",
	}
	held := func(name string, n int, m ...sim.Measure) sim.EntryVerdict {
		return sim.EntryVerdict{Invariant: name, Status: sim.StatusHeld, Examined: n, Measures: m}
	}
	r.Scenarios = []sim.Entry{
		{
			Name: "kill-leader", Shows: "The leader's process is killed. A standby takes over within one retry interval, and no row is published twice.",
			Route: sim.Direct, Impl: "reference", Engine: "virtual", Status: sim.Passed, Schedules: 20, Digest: "9d0f3a", Statements: 8123, VirtualSeconds: 1400, WallSeconds: 1.84,
			Faults: sim.FaultCounts{Applied: 20}, Require: map[string]sim.Count{"leader-changes": {AtLeast: 1, Seen: 20}, "publishes": {AtLeast: 20, Seen: 2400}},
			Verdicts: []sim.EntryVerdict{
				held("one-leader", 2440, sim.Measure{Name: "overlap of beliefs", Value: 0, Bound: 0}), held("no-duplicate-publish", 2400),
				held("failover", 20, sim.Measure{Name: "failover", Value: at(4.71), Bound: at(5.04)}), held("probe", 80),
			},
			Histories: []string{"histories/kill-leader.direct.reference.0.jsonl"}, SelfChecked: 4,
			Coverage: sim.Coverage{Faults: map[string]int{"kill": 20}, States: map[string]int{"kill while publishing": 6, "kill while idle": 14}},
		},
		{
			Name: "pause-leader-terminated", Shows: "The leader is paused and its lease session ended meanwhile. When it wakes up another one leads, and nothing it had in hand is committed any more.",
			Route: sim.Direct, Impl: "no-heartbeat", Engine: "virtual", Status: sim.FailedEntry, Reason: "violated: one-leader", Schedules: 1, Digest: "77ab12", Statements: 403, VirtualSeconds: 70, WallSeconds: 0.31,
			Faults: sim.FaultCounts{Applied: 2}, Require: map[string]sim.Count{"faults-applied": {AtLeast: 2, Seen: 2}},
			Verdicts: []sim.EntryVerdict{
				{Invariant: "one-leader", Status: sim.StatusViolated, Examined: 120, Measures: []sim.Measure{{Name: "overlap of beliefs", Value: at(42), Bound: at(0.04)}}, Violations: []sim.EntryViolation{{
					Text:      "r1 went on leading publish in term 1 for 42s after r2 had begun to lead in term 2",
					Cause:     "a leader that does not look at its lease session does not learn that it has ended",
					AtSeconds: 28.0, Replicas: []int{1, 2}, Schedule: 0,
				}}},
				held("no-duplicate-publish", 96), held("failover", 1, sim.Measure{Name: "failover", Value: at(4.25), Bound: at(5.02)}), held("probe", 2),
			},
			Counterexamples: []sim.CounterSummary{{
				File: "counterexamples/pause-leader-terminated.direct.no-heartbeat.one-leader.json", Invariant: "one-leader", Replicas: 2, Faults: 2,
				Schedule:   []string{"pause the leader at 12s for 16s", "terminate-backend the leader at 17s"},
				Reproduced: "20/20", Live: "9/10", Replay: "simrun replay simrun-out/latest/counterexamples/pause-leader-terminated.direct.no-heartbeat.one-leader.json",
				History: "histories/pause-leader-terminated.direct.no-heartbeat.0.one-leader.jsonl",
			}},
			Histories: []string{"histories/pause-leader-terminated.direct.no-heartbeat.0.one-leader.jsonl"},
		},
		{
			Name: "two-leaders-pooler", Shows: "Two replicas ask for the same lock behind a transaction pooler, and both get it, on one server connection.",
			Route: sim.PgBouncerTransaction, Impl: "naive-pooled", Engine: "live", Status: sim.Passed, Expected: []string{"one-leader", "probe"}, Schedules: 1, Digest: "0c44d0", WallSeconds: 4.02,
			Require: map[string]sim.Count{"elections": {AtLeast: 2, Seen: 3}},
			Verdicts: []sim.EntryVerdict{
				{Invariant: "one-leader", Status: sim.StatusViolated, Examined: 33, Violations: []sim.EntryViolation{{Text: "r1 and r2 both led publish, on one server session", Cause: "a transaction pooler gives two clients one server session, in which a session lock is re-entrant", AtSeconds: 0.105, Replicas: []int{1, 2}, Schedule: 0}}},
				{Invariant: "probe", Status: sim.StatusViolated, Examined: 3, Violations: []sim.EntryViolation{{Text: "r1 led over pgbouncer-transaction, where a session lock protects nothing", AtSeconds: 0.06, Replicas: []int{1}, Schedule: 0}}},
			},
			Counterexamples: []sim.CounterSummary{{
				File: "counterexamples/two-leaders-pooler.pgbouncer-transaction.naive-pooled.one-leader.json", Invariant: "one-leader", Replicas: 3, Faults: 0, Schedule: []string{},
				Reproduced: "3/3", Replay: "simrun replay simrun-out/latest/counterexamples/two-leaders-pooler.pgbouncer-transaction.naive-pooled.one-leader.json",
				History: "histories/two-leaders-pooler.pgbouncer-transaction.naive-pooled.0.jsonl",
			}},
			Histories: []string{"histories/two-leaders-pooler.pgbouncer-transaction.naive-pooled.0.jsonl"},
		},
		{
			Name: "disconnect-leader", Shows: "All of the leader's connections are cut.", Route: sim.PgBouncerSession, Impl: "reference", Engine: "live", Status: sim.InconclusiveEntry,
			Reason: "failover is inconclusive: schedule 1: the host stood still for 812ms", Schedules: 2, WallSeconds: 5.6, Faults: sim.FaultCounts{Applied: 1, Moot: 1},
			Require:  map[string]sim.Count{"leader-changes": {AtLeast: 1, Seen: 1}},
			Verdicts: []sim.EntryVerdict{held("one-leader", 60), {Invariant: "failover", Reason: "schedule 1: the host stood still for 812ms"}},
		},
		{
			Name: "steady", Shows: "Three replicas and nothing goes wrong.", Route: sim.Direct, Impl: "exec:./mine --fast", Engine: "live", Status: sim.ErrorEntry,
			Reason: "replica 1 wrote a line that is no event: \"\x1b[31mhello\"", Schedules: 1, WallSeconds: 0.4,
		},
	}
	p := Page{Result: r, Histories: map[string]*sim.History{}}
	for name, w := range map[string]*writer{
		r.Scenarios[0].Histories[0]: killLeader(t), r.Scenarios[1].Histories[0]: pausedLeader(t), r.Scenarios[2].Histories[0]: twoLeaders(t),
	} {
		p.Histories[name], _ = w.history(t)
	}
	return p
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

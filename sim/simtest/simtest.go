// Package simtest runs a team's own lock or scheduler in virtual time against a real Postgres, as a Go test: replicas
// that race, die, pause and lose their connections, a hundred schedules in seconds, and when one of them breaks an
// invariant, the smallest schedule that does.
//
//	func TestMyLock(t *testing.T) {
//		simtest.Run(t, sim.Scenario{Replicas: 3}, func(ctx context.Context, env *sim.Env) error {
//			... connect with sim/connect, compete, call env.Emit when leadership begins and ends,
//			... and simtest.Effect in the transaction of each effect, until ctx ends
//		})
//	}
//
// The replicas are ordinary Go code with pgx, pgxpool or database/sql. They use time and context as always, since both
// are virtual, and they close what they open before they return. What cannot run in virtual time is reported: see the
// package sim/virtual. Postgres and, for routes with a pooler, PgBouncer have to be installed.
package simtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

// PlanVariable is the environment variable with a plan to carry out again. A failure prints it.
const PlanVariable = "SIMRUN_PLAN"

// shrinkTime bounds the search for a smaller schedule.
const shrinkTime = 30 * time.Second

type options struct {
	impl      sim.Implementation
	schedules int
	seed      uint64
	selfCheck bool
}

// An Option changes how a replica is run.
type Option func(*options)

// Migrations is SQL that creates the replica's tables, and rows in them if it needs some.
func Migrations(sql string) Option { return func(o *options) { o.impl.Migrations = sql } }

// Load is SQL that adds one unit of work, with the parameters $1, its id (bigint), and $2, seconds until it is due (float8).
// It is run for the scenario's workload.
func Load(sql string) Option { return func(o *options) { o.impl.Load = sql } }

// Role names what the replicas compete for, and the 64-bit advisory key that stands for it, if one does.
func Role(name string, key int64) Option {
	return func(o *options) { o.impl.Role = sim.Role{Name: name, Key: key} }
}

// Terms says that the replica keeps its term in a table lock_terms (key, term, token).
func Terms() Option { return func(o *options) { o.impl.Terms = true } }

// Schedules is how many schedules are run on each route: 100, or 10 with -short.
func Schedules(n int) Option { return func(o *options) { o.schedules = n } }

// Seed is where the schedules come from: 1.
func Seed(n uint64) Option { return func(o *options) { o.seed = n } }

// selfCheckEvery is the share of schedules that SelfCheck runs twice: one in so many, the first always.
const selfCheckEvery = 10

// SelfCheck runs one schedule in ten twice, and fails the test when the two histories differ: something in the code under test is decided by
// chance outside env.Rand, and what is found could not be had again. Without the option the first schedule is run twice, and a difference is
// only logged, since code may have its reasons, such as identifiers from crypto/rand.
func SelfCheck() Option { return func(o *options) { o.selfCheck = true } }

// Run runs replicas through schedules of the scenario, and fails the test when one breaks an invariant. What the
// scenario leaves out is filled in: two replicas, two minutes, the direct route, a leader that is killed or loses its
// connections, and the invariant one-leader.
//
// Nothing examined is no pass. The test fails too when the scenario is invalid, and when, over all schedules of a route,
// an invariant could be judged in none, no planned fault took effect or one could not be carried out, or less happened
// than the scenario's Require asks for (with -short there are fewer schedules for it to happen in). A plan that is carried
// out again is only asked for violations.
func Run(t *testing.T, s sim.Scenario, replica sim.Replica, opts ...Option) {
	t.Helper()
	text, err := explore(t, s, replica, opts)
	if err != nil {
		t.Fatal(err)
	}
	if text != "" {
		t.Fatal(text)
	}
}

// Execer is what Effect writes with: a pgx connection, transaction or pool.
type Execer[T any] interface {
	Exec(ctx context.Context, sql string, args ...any) (T, error)
}

// Effect writes down that the replica has worked on a unit: the instance (a count of its schedulings, 1 when there is
// only one) of a row. Call it in the transaction that does the work, so that both happen or neither.
func Effect[T any](ctx context.Context, tx Execer[T], env *sim.Env, row, instance int64) error {
	_, err := tx.Exec(ctx, `INSERT INTO simrun.ledger (kind, role, key, row_id, unit) VALUES ('effect', $1::text, $2::bigint, $3::bigint, $4::bigint)`,
		env.Role.Name, env.Role.Key, row, instance)
	return err
}

// explore is Run without a test to fail: the text of the failure, if there is one.
func explore(t *testing.T, s sim.Scenario, replica sim.Replica, opts []Option) (failure string, err error) {
	t.Helper()
	o := options{seed: 1, schedules: 100, impl: sim.Implementation{Name: "replica", Role: sim.Role{Name: "leader", Key: 1}}}
	if testing.Short() {
		o.schedules = 10
	}
	for _, f := range opts {
		f(&o)
	}
	o.impl.Run = replica
	if o.schedules < 1 {
		return "", fmt.Errorf("simtest.Schedules(%d): at least one schedule has to be run; without the option there are 100", o.schedules)
	}
	if s, err = withDefaults(t, s); err != nil {
		return "", err
	}
	engine, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	x := &explorer{t: t, engine: engine, options: o}
	var doubts []string // they can wait: a violation on a later route is worse
	for _, route := range s.Routes {
		failure, doubt, err := x.route(s, route)
		if failure != "" || err != nil {
			return failure, err
		}
		if doubt != "" {
			doubts = append(doubts, doubt)
		}
	}
	return strings.Join(doubts, "\n"), nil
}

// withDefaults fills in what is left out, and refuses what makes no sense before anything is started for it.
func withDefaults(t *testing.T, s sim.Scenario) (sim.Scenario, error) {
	if s.Name == "" {
		s.Name = t.Name()
	}
	if s.Replicas == 0 {
		s.Replicas = 2
	}
	if s.Duration == 0 {
		s.Duration = sim.Duration(2 * time.Minute)
	}
	if len(s.Routes) == 0 {
		s.Routes = []sim.Route{sim.Direct}
	}
	if len(s.Invariants) == 0 {
		s.Invariants = []string{"one-leader"}
	}
	if s.Faults == nil {
		window := sim.Range{From: s.Duration / 8, To: s.Duration / 2}
		s.Faults = []sim.FaultSpec{
			{Kind: sim.Kill, Target: sim.TargetLeader, Weight: 5, Window: window, For: sim.Range{From: sim.Duration(5 * time.Second), To: sim.Duration(20 * time.Second)}},
			{Kind: sim.Disconnect, Target: sim.TargetLeader, Weight: 5, Window: window},
		}
	}
	var known []string
	for _, i := range invariants.All() {
		known = append(known, i.Name)
	}
	if err := scenarios.Check(s, scenarios.Invariants(known...)); err != nil {
		return s, fmt.Errorf("the scenario is invalid, so nothing was run:\n%w", err)
	}
	return scenarios.Resolve(s), nil
}

type explorer struct {
	t      *testing.T
	engine *virtual.Engine
	options
}

// route runs the scenario's schedules on one route. It tells of a violation, or of why there is nothing to be said.
func (x *explorer) route(s sim.Scenario, route sim.Route) (failure, doubt string, err error) {
	if text := os.Getenv(PlanVariable); text != "" {
		failure, err = x.again(s, route, text)
		return failure, "", err
	}
	seen := newTally()
	for i := range x.schedules {
		p := gen.Plan(s, x.seed, i)
		h, verdicts, err := x.carry(s, route, p, i)
		switch {
		case err != nil && (h == nil || len(h.Events) == 0): // the world could not be set up, whatever the plan
			return "", "", fmt.Errorf("on the route %s, before anything ran: %w", route, err)
		case err != nil:
			return "", "", fmt.Errorf("schedule %d on %s: %w\n%s", i, route, err, replayLine(x.t, p))
		}
		if v := violated(verdicts); v != nil {
			failure, err = x.shrink(s, route, i, h, *v)
			return failure, "", err
		}
		seen.add(i, h, verdicts)
		if i == 0 || x.selfCheck && i%selfCheckEvery == 0 {
			differs, err := x.twice(s, route, p, i, h)
			if err != nil {
				return "", "", err
			}
			if differs != "" && x.selfCheck {
				return differs + replayLine(x.t, p), "", nil
			}
			if differs != "" {
				x.t.Log(differs)
			}
		}
	}
	for _, name := range s.Invariants {
		if note := seen.notes[name]; note != "" {
			x.t.Logf("%s on the route %s: %s", name, route, note)
		}
	}
	if doubt = seen.doubt(s, route, x.impl.Name); doubt == "" && seen.ended != "" {
		x.t.Log(seen.ended) // it may have its reasons, but whoever reads this thought that it ran
	}
	return "", doubt, nil
}

// twice carries a plan out a second time, and tells how the history differs from the first one.
func (x *explorer) twice(s sim.Scenario, route sim.Route, p sim.Plan, i int, h *sim.History) (string, error) {
	again, _, err := x.carry(s, route, p, i)
	if err != nil {
		return "", fmt.Errorf("schedule %d on %s, a second time: %w", i, route, err)
	}
	if again.Digest() == h.Digest() {
		return "", nil
	}
	return fmt.Sprintf("self-check: schedule %d on the route %s gave two histories, so that what is found may not be found again\nThe first difference: %s\n%s.\n", i, route, h.FirstDifference(again), byChance), nil
}

// byChance says why a plan may give two histories.
const byChance = "something in the code under test is decided by chance outside env.Rand (equal timers, goroutines that begin at one instant, who gets a connection of a pool next, map order, select, crypto/rand), or by what an earlier run left in a variable"

// again carries out the plan of the environment variable.
func (x *explorer) again(s sim.Scenario, route sim.Route, text string) (string, error) {
	var p sim.Plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return "", fmt.Errorf("%s is no plan: %w", PlanVariable, err)
	}
	if err := scenarios.CheckPlan(s, p); err != nil {
		return "", fmt.Errorf("%s cannot be carried out; give it as the failure printed it:\n%w", PlanVariable, err)
	}
	h, verdicts, err := x.carry(s, route, p, 0)
	if err != nil {
		return "", err
	}
	if v := violated(verdicts); v != nil {
		return x.report(s, route, h, *v, "it was carried out again"), nil
	}
	return "", nil
}

// carry carries one plan out and has it judged.
func (x *explorer) carry(s sim.Scenario, route sim.Route, p sim.Plan, i int) (*sim.History, []sim.Verdict, error) {
	run := sim.Run{Scenario: s, Plan: p, Route: route, Impl: x.impl, Seed: x.seed, Schedule: i}
	rec, err := sim.NewRecorder(io.Discard, x.engine.Header(run))
	if err != nil {
		return nil, nil, err
	}
	runErr := x.engine.Run(context.Background(), run, rec)
	h, err := rec.Close()
	if err = errors.Join(runErr, err); err != nil {
		return h, nil, err
	}
	return h, invariants.Check(s.Invariants, h), nil
}

// violated is the first verdict that is a violation.
func violated(verdicts []sim.Verdict) *sim.Verdict {
	for _, v := range verdicts {
		if v.Status == sim.StatusViolated {
			return &v
		}
	}
	return nil
}

// shrink looks for the smallest schedule that violates the same invariant, and tells of it.
func (x *explorer) shrink(s sim.Scenario, route sim.Route, i int, found *sim.History, first sim.Verdict) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), shrinkTime)
	defer cancel()
	var other error // what a smaller schedule came to instead: the code under test panicked, say
	hung := false
	fails := func(p sim.Plan) (*sim.History, *sim.Verdict) {
		if hung {
			return nil, nil
		}
		h, verdicts, err := x.carry(s, route, p, i)
		if err != nil {
			if other == nil {
				other = err
			}
			var e *virtual.HungError
			hung = errors.As(err, &e)
			return nil, nil
		}
		return h, violated(verdicts)
	}
	small := gen.Shrink(ctx, gen.Random, s, x.seed, i, func(p sim.Plan) bool {
		_, v := fails(p)
		return v != nil && v.Invariant == first.Invariant
	})
	p := small.Plan
	if !small.Found {
		p = gen.Plan(s, x.seed, i)
	}
	how := fmt.Sprintf("schedule %d of seed %d, %d schedules tried to make it small", i, x.seed, small.Runs)
	h, v := fails(p)
	switch {
	case v != nil:
	case other != nil:
		h, v = found, &first
	default:
		return "", errors.New("the schedule that broke an invariant does not do so again: " + byChance)
	}
	text := x.report(s, route, h, *v, how)
	if other != nil {
		text += fmt.Sprintf("\nOf the schedules tried meanwhile one came to something else:\n%v\n", other)
	}
	return text, nil
}

// report tells what happened: the violation, the schedule in words, the SQL of each replica, and how to see it again.
func (x *explorer) report(s sim.Scenario, route sim.Route, h *sim.History, v sim.Verdict, how string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is violated on the route %s (%s)\n", v.Invariant, route, how)
	said := ""
	for _, one := range v.Violations {
		fmt.Fprintf(&b, "  %s\n", one.Text)
		if one.Cause != "" && one.Cause != said {
			fmt.Fprintf(&b, "  %s\n", one.Cause)
			said = one.Cause
		}
	}
	fmt.Fprintf(&b, "\nThe smallest schedule: %d replicas", s.Replicas)
	if len(h.Header.Plan.Faults) == 0 {
		b.WriteString(", no fault at all")
	}
	b.WriteByte('\n')
	for _, f := range h.Header.Plan.Faults {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	b.WriteString("\nWhat happened (seconds, replica):\n")
	b.WriteString(story(h, v))
	b.WriteString("\n" + replayLine(x.t, h.Header.Plan))
	return b.String()
}

func replayLine(t *testing.T, p sim.Plan) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // a Plan holds nothing that JSON cannot express
	}
	var run []string
	for part := range strings.SplitSeq(t.Name(), "/") { // each is an expression of its own
		run = append(run, "^"+regexp.QuoteMeta(part)+"$")
	}
	return fmt.Sprintf("To see it again:\n  %s=%s go test -run %s .\n", PlanVariable, shellQuote(string(text)), shellQuote(strings.Join(run, "/")))
}

// shellQuote is a word for a shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// storyLines is how much of a history a failure prints.
const storyLines = 120

// story is the part of the history that leads to the violation.
func story(h *sim.History, v sim.Verdict) string {
	end := h.Header.Plan.Horizon
	if len(v.Violations) > 0 && v.Violations[0].At > 0 {
		end = v.Violations[0].At
	}
	var lines []string
	for _, e := range h.Events {
		if e.At <= end {
			if l := line(e); l != "" {
				lines = append(lines, l)
			}
		}
	}
	if skip := len(lines) - storyLines; skip > 0 {
		lines = append([]string{fmt.Sprintf("  ... %d lines before", skip)}, lines[skip:]...)
	}
	return strings.Join(lines, "\n") + "\n"
}

func line(e sim.Event) string {
	at := fmt.Sprintf("  %9.3f  %-5s", e.At.Seconds(), e.Who())
	switch e.Kind {
	case sim.EvStatement:
		l := fmt.Sprintf("%s %s  ->  %s", at, e.SQL, e.Answer)
		if len(e.BlockedBy) > 0 {
			l += fmt.Sprintf("  (waited %s for %s)", e.Lasts, strings.Join(e.BlockedBy, ", "))
		}
		return l
	case sim.EvUp, sim.EvDown, sim.EvPaused, sim.EvResumed:
		return strings.TrimRight(fmt.Sprintf("%s * %s %s", at, e.Kind, e.Reason), " ")
	case sim.EvLead, sim.EvEnd:
		return fmt.Sprintf("%s * leadership: %s %s", at, e.Kind, e.Reason)
	case sim.EvFault:
		return fmt.Sprintf("  %9.3f        * fault %d %s %s%s", e.At.Seconds(), e.Fault, e.Op, e.Text, e.Reason)
	case sim.EvHeld:
		if e.Session == "" {
			return fmt.Sprintf("  %9.3f        * the lock is free", e.At.Seconds())
		}
		return fmt.Sprintf("  %9.3f        * the lock is held by %s", e.At.Seconds(), e.Session)
	case sim.EvEffect:
		if e.Source == sim.FromLedger {
			return fmt.Sprintf("%s * effect on row %d committed", at, e.Row)
		}
	case sim.EvNote:
		return fmt.Sprintf("%s * %s", at, e.Text)
	}
	return ""
}

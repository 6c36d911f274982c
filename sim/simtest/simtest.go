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

// Run runs replicas through schedules of the scenario, and fails the test when one breaks an invariant. What the
// scenario leaves out is filled in: two replicas, two minutes, the direct route, a leader that is killed or loses its
// connections, and the invariant one-leader.
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
	s = withDefaults(t, s)
	engine, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	x := &explorer{t: t, engine: engine, options: o}
	for _, route := range s.Routes {
		if failure, err = x.route(s, route); failure != "" || err != nil {
			return failure, err
		}
	}
	return "", nil
}

func withDefaults(t *testing.T, s sim.Scenario) sim.Scenario {
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
	return scenarios.Resolve(s)
}

type explorer struct {
	t      *testing.T
	engine *virtual.Engine
	options
}

// route runs the scenario's schedules on one route.
func (x *explorer) route(s sim.Scenario, route sim.Route) (string, error) {
	if text := os.Getenv(PlanVariable); text != "" {
		var p sim.Plan
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return "", fmt.Errorf("%s is no plan: %w", PlanVariable, err)
		}
		h, v, err := x.carry(s, route, p, 0)
		if err != nil || v == nil {
			return "", err
		}
		return x.report(s, route, h, *v, "it was carried out again"), nil
	}
	for i := range x.schedules {
		h, v, err := x.carry(s, route, gen.Plan(s, x.seed, i), i)
		if err != nil {
			return "", fmt.Errorf("schedule %d on %s: %w\n%s", i, route, err, replayLine(x.t, h.Header.Plan))
		}
		if v != nil {
			return x.shrink(s, route, i, *v)
		}
	}
	return "", nil
}

// carry carries one plan out and returns the first verdict that is a violation.
func (x *explorer) carry(s sim.Scenario, route sim.Route, p sim.Plan, i int) (*sim.History, *sim.Verdict, error) {
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
	for _, v := range invariants.Check(s.Invariants, h) {
		if v.Status == sim.StatusViolated {
			return h, &v, nil
		}
	}
	return h, nil, nil
}

// shrink looks for the smallest schedule that violates the same invariant, and tells of it.
func (x *explorer) shrink(s sim.Scenario, route sim.Route, i int, first sim.Verdict) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), shrinkTime)
	defer cancel()
	var hard error
	small := gen.Shrink(ctx, gen.Random, s, x.seed, i, func(p sim.Plan) bool {
		_, v, err := x.carry(s, route, p, i)
		hard = errors.Join(hard, err)
		return err == nil && v != nil && v.Invariant == first.Invariant
	})
	if hard != nil {
		return "", fmt.Errorf("look for a smaller schedule: %w", hard)
	}
	p := small.Plan
	if !small.Found {
		p = gen.Plan(s, x.seed, i)
	}
	h, v, err := x.carry(s, route, p, i)
	if err != nil {
		return "", err
	}
	if v == nil {
		return "", errors.New("the schedule that broke an invariant does not do so again: something in the code under test is decided by chance outside env.Rand (equal timers, map order, select)")
	}
	return x.report(s, route, h, *v, fmt.Sprintf("schedule %d of seed %d, %d schedules tried to make it small", i, x.seed, small.Runs)), nil
}

// report tells what happened: the violation, the schedule in words, the SQL of each replica, and how to see it again.
func (x *explorer) report(s sim.Scenario, route sim.Route, h *sim.History, v sim.Verdict, how string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is violated on the route %s (%s)\n", v.Invariant, route, how)
	for _, one := range v.Violations {
		fmt.Fprintf(&b, "  %s\n", one.Text)
		if one.Cause != "" {
			fmt.Fprintf(&b, "  %s\n", one.Cause)
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
	return fmt.Sprintf("To see it again:\n  %s='%s' go test -run '^%s$' .\n", PlanVariable, text, t.Name())
}

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

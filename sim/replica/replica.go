// Package replica makes the reference implementation and its flawed twins into something an engine can run: it wires a
// sim.Env to their configurations, and what they report to events. They have never heard of a simulator.
package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/flawed"
	"github.com/seed-aafb3a99/simrun/lockimpl/publish"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/connect"
)

// Reference is the name of the correct implementation.
const Reference = "reference"

// All is every implementation: the reference, then the flawed ones by name.
func All() []sim.Implementation {
	all := []sim.Implementation{implementation(Reference, flawed.Flaw{Terms: true, Probes: true})}
	for _, f := range flawed.All() {
		all = append(all, implementation(f.Name, f))
	}
	return all
}

// ByName finds an implementation.
func ByName(name string) (sim.Implementation, bool) {
	all := All()
	i := slices.IndexFunc(all, func(m sim.Implementation) bool { return m.Name == name })
	if i < 0 {
		return sim.Implementation{}, false
	}
	return all[i], true
}

func implementation(name string, flaw flawed.Flaw) sim.Implementation {
	role, err := lockimpl.DefaultKeys().Role("publish")
	if err != nil {
		panic(err) // it is one of the defaults
	}
	return sim.Implementation{
		Name:       name,
		Models:     flaw.Models,
		Role:       sim.Role{Name: role.Name, Key: role.Key},
		Migrations: lockimpl.SchemaSQL + publish.SchemaSQL,
		Load:       publish.ScheduleSQL,
		Terms:      flaw.Terms,
		Probes:     flaw.Probes,
		Run:        func(ctx context.Context, env *sim.Env) error { return run(ctx, env, flaw) },
	}
}

// offBeat keeps a replica's timers from being due at one instant: with the usual intervals the deadline of the first heartbeat, 15 s + 5 s
// after the election, would meet the third tick, 2 x 10 s after it, and which goroutine is first then is the Go runtime's choice. A
// heartbeat a little early breaks no promise.
const offBeat = time.Millisecond

// run is one replica: a lease, and the publish scheduler for as long as it leads.
func run(ctx context.Context, env *sim.Env, flaw flawed.Flaw) error {
	lease, pub := configs(env)
	if flaw.Driver {
		lease.Connect = func(ctx context.Context, use lockimpl.Use) (*pgx.Conn, error) {
			return connect.Connect(ctx, env, string(use))
		}
	}
	if flaw.Name != "" {
		flaw.Break(env.Replica, env.Version, &lease, &pub)
	}
	scheduler, err := publish.New(pub)
	if err != nil {
		return err
	}
	l, err := lockimpl.New(lease)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case c := <-env.Commands: // nil: never
				if c == sim.CommandStepDown {
					l.StepDown()
				}
			}
		}
	}()
	err = l.Run(ctx, scheduler.Work)
	cancel()
	<-done
	return err
}

// configs are those of the reference in this world.
func configs(env *sim.Env) (lockimpl.Config, publish.Config) {
	iv := env.Intervals.WithDefaults()
	emit := observer(env)
	role := lockimpl.Role{Name: env.Role.Name, Key: env.Role.Key}
	lease := lockimpl.Config{
		Connect: func(ctx context.Context, use lockimpl.Use) (*pgx.Conn, error) {
			cfg, err := connect.Config(env, string(use))
			if err != nil {
				return nil, err
			}
			return lockimpl.ConnectOnce(ctx, cfg)
		},
		Role:         role,
		Keys:         lockimpl.Keys{role},
		Holder:       fmt.Sprintf("r%d/%d", env.Replica, env.Incarnation),
		Retry:        iv.Retry.D(),
		Beat:         iv.Beat.D() - offBeat,
		BeatDeadline: iv.BeatDeadline.D(),
		ProbeWait:    iv.ProbeWait.D(),
		StopGrace:    iv.StopGrace.D(),
		TTL:          iv.TTL.D(),
		Rand:         env.Rand,
		Now:          env.Now,
		Observe:      emit,
	}
	pub := publish.Config{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return connect.Connect(ctx, env, sim.UseEffect)
		},
		Task:              ledger(env),
		Tick:              iv.Tick.D(),
		Deadline:          iv.BeatDeadline.D(),
		Finish:            iv.StopGrace.D() / 2,
		IdleInTransaction: iv.TTL.D(), // together: a server without its own timers has neither
		Now:               env.Now,
		Observe:           emit,
	}
	if iv.TTL < 0 {
		lease.StatementTimeout = -1
	}
	return lease, pub
}

// ledger is the task: it publishes a row by writing down who did it, in the same transaction.
func ledger(env *sim.Env) publish.Task {
	const insert = `INSERT INTO simrun.ledger (kind, role, key, row_id, unit, term)
		VALUES ('effect', $1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint)`
	return func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
		if err := env.Tasks.Begin(ctx, row.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insert, env.Role.Name, t.Key(), row.ID, row.ScheduleNo, t.Number())
		return err
	}
}

// observer turns what a lease or a scheduler reports into events of a history.
func observer(env *sim.Env) func(lockimpl.Event) {
	return func(o lockimpl.Event) {
		e := sim.Event{
			Source: sim.FromReplica, Kind: sim.EventKind(o.Kind), Op: o.Op, Session: o.Session, Use: string(o.Use),
			Answer: o.Answer, Reason: reason(o), Outcome: o.Outcome, N: o.N, Row: o.Row, Unit: o.Unit,
		}
		if o.Kind != lockimpl.EventSession && o.Kind != lockimpl.EventProbe {
			e.Role, e.Key = env.Role.Name, o.Key
		}
		if t := o.Term; t != nil {
			e.Term = t.Number()
			if o.Kind == lockimpl.EventLead && t.Number() > 0 {
				e.Token = fmt.Sprint(t.Token())
			}
		}
		if !o.Trusted.IsZero() {
			e.Trusted = sim.Duration(o.Trusted.Sub(env.Start))
		}
		env.Emit(e)
	}
}

// reason adds the SQLSTATE to a reason: nothing else of an error is the same from run to run.
func reason(o lockimpl.Event) string {
	var parts []string
	if o.Reason != "" {
		parts = append(parts, o.Reason)
	}
	if code := lockimpl.SQLState(o.Err); code != "" {
		parts = append(parts, "SQLSTATE "+code)
	}
	return strings.Join(parts, ": ")
}

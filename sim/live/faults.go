package live

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
)

// An injection is a fault that took effect on one replica: the proof, seen from outside, and what undoes it.
type injection struct {
	proof string
	heal  func(context.Context) error // nil: it was over at once
}

// errMoot says that there was nothing to break.
type errMoot string

func (e errMoot) Error() string { return string(e) }

// injectors carry a fault out on one replica. fault is its number.
var injectors = map[sim.FaultKind]func(w *world, ctx context.Context, r *replica, fault int) (injection, error){
	sim.Kill:             (*world).kill,
	sim.Pause:            (*world).pause,
	sim.Disconnect:       (*world).disconnect,
	sim.TerminateBackend: (*world).terminateBackend,
}

// carryOut waits for a fault's instant, breaks, heals, and records each step.
func (w *world) carryOut(ctx context.Context, n int, f sim.Fault) {
	ev := func(op string, e sim.Event) {
		e.Kind, e.Op, e.Fault = sim.EvFault, op, n
		w.add(e)
	}
	if !w.sleepUntil(ctx, f.At.D()) {
		ev(sim.OpMoot, sim.Event{Reason: "the run ended before its instant", Text: f.String()})
		return
	}
	targets, ok := w.resolve(ctx, f.Target)
	if !ok {
		ev(sim.OpMoot, sim.Event{Reason: fmt.Sprintf("there was no %s to hit", f.Target), Text: f.String()})
		return
	}
	var ids []int
	for _, r := range targets {
		ids = append(ids, r.id)
	}
	inject, known := injectors[f.Kind]
	if !known || f.Before != nil || f.After != nil {
		ev(sim.OpFailed, sim.Event{Reason: "the live engine cannot do this fault", Targets: ids, Text: f.String()})
		return
	}
	ev(sim.OpPlanned, sim.Event{Targets: ids, Text: f.String()})
	var heals []func(context.Context) error
	for _, r := range targets {
		// A fault that has begun is finished, also when the run is being stopped.
		in, err := inject(w, context.WithoutCancel(ctx), r, n)
		if moot, is := err.(errMoot); is {
			ev(sim.OpMoot, sim.Event{Targets: []int{r.id}, Reason: moot.Error()})
			continue
		}
		if err != nil {
			ev(sim.OpFailed, sim.Event{Targets: []int{r.id}, Reason: err.Error()})
			continue
		}
		ev(sim.OpApplied, sim.Event{Targets: []int{r.id}, Text: in.proof})
		if in.heal != nil {
			heals = append(heals, in.heal)
		}
	}
	if len(heals) > 0 {
		if f.For == 0 && f.Kind == sim.Kill {
			return // killed for good
		}
		w.sleepUntil(ctx, w.since()+f.For.D())
		if ctx.Err() != nil {
			return // the end of the run undoes everything
		}
		for _, heal := range heals {
			if err := heal(ctx); err != nil {
				ev(sim.OpFailed, sim.Event{Targets: ids, Reason: "heal: " + err.Error()})
				return
			}
		}
	}
	ev(sim.OpHealed, sim.Event{Targets: ids})
}

// resolve says whom a target means now. When it means nobody it waits as long as an election may take, a probe and two
// attempts: then there is a leader again, or there is none to be had.
func (w *world) resolve(ctx context.Context, t sim.Target) ([]*replica, bool) {
	deadline := w.since() + w.intervals.ProbeWait.D() + 2*w.intervals.Retry.D()
	for {
		if rs := w.meant(t); len(rs) > 0 {
			return rs, true
		}
		if w.since() > deadline || !w.sleepUntil(ctx, w.since()+2*time.Millisecond) {
			return nil, false
		}
	}
}

func (w *world) meant(t sim.Target) (rs []*replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var leader *replica
	for _, r := range w.replicas {
		if r.up && r.believes && (leader == nil || r.leadSince > leader.leadSince) {
			leader = r
		}
	}
	for _, r := range w.replicas {
		switch {
		case !r.up:
		case t == sim.TargetAll, t.Replica() == r.id, t == sim.TargetLeader && r == leader,
			t == sim.TargetStandby && !r.believes && len(rs) == 0:
			rs = append(rs, r)
		}
	}
	return rs
}

func (w *world) kill(_ context.Context, r *replica, fault int) (injection, error) {
	w.mu.Lock()
	child, reports := r.child, r.reports
	r.stopping = true
	w.mu.Unlock()
	if err := child.Kill(); err != nil {
		return injection{}, fmt.Errorf("kill replica %d: %w", r.id, err)
	}
	<-reports
	return injection{"the process is gone", func(context.Context) error { return w.boot(r, fault) }}, nil
}

func (w *world) pause(ctx context.Context, r *replica, fault int) (injection, error) {
	w.mu.Lock()
	child, inc := r.child, r.inc
	already := r.paused
	r.paused = true
	w.mu.Unlock()
	if already {
		return injection{}, errMoot("it was paused already")
	}
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		return injection{}, fmt.Errorf("pause replica %d: %w", r.id, err)
	}
	if err := w.untilState(ctx, r, "T"); err != nil {
		return injection{}, fmt.Errorf("pause replica %d: %w", r.id, err)
	}
	w.add(sim.Event{Kind: sim.EvPaused, Replica: r.id, Incarnation: inc, Fault: fault})
	heal := func(ctx context.Context) error {
		w.mu.Lock()
		same := r.up && r.inc == inc
		r.paused = r.paused && !same
		w.mu.Unlock()
		if !same {
			return nil // killed meanwhile
		}
		// Stamped before the signal: from here on the process may do things.
		w.add(sim.Event{Kind: sim.EvResumed, Replica: r.id, Incarnation: inc, Fault: fault})
		return child.Signal(syscall.SIGCONT)
	}
	return injection{"the process is in state T", heal}, nil
}

func (w *world) untilState(ctx context.Context, r *replica, want string) error {
	var state string
	for range 500 {
		var err error
		if state, err = r.child.State(); err != nil {
			return err
		}
		if state == want {
			return nil
		}
		if !w.sleepUntil(ctx, w.since()+2*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the process is in state %s and not %s", state, want)
}

func (w *world) disconnect(_ context.Context, r *replica, _ int) (injection, error) {
	n := r.link.Cut(netfault.FIN)
	if n == 0 {
		return injection{}, errMoot("it had no open connection")
	}
	return injection{proof: fmt.Sprintf("%d connections closed on both sides", n)}, nil
}

func (w *world) terminateBackend(ctx context.Context, r *replica, _ int) (injection, error) {
	names, err := w.sessions(ctx, r, sim.UseLease)
	if err != nil {
		return injection{}, err
	}
	if len(names) == 0 {
		return injection{}, errMoot("it had no lease session on the server")
	}
	for _, name := range names {
		gone, err := w.e.cfg.Server.TerminateSession(ctx, w.database, name)
		if err != nil {
			return injection{}, fmt.Errorf("terminate session %s: %w", name, err)
		}
		if !gone {
			return injection{}, fmt.Errorf("session %s is still there after pg_terminate_backend", name)
		}
	}
	return injection{proof: fmt.Sprintf("%d backend gone from pg_stat_activity", len(names))}, nil
}

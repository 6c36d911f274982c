package live

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

func (w *world) kill(_ context.Context, r *replica, fault int) (injection, error) {
	w.mu.Lock()
	child, reports := r.child, r.reports
	r.stopping = true
	w.mu.Unlock()
	if err := child.Kill(); err != nil {
		return injection{}, fmt.Errorf("kill replica %d: %w", r.id, err)
	}
	<-reports
	return injection{"the process is gone", w.again(r, fault)}, nil
}

// stop asks the process to stop and waits until it has; one that does not within its grace is a failed fault.
func (w *world) stop(_ context.Context, r *replica, fault int) (injection, error) {
	w.mu.Lock()
	reports := r.reports
	r.stopping = true
	w.mu.Unlock()
	if err := w.order(r, sim.OrderStop); err != nil {
		return injection{}, err
	}
	select {
	case <-reports:
		return injection{"the process has stopped by itself", w.again(r, fault)}, nil
	case <-time.After(w.intervals.StopGrace.D() + w.intervals.BeatDeadline.D() + time.Second):
		return injection{}, fmt.Errorf("replica %d did not stop within its grace", r.id)
	}
}

// replace is one replica's turn in a rolling deploy: it is asked to stop, and started again as the new version.
func (w *world) replace(ctx context.Context, r *replica, fault int) (injection, error) {
	w.mu.Lock()
	up := r.up
	r.version = 2 // whoever starts it again starts this
	w.mu.Unlock()
	if !up {
		return injection{}, errMoot("it was down")
	}
	in, err := w.stop(ctx, r, fault)
	if err != nil {
		return in, err
	}
	if err := in.heal(ctx); err != nil {
		return injection{}, fmt.Errorf("start replica %d as the new version: %w", r.id, err)
	}
	return injection{proof: "the process has stopped by itself, and one of the new version was started"}, nil
}

// again starts the process anew; not when the run has ended meanwhile.
func (w *world) again(r *replica, fault int) func(context.Context) error {
	return func(context.Context) error {
		if w.over() {
			return nil
		}
		return w.boot(r, fault)
	}
}

func (w *world) stepDown(_ context.Context, r *replica, _ int) (injection, error) {
	if err := w.order(r, sim.OrderStepDown); err != nil {
		return injection{}, err
	}
	return injection{proof: "the order was written to the process"}, nil
}

// recyclePatience is how long the end of a session may take to be seen.
const recyclePatience = 5 * time.Second

// recycle has the replica's own side close its lease session, as a pool does whose connections have an age.
func (w *world) recycle(ctx context.Context, r *replica, _ int) (injection, error) {
	if sim.IsProgram(w.run.Impl.Name) {
		return injection{}, errMoot("the pool of a program of somebody else's is out of reach")
	}
	before, err := w.sessions(ctx, r, sim.UseLease)
	if err != nil {
		return injection{}, err
	}
	over := r.link.Over() // not how many are open: a replica may have dialled anew before anybody looks
	if len(before) == 0 {
		return injection{}, errMoot("it had no lease session on the server")
	}
	if err := w.order(r, sim.OrderRecycle); err != nil {
		return injection{}, err
	}
	for end := time.Now().Add(recyclePatience); time.Now().Before(end); w.sleepUntil(ctx, w.since()+2*time.Millisecond) {
		if w.run.Route.Pooled() { // the pooler keeps the server's session, whose name stays
			if r.link.Over() > over {
				return injection{proof: "a connection through its link was closed by the replica"}, nil
			}
			continue
		}
		now, err := w.sessions(ctx, r, sim.UseLease)
		if err != nil {
			return injection{}, err
		}
		if !slices.ContainsFunc(before, func(name string) bool { return slices.Contains(now, name) }) {
			return injection{proof: "closed by the replica, and gone from pg_stat_activity: " + strings.Join(before, ", ")}, nil
		}
	}
	return injection{}, fmt.Errorf("recycle the lease session of replica %d: it was still there %s after the order", r.id, recyclePatience)
}

// disturbTask orders the replica's next task to fail or to take longer, and waits until one has.
func (w *world) disturbTask(ctx context.Context, r *replica, fault int) (injection, error) {
	if sim.IsProgram(w.run.Impl.Name) {
		return injection{}, errMoot("the tasks of a program of somebody else's are out of reach")
	}
	f := w.plan.Faults[fault-1]
	w.mu.Lock()
	met, inc := len(r.met), r.inc
	w.mu.Unlock()
	if err := w.send(r, sim.Order{Order: string(f.Kind), For: f.For}); err != nil {
		return injection{}, err
	}
	for !w.over() {
		w.mu.Lock()
		gone := !r.up || r.inc != inc
		var hit *sim.Event
		for _, e := range r.met[min(met, len(r.met)):] {
			if e.Reason == string(f.Kind) {
				hit = &e
			}
		}
		w.mu.Unlock()
		switch {
		case hit != nil && f.Kind == sim.SlowTask:
			return injection{fmt.Sprintf("the task of row %d takes %s longer", hit.Row, f.For), func(context.Context) error { return nil }}, nil
		case hit != nil:
			return injection{proof: fmt.Sprintf("the task of row %d fails", hit.Row)}, nil
		case gone:
			return injection{}, errMoot("the process ended before a task began")
		}
		w.sleepUntil(ctx, w.since()+2*time.Millisecond)
	}
	return injection{}, errMoot("no task began any more")
}

func (w *world) order(r *replica, what string) error { return w.send(r, sim.Order{Order: what}) }

func (w *world) send(r *replica, o sim.Order) error {
	b, err := json.Marshal(o)
	if err == nil {
		_, err = r.child.Stdin().Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("order replica %d to %s: %w", r.id, o.Order, err)
	}
	return nil
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
	if err := child.SignalGroup(syscall.SIGSTOP); err != nil {
		return injection{}, fmt.Errorf("pause replica %d: %w", r.id, err)
	}
	if err := w.untilState(ctx, r, "T"); err != nil {
		return injection{}, fmt.Errorf("pause replica %d: %w", r.id, err)
	}
	w.add(sim.Event{Kind: sim.EvPaused, Replica: r.id, Incarnation: inc, Fault: fault})
	heal := func(context.Context) error {
		w.mu.Lock()
		same := r.up && r.inc == inc && r.paused
		r.paused = r.paused && !same
		w.mu.Unlock()
		if !same {
			return nil // killed or stopped meanwhile
		}
		// Stamped before the signal: from here on the process may do things.
		w.add(sim.Event{Kind: sim.EvResumed, Replica: r.id, Incarnation: inc, Fault: fault})
		return child.SignalGroup(syscall.SIGCONT)
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

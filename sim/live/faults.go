package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
)

// An injection is a fault that took effect: the proof, seen from outside, and what undoes it.
type injection struct {
	proof string
	heal  func(context.Context) error // nil: it was over at once
}

// errMoot says that there was nothing to break.
type errMoot string

func (e errMoot) Error() string { return string(e) }

// onReplica carries a fault out on one replica. fault is its number.
var onReplica = map[sim.FaultKind]func(w *world, ctx context.Context, r *replica, fault int) (injection, error){
	sim.Kill:             (*world).kill,
	sim.Restart:          (*world).stop,
	sim.Stop:             (*world).stop,
	sim.RollingDeploy:    (*world).replace,
	sim.StepDown:         (*world).stepDown,
	sim.TaskFailure:      (*world).disturbTask,
	sim.SlowTask:         (*world).disturbTask,
	sim.Pause:            (*world).pause,
	sim.Disconnect:       (*world).disconnect,
	sim.BlackHole:        (*world).blackHole,
	sim.HalfOpen:         (*world).halfOpen,
	sim.Latency:          (*world).latency,
	sim.Slow:             (*world).slow,
	sim.TerminateBackend: (*world).terminateBackend,
	sim.CancelStatement:  (*world).cancelStatement,
	sim.IdleTimeout:      (*world).idleTimeout,
	sim.Recycle:          (*world).recycle,
}

// onWorld carries a fault out that is aimed at nobody in particular.
var onWorld = map[sim.FaultKind]func(w *world, ctx context.Context) (injection, error){
	sim.PostgresRestart:      (*world).postgresRestart,
	sim.ConnectionsExhausted: (*world).connectionsExhausted,
	sim.PoolerRestart:        (*world).poolerRestart,
	sim.PoolerReload:         (*world).poolerReload,
	sim.PoolerNoise:          (*world).poolerNoise,
}

// A strike is one fault under way.
type strike struct {
	w       *world
	n       int // its number
	f       sim.Fault
	targets []int
}

// say records what became of the fault.
func (s strike) say(op string, e sim.Event) {
	if op == sim.OpPlanned {
		s.w.mu.Lock()
		s.w.struck = true
		s.w.mu.Unlock()
	}
	e.Kind, e.Op, e.Fault = sim.EvFault, op, s.n
	s.w.add(e)
}

// outcome records an injection's outcome and returns what heals it.
func (s strike) outcome(targets []int, in injection, err error) func(context.Context) error {
	var moot errMoot
	switch {
	case errors.As(err, &moot):
		s.say(sim.OpMoot, sim.Event{Targets: targets, Reason: moot.Error()})
		return nil
	case err != nil:
		s.say(sim.OpFailed, sim.Event{Targets: targets, Reason: err.Error()})
		return nil
	}
	s.say(sim.OpApplied, sim.Event{Targets: targets, Text: in.proof})
	return in.heal
}

// carryOut waits for a fault's instant, breaks, heals, and records each step.
func (w *world) carryOut(ctx context.Context, n int, f sim.Fault) {
	s := strike{w: w, n: n, f: f}
	if !w.sleepUntil(ctx, f.At.D()) {
		s.say(sim.OpMoot, sim.Event{Reason: "the run ended before its instant", Text: f.String()})
		return
	}
	if inject, ok := onWorld[f.Kind]; ok {
		s.say(sim.OpPlanned, sim.Event{Text: f.String()})
		in, err := inject(w, context.WithoutCancel(ctx))
		s.heal(ctx, []func(context.Context) error{s.outcome(nil, in, err)})
		return
	}
	if f.Kind == sim.RollingDeploy {
		f.Target = sim.TargetAll
	}
	triggered := f.Kind == sim.CutReply || f.Before != nil || f.After != nil
	targets, ok := w.named(f.Target), true
	if !triggered || len(targets) == 0 { // whoever is to send a statement may not have started yet
		targets, ok = w.resolve(ctx, f.Target)
	}
	if !ok {
		s.say(sim.OpMoot, sim.Event{Reason: fmt.Sprintf("there was no %s to hit", f.Target), Text: f.String()})
		return
	}
	for _, r := range targets {
		s.targets = append(s.targets, r.id)
	}
	s.say(sim.OpPlanned, sim.Event{Targets: s.targets, Text: f.String()})
	if triggered {
		s.atStatement(ctx, targets)
		return
	}
	s.strike(ctx, targets)
}

// strike breaks the targets now, and heals them.
func (s strike) strike(ctx context.Context, targets []*replica) {
	inject, ok := onReplica[s.f.Kind]
	if !ok {
		s.say(sim.OpFailed, sim.Event{Targets: s.targets, Reason: "the live engine cannot do this fault"})
		return
	}
	var heals []func(context.Context) error
	for _, r := range targets {
		// A fault that has begun is finished, also when the run is being stopped.
		in, err := inject(s.w, context.WithoutCancel(ctx), r, s.n)
		heals = append(heals, s.outcome([]int{r.id}, in, err))
		if s.f.Kind == sim.RollingDeploy {
			s.w.sleepUntil(ctx, s.w.since()+s.f.For.D())
		}
	}
	if s.f.Kind == sim.RollingDeploy {
		s.say(sim.OpHealed, sim.Event{Targets: s.targets})
		return
	}
	s.heal(ctx, heals)
}

// heal waits for the fault's time and undoes it. The end of the run undoes everything else.
func (s strike) heal(ctx context.Context, heals []func(context.Context) error) {
	var left []func(context.Context) error
	for _, h := range heals {
		if h != nil {
			left = append(left, h)
		}
	}
	over := s.f.For == 0 && (s.f.Kind == sim.Kill || s.f.Kind == sim.Stop) // for good
	if len(left) > 0 && !over {
		s.w.sleepUntil(ctx, s.w.since()+s.f.For.D())
		// Also when the run has ended: a link or a server that stays broken would break the next run.
		for _, heal := range left {
			if err := heal(context.WithoutCancel(ctx)); err != nil {
				s.say(sim.OpFailed, sim.Event{Targets: s.targets, Reason: "heal: " + err.Error()})
				return
			}
		}
	}
	s.say(sim.OpHealed, sim.Event{Targets: s.targets})
}

// atStatement waits on the targets' links for the statement that the fault is about, and hits whoever is the first to send it. A
// leader or standby was resolved at the fault's instant; a leader that changes meanwhile is not followed. Each one's statements are counted by
// themselves.
func (s strike) atStatement(ctx context.Context, targets []*replica) {
	when, trigger := netfault.After, sim.Trigger{Nth: 1} // cut-reply without a trigger: the next statement
	if s.f.Before != nil {
		when, trigger = netfault.Before, *s.f.Before
	} else if s.f.After != nil {
		trigger = *s.f.After
	}
	r, trap := s.first(ctx, targets, when, trigger)
	if r == nil {
		s.say(sim.OpMoot, sim.Event{Targets: s.targets, Reason: "its statement did not come"})
		return
	}
	s.targets = []int{r.id}
	if s.f.Kind == sim.CutReply {
		if trap.Cut(netfault.RST) {
			s.say(sim.OpApplied, sim.Event{Targets: s.targets, Text: "the server had answered; the answer is lost and the connection cut"})
			s.say(sim.OpHealed, sim.Event{Targets: s.targets})
		} else {
			s.say(sim.OpMoot, sim.Event{Targets: s.targets, Reason: "the connection was over already"})
		}
		return
	}
	inject, ok := onReplica[s.f.Kind]
	if !ok {
		s.say(sim.OpFailed, sim.Event{Targets: s.targets, Reason: "the live engine cannot do this fault at a statement"})
		trap.Release()
		return
	}
	in, err := inject(s.w, context.WithoutCancel(ctx), r, s.n)
	trap.Release() // what the trap holds goes on into the broken world
	s.heal(ctx, []func(context.Context) error{s.outcome(s.targets, in, err)})
}

// first waits until one of the targets sends the statement, and returns it with the trap that holds it; nil when none does.
func (s strike) first(ctx context.Context, targets []*replica, when netfault.When, trigger sim.Trigger) (*replica, *netfault.Trap) {
	type caught struct {
		r    *replica
		trap *netfault.Trap
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	won := make(chan caught, 1)
	var waiting sync.WaitGroup
	for _, r := range targets {
		trap := r.link.Trap(when, trigger.Pattern, max(trigger.Nth, 1))
		waiting.Go(func() {
			if trap.Wait(ctx) == nil {
				select {
				case won <- caught{r, trap}:
					enough()
					return
				default: // another was first
				}
			}
			trap.Release()
		})
	}
	waiting.Wait()
	select {
	case c := <-won:
		return c.r, c.trap
	default:
		return nil, nil
	}
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

// named are the replicas that a target names whatever they do: all, or one by its number.
func (w *world) named(t sim.Target) (rs []*replica) {
	for _, r := range w.replicas {
		if t == sim.TargetAll || t.Replica() == r.id {
			rs = append(rs, r)
		}
	}
	return rs
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

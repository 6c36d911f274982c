package virtual

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// An outcome is what came of applying a fault: proof that it took effect, or why it did not.
type outcome struct {
	proof  string
	moot   string
	failed string
	heal   func() // ends the fault after its For, at the latest at the horizon
	heals  bool   // the fault itself sees to it that heal is called in time
	later  bool   // it takes effect later, and says so itself
}

// An injector carries out one kind of fault. q is the statement that triggered it, if one did.
type injector func(w *world, x *fault, targets []*replica, q *request) outcome

// injectorOf is what the engine can do; sim.Faults says the same.
func injectorOf(k sim.FaultKind) injector {
	switch k {
	case sim.Kill:
		return kill
	case sim.Restart:
		return restart
	case sim.Stop:
		return stop
	case sim.RollingDeploy:
		return rollingDeploy
	case sim.StepDown:
		return stepDown
	case sim.TaskFailure, sim.SlowTask:
		return disturbTask
	case sim.Pause:
		return pause
	case sim.Disconnect:
		return disconnect
	case sim.BlackHole:
		return blackHole
	case sim.HalfOpen:
		return halfOpen
	case sim.Latency:
		return latency
	case sim.Slow:
		return slow
	case sim.CutReply:
		return cutReply
	case sim.TerminateBackend:
		return terminateBackend
	case sim.CancelStatement:
		return cancelStatement
	case sim.IdleTimeout:
		return idleExpiry
	case sim.Recycle:
		return recycle
	case sim.ClockSkew:
		return clockSkew
	case sim.ClockJump:
		return clockJump
	case sim.PostgresRestart:
		return postgresRestart
	case sim.PoolerRestart:
		return poolerRestart
	case sim.PoolerReload:
		return poolerReload
	case sim.PoolerNoise:
		return poolerNoise
	case sim.ConnectionsExhausted:
		return connectionsExhausted
	}
	return nil
}

func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// cutAll cuts r's connections on both sides and returns how many there were.
func (w *world) cutAll(r *replica, why error) (n int) {
	for _, g := range w.sorted(w.gates) {
		if g.rep == r {
			if g.link != nil {
				n++
			}
			w.hang(g, why)
		}
	}
	return n
}

// kill ends the process at once. Its goroutines go on as ghosts that nobody hears.
func kill(w *world, x *fault, targets []*replica, _ *request) outcome {
	n := 0
	for _, r := range targets {
		r.dead, r.down, r.leading, r.paused = true, true, 0, 0
		out := r.outbox
		r.outbox, r.deferred = nil, nil // first: to ignore a request may end its session, which looks for more of them
		for _, q := range out {
			w.ignore(q)
		}
		w.record(sim.Event{Kind: sim.EvDown, Replica: r.num, Incarnation: r.inc, Fault: x.num, Reason: string(sim.Kill)})
		n += w.cutAll(r, errReset)
		r.cancel()
	}
	o := outcome{proof: counted(n, "session") + " of the process gone from the server"}
	if x.f.For > 0 {
		o.heal = func() {
			for _, r := range targets {
				w.boot(w.ctx, r.num, x.num)
			}
		}
	}
	return o
}

// halt asks processes to stop, as SIGTERM does, and starts them again some time after they have.
func halt(w *world, x *fault, targets []*replica, again bool) outcome {
	left := len(targets)
	for _, r := range targets {
		r.onReturn = func() {
			left--
			if left == 0 && again {
				w.after(x.f.For, true, func() { w.healed(x) })
			}
		}
		r.stopFault = x.num
		r.cancel()
	}
	o := outcome{proof: counted(len(targets), "process") + " asked to stop", heals: true}
	if again {
		o.heal = func() {
			for _, r := range targets {
				w.boot(w.ctx, r.num, x.num)
			}
		}
	}
	return o
}

func stop(w *world, x *fault, targets []*replica, _ *request) outcome {
	return halt(w, x, targets, x.f.For > 0)
}

func restart(w *world, x *fault, targets []*replica, _ *request) outcome {
	return halt(w, x, targets, true)
}

// deployPoll is how often a deploy looks whether a process has stopped.
const deployPoll = sim.Duration(100 * time.Millisecond)

// rollingDeploy replaces one process after another. One that is down when its turn comes is started as the new version by whatever
// starts it again, or else here.
func rollingDeploy(w *world, x *fault, _ []*replica, _ *request) outcome {
	n := 0
	var next func()
	await := func(r *replica) {
		var look func()
		look = func() {
			switch now := w.reps[r.num-1]; {
			case now == r && !r.down:
				w.after(deployPoll, true, look)
				return
			case now == r && !r.dead:
				w.boot(w.ctx, r.num, x.num)
			}
			w.after(x.f.For, true, next)
		}
		look()
	}
	next = func() {
		if n++; n > len(w.reps) {
			w.healed(x)
			return
		}
		w.deployed = n
		r := w.reps[n-1]
		if !r.down {
			r.stopFault = x.num
			r.cancel()
		}
		await(r)
	}
	next()
	return outcome{proof: "the first process was asked to stop", heals: true, heal: func() {}}
}

// disturbTask orders the next task of each target to fail or to take longer.
func disturbTask(w *world, x *fault, targets []*replica, _ *request) outcome {
	for _, r := range targets {
		if x.f.Kind == sim.TaskFailure {
			r.env.Tasks.Fail()
		} else {
			r.env.Tasks.Slow(x.f.For.D())
		}
		r.disturbed = append(r.disturbed, x)
	}
	return outcome{later: true, heals: true, heal: func() {}}
}

// disturbed records that a task has carried out its replica's oldest order.
func (w *world) disturbed(h taskHit) {
	if len(h.rep.disturbed) == 0 || h.rep.dead {
		return
	}
	x := h.rep.disturbed[0]
	h.rep.disturbed = h.rep.disturbed[1:]
	if x.state != faultActive {
		return
	}
	x.proved = true
	what := "fails"
	if h.kind == sim.SlowTask {
		what = fmt.Sprintf("takes %s longer", x.f.For)
	}
	w.faultEvent(x, sim.OpApplied, fmt.Sprintf("the task of row %d %s", h.row, what), "")
	w.after(x.f.For, true, func() { w.healed(x) })
}

func stepDown(w *world, _ *fault, targets []*replica, _ *request) outcome {
	n := 0
	for _, r := range targets {
		select {
		case r.commands <- sim.CommandStepDown:
			n++
		default:
		}
	}
	if n == 0 {
		return outcome{moot: "the replica does not take commands"}
	}
	return outcome{proof: counted(n, "command") + " handed over"}
}

// pause holds everything that goes in or out of the process: requests, answers, reports.
func pause(w *world, x *fault, targets []*replica, _ *request) outcome {
	for _, r := range targets {
		r.paused++
		w.record(sim.Event{Kind: sim.EvPaused, Replica: r.num, Incarnation: r.inc, Fault: x.num})
	}
	return outcome{proof: "input, output and reports of the process are held", heal: func() {
		for _, r := range targets {
			w.resume(r, x.num)
		}
	}}
}

// resume lets a process go on. What it did while it was paused, it does now.
func (w *world) resume(r *replica, fault int) {
	if r.dead || r.paused == 0 {
		return
	}
	if r.paused--; r.paused > 0 {
		return
	}
	w.record(sim.Event{Kind: sim.EvResumed, Replica: r.num, Incarnation: r.inc, Fault: fault})
	reports := r.deferred
	r.deferred = nil
	for _, e := range reports {
		e.At = w.since()
		w.heard(report{r, e})
	}
	out := r.outbox
	r.outbox = nil
	for _, q := range out {
		q.sent = time.Now()
		w.launch(q)
	}
	w.releaseDown(r)
	if r.returned && !r.down {
		w.left(r)
	}
}

func (w *world) releaseDown(r *replica) {
	if r.paused > 0 || r.holes > 0 {
		return
	}
	held := r.heldDown
	r.heldDown = nil
	for _, e := range held {
		e.at = time.Now()
		w.add(e)
	}
}

func disconnect(w *world, _ *fault, targets []*replica, _ *request) outcome {
	n := 0
	for _, r := range targets {
		n += w.cutAll(r, errReset)
	}
	if n == 0 {
		return outcome{moot: "no connection was open"}
	}
	return outcome{proof: counted(n, "connection") + " cut, the sessions gone from the server"}
}

// blackHole holds both directions, the closing of connections included. Nothing is lost: it comes when the fault heals.
func blackHole(w *world, _ *fault, targets []*replica, _ *request) outcome {
	for _, r := range targets {
		r.holes++
	}
	return outcome{proof: "both directions of the link are held", heal: func() {
		for _, r := range targets {
			r = w.reps[r.num-1] // the link outlives the process
			if r.holes = max(0, r.holes-1); r.holes > 0 {
				continue
			}
			held := r.heldUp
			r.heldUp = nil
			for _, e := range held {
				e.at = time.Now()
				w.add(e)
			}
			w.releaseDown(r)
		}
	}}
}

// halfOpen loses the replica's connections without telling either side: what is sent is lost. The server notices after
// For, as keepalive would have it, and then the client is told with a reset.
func halfOpen(w *world, _ *fault, targets []*replica, _ *request) outcome {
	var gs []*gate
	for _, g := range w.sorted(w.gates) {
		if slices.Contains(targets, g.rep) && g.link != nil && !g.hold {
			g.hold = true
			gs = append(gs, g)
		}
	}
	if len(gs) == 0 {
		return outcome{moot: "no connection was open"}
	}
	return outcome{proof: counted(len(gs), "connection") + " lost without a word; the sessions are still on the server", heal: func() {
		for _, g := range gs {
			g.hold = false
			w.hang(g, errReset)
			if g.shut {
				w.forget(g)
			}
		}
	}}
}

// latency makes each way of the targets' links longer.
func latency(w *world, _ *fault, targets []*replica, _ *request) outcome {
	const d = time.Duration(sim.LatencyAdds)
	for _, r := range targets {
		r.latency += d
	}
	return outcome{proof: fmt.Sprintf("each way takes %s more", d), heal: func() {
		for _, r := range targets {
			w.reps[r.num-1].latency -= d
		}
	}}
}

// slow makes answers trickle.
func slow(w *world, _ *fault, targets []*replica, _ *request) outcome {
	const d = time.Duration(sim.SlowAdds)
	for _, r := range targets {
		r.slow += d
	}
	return outcome{proof: fmt.Sprintf("each answer takes %s more", d), heal: func() {
		for _, r := range targets {
			w.reps[r.num-1].slow -= d
		}
	}}
}

// cutReply lets the server execute a statement and cuts the connection instead of delivering the answer: the statement
// that triggers it, or the target's next one.
func cutReply(w *world, x *fault, targets []*replica, q *request) outcome {
	if q != nil {
		q.cut = errReset
		return outcome{proof: "executed, the answer lost, the connection cut"}
	}
	for _, r := range targets {
		r.cutNext++
	}
	return outcome{proof: "the answer to the next statement is lost"}
}

// leaseGates are the sessions of the targets that hold their lease: those used for it, or else those that may hold an
// advisory lock, or else all.
func (w *world) leaseGates(targets []*replica) []*gate {
	for _, fits := range []func(*gate) bool{
		func(g *gate) bool { return g.use == sim.UseLease },
		func(g *gate) bool { return g.mayHold },
		func(*gate) bool { return true },
	} {
		var gs []*gate
		for _, g := range w.sorted(w.gates) {
			if slices.Contains(targets, g.rep) && g.link != nil && fits(g) {
				gs = append(gs, g)
			}
		}
		if len(gs) > 0 {
			return gs
		}
	}
	return nil
}

func sessionNames(gs []*gate) string {
	var out []string
	for _, g := range gs {
		out = append(out, g.name)
	}
	return strings.Join(out, ", ")
}

func terminateBackend(w *world, _ *fault, targets []*replica, _ *request) outcome {
	var ended []*gate
	for _, g := range w.leaseGates(targets) {
		if w.terminate(g) {
			ended = append(ended, g)
		}
	}
	if len(ended) == 0 {
		return outcome{moot: "there was no session to end"}
	}
	w.settle(nil)
	return outcome{proof: "ended by the server: " + sessionNames(ended)}
}

// cancelStatement cancels what the targets have running. Statements take no virtual time unless they wait for a lock,
// so where none does, the next one is cancelled as it begins.
func cancelStatement(w *world, _ *fault, targets []*replica, q *request) outcome {
	if q != nil && q.out == nil {
		q.cancelled = true
		return outcome{proof: "cancelled as it began"}
	}
	n := 0
	for _, g := range w.sorted(w.gates) {
		if slices.Contains(targets, g.rep) && g.parked != 0 && w.interrupt(g) {
			n++
		}
	}
	if n > 0 {
		return outcome{proof: counted(n, "waiting statement") + " cancelled"}
	}
	for _, r := range targets {
		r.cancelNext++
	}
	return outcome{proof: "the next statement is cancelled as it begins"}
}

func idleExpiry(w *world, _ *fault, targets []*replica, _ *request) outcome {
	var ended []*gate
	for _, g := range w.leaseGates(targets) {
		if g.flight == nil && g.tx == 'I' && !g.hold && !g.copying && w.expire(g, idleTimeout) {
			ended = append(ended, g)
		}
	}
	if len(ended) == 0 {
		return outcome{moot: "there was no idle session"}
	}
	return outcome{proof: "ended by the server: " + sessionNames(ended)}
}

// recycle closes the lease session from the client's side, as a client pool does with a connection that is old enough.
func recycle(w *world, _ *fault, targets []*replica, _ *request) outcome {
	gs := w.leaseGates(targets)
	for _, g := range gs {
		w.hang(g, net.ErrClosed)
	}
	if len(gs) == 0 {
		return outcome{moot: "there was no session to close"}
	}
	return outcome{proof: "closed by the client's pool: " + sessionNames(gs)}
}

func clockSkew(w *world, _ *fault, targets []*replica, _ *request) outcome {
	d := int64(sim.SkewBy)
	for _, r := range targets {
		r.skew.Add(d)
	}
	return outcome{proof: fmt.Sprintf("the replica's clock is %s ahead", time.Duration(sim.SkewBy)), heal: func() {
		for _, r := range targets {
			w.reps[r.num-1].skew.Add(-d)
		}
	}}
}

func clockJump(w *world, _ *fault, targets []*replica, _ *request) outcome {
	for _, r := range targets {
		r.skew.Add(int64(sim.JumpBy))
	}
	return outcome{proof: fmt.Sprintf("the replica's clock jumped by %s", time.Duration(sim.JumpBy))}
}

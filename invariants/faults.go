package invariants

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A news says how the holder of a lock learns that a fault took it: the bound for the overlap of beliefs hangs on it
// (semantics.md, 5).
type news int

const (
	unharmed  news = iota // the fault takes no lock, or the holder itself gives it up first
	outlived              // the holder is dead or silent, and the server keeps the lock until trust has run out
	delivered             // the server or the pooler ends the session and says so
	neverTold             // the lock goes and nothing is said
)

// A reach says whom a fault hits.
type reach int

const (
	reachNobody  reach = iota // neither a process, nor a link, nor the pooler, nor the server
	reachReplica              // the processes or links of its targets
	reachAll                  // the pooler or the server, and with it everybody
)

// A nature is what judges know of a kind of fault.
type nature struct {
	reach   reach
	news    news
	silent  bool // while it lasts, what the server says does not arrive: only TTL ends the session, only trust the belief
	delays  bool // while it lasts, what is said arrives later
	session bool // it ends database sessions
}

var natures = map[sim.FaultKind]nature{
	sim.Kill:                 {reach: reachReplica, session: true},
	sim.Restart:              {reach: reachReplica, session: true},
	sim.Stop:                 {reach: reachReplica, session: true},
	sim.StepDown:             {reach: reachReplica},
	sim.Pause:                {reach: reachReplica, news: outlived, silent: true},
	sim.Disconnect:           {reach: reachReplica, news: delivered, session: true},
	sim.BlackHole:            {reach: reachReplica, news: outlived, silent: true, delays: true, session: true},
	sim.HalfOpen:             {reach: reachReplica, news: outlived, silent: true, delays: true, session: true},
	sim.Latency:              {reach: reachReplica, delays: true},
	sim.Slow:                 {reach: reachReplica, delays: true},
	sim.CutReply:             {reach: reachReplica, news: delivered, session: true},
	sim.TerminateBackend:     {reach: reachReplica, news: delivered, session: true},
	sim.CancelStatement:      {reach: reachReplica},
	sim.PostgresRestart:      {reach: reachAll, news: delivered, session: true},
	sim.ConnectionsExhausted: {reach: reachAll},
	sim.IdleTimeout:          {reach: reachReplica, news: delivered, session: true},
	sim.PoolerRestart:        {reach: reachAll, news: delivered, session: true},
	sim.PoolerReload:         {reach: reachAll, news: neverTold, session: true},
	sim.PoolerNoise:          {reach: reachAll},
	sim.Recycle:              {reach: reachReplica, news: neverTold, session: true},
	sim.ClockSkew:            {reach: reachNobody},
	sim.ClockJump:            {reach: reachNobody},
	sim.TaskFailure:          {reach: reachNobody},
	sim.SlowTask:             {reach: reachNobody},
	sim.RollingDeploy:        {reach: reachReplica, session: true},
}

// A fault is what became of one fault of the plan.
type fault struct {
	num                      int
	kind                     sim.FaultKind
	nature                   nature
	plan                     sim.Fault
	planned, applied, healed *sim.Event
	proved                   *sim.Event // on the last of its targets
	targets                  []int
	span                     span // the time for which it may have been in play
}

func (f *fault) String() string { return string(f.kind) }

func (w *world) takeFault(e *sim.Event) {
	i := slices.IndexFunc(w.faults, func(f *fault) bool { return f.num == e.Fault })
	if i < 0 {
		f := &fault{num: e.Fault}
		if n := e.Fault; n >= 1 && n <= len(w.h.Header.Plan.Faults) {
			f.plan = w.h.Header.Plan.Faults[n-1]
			f.kind = f.plan.Kind
		}
		f.nature = natures[f.kind]
		w.faults = append(w.faults, f)
		i = len(w.faults) - 1
	}
	f := w.faults[i]
	switch e.Op {
	case sim.OpPlanned:
		f.planned = e
	case sim.OpApplied:
		// One event for all targets, or one for each.
		f.targets = replicas(append(f.targets, e.Targets...)...)
		if f.applied == nil {
			f.applied = e
		}
		f.proved = e
	case sim.OpHealed:
		f.healed = e
	}
}

// finishFaults keeps the faults that took effect, and says how long each was in play: from when the engine set about it (its
// proof comes later than its effect) until it was healed.
func (w *world) finishFaults() {
	w.faults = slices.DeleteFunc(w.faults, func(f *fault) bool { return f.applied == nil })
	for _, f := range w.faults {
		f.span = span{f.applied.Earliest(), f.proved.Latest()}
		if f.planned != nil {
			// The plan may be announced as a whole at the start: the planned instant is the earliest that counts.
			f.span.from = min(f.span.from, max(f.planned.At, w.scaled(f.plan.At)))
		}
		switch {
		case f.healed != nil:
			f.span.to = max(f.span.to, w.late(f.healed))
		case f.plan.For > 0:
			f.span.to = w.end
		}
	}
	slices.SortStableFunc(w.faults, func(a, b *fault) int { return cmpDuration(a.span.from, b.span.from) })
}

// hits reports whether the replica, its links, or what all share was hit.
func (f *fault) hits(replica int) bool {
	switch f.nature.reach {
	case reachAll:
		return true
	case reachReplica:
		// Nobody named: it may have been anyone.
		return len(f.targets) == 0 || slices.Contains(f.targets, replica)
	}
	return false
}

// inPlay are the faults that hit the replica and were in play at some time of [from, to].
func (w *world) inPlay(replica int, from, to sim.Duration) (fs []*fault) {
	for _, f := range w.faults {
		if f.hits(replica) && f.span.from <= to && f.span.to >= from {
			fs = append(fs, f)
		}
	}
	return fs
}

// trust is how long a leader may go on without a good heartbeat.
func (w *world) trust() sim.Duration { return w.iv.Beat + w.iv.BeatDeadline }

// ttl is how long the server keeps the session of a silent client; ok is false when it does so for ever.
func (w *world) ttl() (d sim.Duration, ok bool) { return w.iv.TTL, w.iv.TTL > 0 }

// delivery is how long the news of a session's end may be on its way to the replica.
func (w *world) delivery(replica int) (d sim.Duration) {
	if w.live {
		return w.allow
	}
	delays := w.h.Header.Plan.Delays
	if n := len(delays); n > 0 && replica > 0 {
		for _, d1 := range delays[(replica-1)%n] {
			d = max(d, d1.Req+d1.Resp)
		}
	}
	return d
}

// serverGivesUp is how long the server keeps the session of a client that the fault has silenced.
func (w *world) serverGivesUp(f *fault) sim.Duration {
	d, on := w.ttl()
	if !on {
		d = math.MaxInt64
	}
	if f.kind == sim.HalfOpen && f.plan.For > 0 {
		d = min(d, w.scaled(f.plan.For)) // then it notices
	}
	return d
}

// A bound is a length of time with the reason for it.
type bound struct {
	d   sim.Duration
	why string
}

// lossBound is how long a leadership may go on believing after its lock is gone, if it was lost by the instant given.
func (w *world) lossBound(l *leadership, by sim.Duration) bound {
	if o := w.h.Header.Scenario.BeliefOverlap; o != nil {
		return bound{*o, "set by the scenario"} // an engine scales it, as it does the intervals
	}
	fs := w.inPlay(l.replica, l.from(), by)
	delayed := slices.ContainsFunc(fs, func(f *fault) bool { return f.nature.delays })
	b := bound{0, "no fault was in play"}
	for _, f := range fs {
		next := w.boundAfter(f, l.replica, delayed)
		if next.d > b.d || (b.d == 0 && next.d == 0) {
			b = next
		}
	}
	return b
}

func (w *world) boundAfter(f *fault, replica int, delayed bool) bound {
	switch n := f.nature.news; {
	case n == outlived && w.serverGivesUp(f) < w.trust():
		return bound{w.trust(), fmt.Sprintf("%s, and the server ends a silent session before trust runs out", f)}
	case n == delivered && delayed:
		return bound{w.trust(), fmt.Sprintf("%s, and the news of it is delayed", f)}
	case n == delivered:
		return bound{w.delivery(replica), fmt.Sprintf("%s, and the news of it has to arrive", f)}
	case n == neverTold:
		return bound{w.trust(), fmt.Sprintf("%s, of which nobody is told", f)}
	}
	return bound{0, fmt.Sprintf("%s excuses none", f)}
}

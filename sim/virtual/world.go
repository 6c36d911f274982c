package virtual

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A world is one run: a bubble, its replicas, and what is under way between them and the server.
type world struct {
	eng   *Engine
	run   sim.Run
	plan  sim.Plan
	rec   *sim.Recorder
	start time.Time

	mu      sync.Mutex // guards what replicas hand over
	inbox   []*request
	reports []report
	hits    []taskHit
	namings []*naming
	arrive  chan struct{}
	alive   atomic.Int32 // incarnations whose function has not returned

	reps   []*replica // the present incarnation of each number, from index 0
	all    []*replica
	gates  []*gate // open ones
	ghosts []ghost // sessions whose client is gone and which are not, yet
	events []*event
	order  int // of events, to break ties
	asleep int // statements that were cancelled as they began
	picks  int
	sent   []int // requests of each replica so far
	steps  int
	here   struct { // how many steps there were at the present instant
		at    time.Time
		steps int
	}
	leads  int // leaderships so far
	faults []*fault

	held       holder
	ledgerRows int                 // of the ledger in the history
	ledgerAt   int64               // position of the last one
	instants   map[int64]time.Time // what the clock of the database showed, exactly
	clockSet   time.Time           // when it was last set
	clockAt    int64               // and to what, in microseconds since 1970
	unpinned   bool                // a pooler was told to give every transaction another session
	// mixed: it was, so that server sessions nobody has now may listen to what clients before listened to. PgBouncer takes a
	// notification that comes while it resets such a session for the end of the reset, and goes on too early.
	mixed     bool
	marks     int
	deployed  int           // the replicas up to this one are of version 2
	down      int           // faults that have connections refused
	crowded   int           // faults that leave the server no connection
	moved     bool          // who holds the key may have changed
	ended     bool          // the server has ended a session since who waits was last looked at
	stops     bool          // a statement may have ended sessions, or statements of others
	triggered bool          // a fault may begin with a statement, so that no two steps are independent
	frozen    map[*gate]int // whose server process is stopped until the step is over, and its pid
	waitsOld  bool          // who waits for whom may have changed since it was asked
	stirred   bool          // messages may have come on idle connections
	noted     map[string]bool
	closing   bool // the horizon is past: nothing is started any more
	ending    bool
	ctx       context.Context
	virtual   sim.Duration // how long it lasted
	err       error
}

type requestKind int

const ( // in the order requests of one gate and one instant are taken
	sendDial requestKind = iota
	sendStartup
	sendRequest
	sendCancel
	sendGoodbye
	sendClose
)

// A request is something a replica sent.
type request struct {
	kind    requestKind
	gate    *gate
	data    []byte
	ready   int        // ReadyForQuery to expect
	dialled chan error // of a dial
	by      *asker     // of a dial
	sent    time.Time
	delay   sim.Delay

	arrived   bool
	info      *sqlInfo
	text      string
	step      int // its place among the steps
	blockedBy []string
	out       []byte // its answer
	said      string // and what the history says of it
	over      bool
	cut       error // after it was executed its answer is lost, and the connection with it
	recorded  bool
	before    int  // statements of the engine's own that went before it
	cancelled bool // it is cancelled as it begins
	touches   *footprint
	timedOut  *timeoutError
	told      bool // the replica has had its answer
	mustEnd   bool // it has been cancelled: it answers soon, even if it still seems to wait
}

type eventKind int

const ( // in the order events of one instant are taken
	evAct eventKind = iota
	evDeliver
	evArrive
)

// An event is due at an instant: an action of the engine, an arrival at the server, or one at a replica.
type event struct {
	at    time.Time
	order int
	kind  eventKind
	gate  *gate
	req   *request
	data  []byte
	end   error // the connection is over, and this is why
	act   func()
	keep  bool // the run may not end before it
}

// A ghost is what a severed connection leaves in the server: soon nothing, or a statement that waits for a lock.
type ghost struct {
	name      string
	pid       int
	secret    uint32
	link      *link
	cancelled bool
}

// A report is an event a replica emitted.
type report struct {
	rep *replica
	ev  sim.Event
}

// A taskHit is a task that met an order of a fault.
type taskHit struct {
	rep  *replica
	kind sim.FaultKind
	row  int64
}

func (w *world) post(q *request) {
	w.mu.Lock()
	w.inbox = append(w.inbox, q)
	w.mu.Unlock()
	w.poke()
}

func (w *world) poke() {
	select {
	case w.arrive <- struct{}{}:
	default:
	}
}

func (w *world) since() sim.Duration { return sim.Duration(time.Since(w.start)) }

// record adds an event of the engine's own.
func (w *world) record(e sim.Event) {
	e.At = w.since()
	if e.Source == "" {
		e.Source = sim.FromEngine
	}
	w.rec.Add(e)
}

// note tells a person something, once a run.
func (w *world) note(text string) {
	if !w.noted[text] {
		w.noted[text] = true
		w.record(sim.Event{Kind: sim.EvNote, Text: text})
	}
}

func (w *world) fail(err error) {
	if err != nil {
		w.err = errors.Join(w.err, err)
	}
}

// at has act carried out at t. A run does not end before what it keeps.
func (w *world) at(t time.Time, keep bool, act func()) *event {
	return w.add(&event{at: t, kind: evAct, act: act, keep: keep})
}

func (w *world) after(d sim.Duration, keep bool, act func()) *event {
	return w.at(time.Now().Add(d.D()), keep, act)
}

func (w *world) add(e *event) *event {
	w.order++
	e.order = w.order
	w.events = append(w.events, e)
	return e
}

// tail is how long, after all replicas have returned, goroutines of theirs may need to notice. It is more than any of
// pgx's cleaning up takes (15 s); what is still there then is leaked.
const tail = time.Minute

// overtime is how long after the horizon replicas may take to return.
const overtime = 2 * time.Minute

// loop is the stepper. It runs until every replica has returned and nothing is under way any more.
func (w *world) loop(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for n := 1; n <= w.run.Scenario.Replicas; n++ {
		w.reps = append(w.reps, &replica{w: w, num: n, down: true})
		w.at(w.start.Add(wrap(w.plan.Phase, n-1).D()), true, func() { w.boot(ctx, n, 0) })
	}
	w.sent = make([]int, w.run.Scenario.Replicas)
	w.planFaults(ctx)
	end := w.start.Add(w.plan.Horizon.D())
	w.at(end, true, func() { w.finishing(); stop() })

	timer := time.NewTimer(time.Hour)
	quiet := end.Add(tail)
	for {
		w.eng.beat.Add(1)
		synctest.Wait()
		w.collect()
		if w.err != nil || w.eng.cancelled.Load() {
			break
		}
		if e := w.next(); e != nil {
			w.eng.working.Store(true)
			w.exec(e)
			w.eng.working.Store(false)
			continue
		}
		w.sweep()
		w.settleEnded()
		switch limit := time.Now().Add(tail); {
		case w.busy() && time.Now().Before(end.Add(overtime)):
			quiet = end.Add(overtime)
		case quiet.After(limit):
			quiet = limit
		}
		if !time.Now().Before(quiet) {
			break
		}
		timer.Reset(time.Until(w.soonest(quiet)))
		select {
		case <-w.arrive:
		case <-timer.C:
		}
	}
	timer.Stop()
	w.finish(stop)
}

// busy reports whether something is to come that matters.
func (w *world) busy() bool {
	return w.alive.Load() > 0 || len(w.gates) > 0 || slices.ContainsFunc(w.events, func(e *event) bool { return e.keep || e.kind != evAct })
}

func (w *world) soonest(t time.Time) time.Time {
	for _, e := range w.events {
		if e.at.Before(t) {
			t = e.at
		}
	}
	return t
}

// finish ends every session and lets the bubble's goroutines go.
func (w *world) finish(stop func()) {
	w.ending = true
	w.eng.working.Store(true)
	defer w.eng.working.Store(false)
	stop()
	for _, r := range w.all {
		r.cancel()
	}
	for _, g := range w.sorted(w.gates) {
		w.hang(g, io.EOF)
	}
	w.thaw()
	for synctest.Wait(); w.collect() || len(w.events) > 0; synctest.Wait() {
		events := w.events
		w.events = nil
		for _, e := range events {
			switch {
			case e.req != nil && e.req.dialled != nil:
				e.req.dialled <- syscall.ECONNREFUSED
				w.forget(e.gate)
			case e.req != nil && e.req.kind == sendClose:
				w.forget(e.gate)
			}
		}
	}
	w.settle(nil)
	w.observe()
}

// A replica is one incarnation of the code under test.
type replica struct {
	w        *world
	num, inc int
	env      *sim.Env
	cancel   context.CancelFunc
	commands chan sim.Command

	down     bool // no process: killed, or its function has returned
	dead     bool // killed: whatever its goroutines do is done by a ghost
	returned bool
	failed   error
	leading  int // the ordinal of the leadership it believes in, 0 when it believes in none
	dials    int
	foreign  int
	names    map[string]bool
	sessions map[string]int // how many of each use have a number
	skew     atomic.Int64   // of its clock, in nanoseconds

	cutNext    int      // statements whose answer will be lost
	cancelNext int      // statements that will be cancelled
	stopFault  int      // the fault that asked it to stop
	disturbed  []*fault // whose orders its tasks have not met yet
	onReturn   func()   // what that fault does when it has

	paused   int // pauses in play
	outbox   []*request
	deferred []sim.Event
	holes    int // black holes in play
	heldUp   []*event
	heldDown []*event
	latency  time.Duration // added each way
	slow     time.Duration // added to each answer
}

// boot starts the next incarnation of replica n.
func (w *world) boot(ctx context.Context, n, fault int) {
	old := w.reps[n-1]
	if w.closing || !old.down {
		return
	}
	r := &replica{w: w, num: n, inc: old.inc + 1, names: map[string]bool{}, sessions: map[string]int{}, commands: make(chan sim.Command, 4)}
	r.dials = old.dials
	r.skew.Store(old.skew.Load())
	r.latency, r.slow, r.holes = old.latency, old.slow, old.holes // the network's state outlives the process
	w.reps[n-1] = r
	w.all = append(w.all, r)
	ctx, r.cancel = context.WithCancel(ctx)
	seed := rand.NewPCG(w.eng.planSeed, uint64(n)<<32|uint64(r.inc))
	r.env = &sim.Env{
		Replica: n, Incarnation: r.inc, Version: 1, Replicas: w.run.Scenario.Replicas, Role: w.run.Impl.Role,
		Start: w.start, DSN: w.eng.dsn(w.run.Route), ExecMode: execMode(w.run.Route), Intervals: w.run.Scenario.Intervals.WithDefaults(),
		Tasks: &sim.Tasks{Hit: func(kind sim.FaultKind, row int64) {
			w.mu.Lock()
			w.hits = append(w.hits, taskHit{r, kind, row})
			w.mu.Unlock()
			w.poke()
		}},
		Dial: r.dial, NextSession: r.nextSession, Now: r.now, Rand: rand.New(seed), Emit: r.emit, Commands: r.commands,
	}
	if n <= w.deployed {
		r.env.Version = 2
	}
	w.record(sim.Event{Kind: sim.EvUp, Replica: n, Incarnation: r.inc, Fault: fault})
	w.alive.Add(1)
	go r.live(ctx)
}

// live runs the replica's function.
func (r *replica) live(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil { // only of this goroutine; a panic in one it started ends the process
			r.failed = &PanicError{Replica: r.num, Value: p, Stack: panicked()}
		}
		r.w.mu.Lock()
		r.returned = true
		r.w.mu.Unlock()
		r.w.alive.Add(-1)
		r.w.poke()
	}()
	r.failed = r.w.run.Impl.Run(ctx, r.env)
}

// emit is env.Emit.
func (r *replica) emit(e sim.Event) {
	e.At, e.Source, e.Replica, e.Incarnation = r.w.since(), sim.FromReplica, r.num, r.inc
	r.w.mu.Lock()
	r.w.reports = append(r.w.reports, report{r, e})
	r.w.mu.Unlock()
	r.w.poke()
}

// collect takes over what the replicas handed over since everything was last blocked. The order between replicas was the
// runtime's, so it is sorted before it can matter; within a replica's reports and within a gate it is kept.
func (w *world) collect() bool {
	for w.nameSessions() {
		synctest.Wait()
	}
	w.mu.Lock()
	in, reports, hits := w.inbox, w.reports, w.hits
	w.inbox, w.reports, w.hits = nil, nil, nil
	var back []*replica
	for _, r := range w.all {
		if r.returned && !r.down {
			back = append(back, r)
		}
	}
	w.mu.Unlock()

	slices.SortStableFunc(reports, func(a, b report) int {
		if a.ev.At != b.ev.At {
			return int(a.ev.At - b.ev.At)
		}
		return (a.rep.num-b.rep.num)<<16 + a.rep.inc - b.rep.inc
	})
	for _, r := range reports {
		w.heard(r)
	}
	for _, r := range back {
		w.left(r)
	}
	slices.SortStableFunc(hits, func(a, b taskHit) int { return a.rep.num - b.rep.num })
	for _, h := range hits {
		w.disturbed(h)
	}
	if len(in) > 1 {
		sortAskers(in, func(q *request) *asker { return q.by })
	}
	var last *request
	for _, q := range in {
		if q.kind == sendDial {
			g := q.gate
			if last != nil && last.gate.rep == g.rep && last.by.from == q.by.from {
				if last.gate.alike == nil {
					last.gate.alike = &alike{}
				}
				g.alike = last.gate.alike
			}
			last = q
			g.rep.dials++
			g.ord, g.name = g.rep.dials, fmt.Sprintf("r%d/%d/conn", g.rep.num, g.rep.inc)
			g.stmts.lib = w.eng.lib
			w.gates = append(w.gates, g)
		}
	}
	if len(in) > 1 {
		w.introduced(in)
		slices.SortStableFunc(in, func(a, b *request) int { return byGate(a.gate, b.gate) })
	}
	for _, q := range in {
		switch r := q.gate.rep; {
		case r.dead || w.ending:
			w.ignore(q)
		case r.paused > 0:
			r.outbox = append(r.outbox, q)
		default:
			w.launch(q)
		}
	}
	return len(in)+len(reports) > 0
}

// ignore is what becomes of a request that leaves a dead process.
func (w *world) ignore(q *request) {
	if q.dialled != nil {
		q.dialled <- syscall.ECONNREFUSED
		w.forget(q.gate)
	}
	if q.kind == sendClose {
		w.hang(q.gate, io.EOF)
		w.forget(q.gate)
	}
}

// launch puts a request on its way to the server.
func (w *world) launch(q *request) {
	g, r := q.gate, q.gate.rep
	ds := wrap(w.plan.Delays, r.num-1)
	n := w.sent[r.num-1]
	if a := g.alike; a != nil && q.kind == sendDial {
		if !a.begun {
			a.begun, a.delay = true, n
		}
		n = a.delay
	}
	q.delay = wrap(ds, n)
	if q.kind != sendClose && q.kind != sendGoodbye {
		w.sent[r.num-1]++
	}
	at := time.Now().Add(q.delay.Req.D() + r.latency)
	if at.Before(g.lastUp) {
		at = g.lastUp
	}
	g.lastUp = at
	w.add(&event{at: at, kind: evArrive, gate: g, req: q})
}

// reply puts something on its way to the replica: the answer to a request, or a message nobody asked for.
func (w *world) reply(g *gate, delay sim.Delay, e *event) {
	e.gate, e.kind = g, evDeliver
	e.at = time.Now().Add(delay.Resp.D() + g.rep.latency + g.rep.slow)
	if e.at.Before(g.lastDown) {
		e.at = g.lastDown
	}
	g.lastDown = e.at
	w.add(e)
}

// next takes the event to carry out now, if one is due: the engine's own actions first, then arrivals at replicas, then
// the earliest arrival of one of the gates, as the plan picks.
func (w *world) next() *event {
	t := time.Now()
	best := -1
	var due []int
	for i, e := range w.events {
		if e.at.After(t) {
			continue
		}
		if e.kind == evArrive {
			if j := slices.IndexFunc(due, func(k int) bool { return w.events[k].gate == e.gate }); j < 0 {
				due = append(due, i)
			}
			continue
		}
		if best < 0 || e.before(w.events[best]) {
			best = i
		}
	}
	if best >= 0 {
		return w.takeEvent(best)
	}
	if len(due) == 0 {
		return nil
	}
	if len(due) > 1 {
		slices.SortFunc(due, func(i, j int) int { return byGate(w.events[i].gate, w.events[j].gate) })
	}
	return w.takeEvent(due[w.pick(len(due), func(i int) (*gate, *request) { e := w.events[due[i]]; return e.gate, e.req })])
}

// before orders what is no choice of the plan: by instant, then kind, then gate, then age.
func (e *event) before(o *event) bool {
	switch {
	case !e.at.Equal(o.at):
		return e.at.Before(o.at)
	case e.kind != o.kind:
		return e.kind < o.kind
	case e.gate != nil && e.gate != o.gate:
		return byGate(e.gate, o.gate) < 0
	}
	return e.order < o.order
}

func (w *world) takeEvent(i int) *event {
	e := w.events[i]
	w.events = slices.Delete(w.events, i, i+1)
	return e
}

// pick is the plan's choice among n, or that of the strategy that explores.
func (w *world) pick(n int, of func(i int) (*gate, *request)) int {
	if w.run.Choose != nil {
		steps := make([]sim.Step, n)
		for i := range steps {
			steps[i] = w.step(of(i))
		}
		return min(max(w.run.Choose(steps), 0), n-1)
	}
	if n < 2 || w.picks >= len(w.plan.Picks) {
		return 0
	}
	k := w.plan.Picks[w.picks] % n
	w.picks++
	return max(k, -k)
}

func wrap[T any](l []T, i int) (v T) {
	if len(l) > 0 {
		v = l[i%len(l)]
	}
	return v
}

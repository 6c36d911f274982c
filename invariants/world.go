package invariants

import (
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A world is a history put together again: lives, sessions, leaderships, work, holds and faults, for all judges to read and
// none to change.
type world struct {
	h      *sim.History
	events []sim.Event // in order of time, then of recording
	live   bool
	iv     sim.Intervals
	allow  sim.Duration // live: the stated tolerance; virtual: 0
	end    sim.Duration // the last instant of the history
	stop   sim.Duration // the replicas were stopped on purpose from here on

	lives       map[who]*life
	sessions    map[string]*session
	leaderships []*leadership // in the order in which they began
	silent      bool          // a foreign program that does not say what it believes:
	guessed     []*leadership // its leaderships, as far as bumps or the holders of the lock tell
	attempts    []*attempt
	probes      []*probe
	ticks       []*tick
	unlocks     []*unlock
	jobs        []*job    // effects as replicas report them
	effects     []*effect // effects as the ledger has them, in commit order
	bumps       []*bump   // in commit order
	cancels     []*sim.Event
	holds       map[int64][]hold
	statements  map[who][]*sim.Event
	faults      []*fault
}

// who is one life of one replica.
type who struct{ replica, incarnation int }

func (w who) String() string { return sim.Who(w.replica, w.incarnation) }

func whoOf(e *sim.Event) who { return who{e.Replica, e.Incarnation} }

// A life is a replica between up and down.
type life struct {
	who
	up, down *sim.Event
	pauses   []pause
	first    sim.Duration // its own first report, 0 before it
	last     sim.Duration // its own last report
}

// A pause is the time from paused to resumed; sure is what lies in it whatever the intervals say, maybe what may.
type pause struct {
	paused, resumed *sim.Event
	sure, maybe     span
}

func newWorld(h *sim.History) *world {
	w := &world{
		h: h, events: slices.Clone(h.Events), live: h.Header.Engine == "live", iv: h.Header.Intervals.WithDefaults(),
		lives: map[who]*life{}, sessions: map[string]*session{}, holds: map[int64][]hold{}, statements: map[who][]*sim.Event{},
	}
	if w.live {
		w.allow = h.Header.Allowance
	}
	slices.SortStableFunc(w.events, func(a, b sim.Event) int {
		if c := cmpDuration(a.At, b.At); c != 0 {
			return c
		}
		return a.Seq - b.Seq
	})
	for i := range w.events {
		w.end = max(w.end, w.events[i].Latest())
	}
	w.stop = w.end
	if hz := w.scaled(h.Header.Plan.Horizon); hz > 0 {
		w.stop = min(hz, w.end)
	}
	for i := range w.events {
		w.take(&w.events[i])
	}
	w.finish()
	return w
}

// scaled turns a nominal time of the scenario or the plan into time of the run.
func (w *world) scaled(d sim.Duration) sim.Duration {
	if s := w.h.Header.TimeScale; s > 0 && s != 1 {
		return sim.Duration(float64(d) * s)
	}
	return d
}

// take files one event. Events come in order of time.
func (w *world) take(e *sim.Event) {
	if e.Source == sim.FromReplica {
		l := w.life(whoOf(e))
		if l.last = e.At; l.first == 0 {
			l.first = e.At
		}
	}
	switch e.Kind {
	case sim.EvUp, sim.EvDown, sim.EvPaused, sim.EvResumed:
		w.takeLife(e)
	case sim.EvSession:
		w.takeSession(e)
	case sim.EvProbe:
		w.takeProbe(e)
	case sim.EvAttempt:
		w.takeAttempt(e)
	case sim.EvLead, sim.EvBeat, sim.EvEnd, sim.EvIdle:
		w.takeLeadership(e)
	case sim.EvUnlock:
		w.takeUnlock(e)
	case sim.EvTick:
		w.takeTick(e)
	case sim.EvEffect:
		w.takeEffect(e)
	case sim.EvCancel:
		w.cancels = append(w.cancels, e)
	case sim.EvTerm:
		w.bumps = append(w.bumps, &bump{Event: e})
	case sim.EvHeld:
		w.takeHeld(e)
	case sim.EvFault:
		w.takeFault(e)
	case sim.EvStatement:
		if r, i, _, ok := sim.ParseSession(e.Session); ok {
			w.statements[who{r, i}] = append(w.statements[who{r, i}], e)
		}
	}
}

// finish draws the conclusions that need the whole history. The order matters: each step reads what the ones before wrote.
func (w *world) finish() {
	w.finishFaults()
	w.finishLives()
	w.finishLeaderships()
	if w.silent = w.foreign() && len(w.leaderships) == 0; w.silent {
		w.guessLeaderships()
	}
	w.finishWork()
}

// foreign reports whether the code under test is a program of somebody else's, which may report less than it could.
func (w *world) foreign() bool { return strings.HasPrefix(w.h.Header.Impl, "exec:") }

func (w *world) life(id who) *life {
	l := w.lives[id]
	if l == nil {
		l = &life{who: id}
		w.lives[id] = l
	}
	return l
}

func (w *world) takeLife(e *sim.Event) {
	l := w.life(whoOf(e))
	switch e.Kind {
	case sim.EvUp:
		l.up = e
	case sim.EvDown:
		if l.down == nil {
			l.down = e
		}
	case sim.EvPaused:
		// A process cannot have been stopped before its own last report.
		p := pause{paused: e, sure: span{w.late(e), 0}, maybe: span{max(w.early(e), l.last), 0}}
		l.pauses = append(l.pauses, p)
	case sim.EvResumed:
		if n := len(l.pauses); n > 0 && l.pauses[n-1].resumed == nil {
			l.pauses[n-1].resumed = e
		}
	}
}

func (w *world) finishLives() {
	for _, l := range w.lives {
		for i := range l.pauses {
			p := &l.pauses[i]
			p.sure.to, p.maybe.to = w.end, w.end
			if p.resumed != nil {
				p.sure.to, p.maybe.to = w.early(p.resumed), w.late(p.resumed)
			}
			if l.down != nil {
				p.sure.to = min(p.sure.to, w.late(l.down))
			}
		}
	}
}

// early and late bound the instant of an event. What the engine stamped without saying how sure it is may, in a live run, be off
// by the allowance: it stamps a death when it has seen it.
func (w *world) early(e *sim.Event) sim.Duration {
	if w.live && e.Source == sim.FromEngine && e.AtHi == 0 {
		return e.At - w.allow
	}
	return e.Earliest()
}

func (w *world) late(e *sim.Event) sim.Duration {
	if w.live && e.Source == sim.FromEngine && e.AtHi == 0 {
		return e.At + w.allow
	}
	return e.Latest()
}

// died is the first and the last instant at which the process may have died; alive at the end: both are after it.
func (l *life) died(w *world) (earliest, latest sim.Duration) {
	if l.down == nil {
		return w.end + 1, w.end + 1
	}
	return max(w.early(l.down), min(l.last, w.late(l.down))), w.late(l.down)
}

// asleep is the time for which the process may have been paused, awake only that for which it surely was.
func (l *life) asleep() (ss spans) { return l.pauseSpans(func(p pause) span { return p.maybe }) }

func (l *life) surelyAsleep() spans { return l.pauseSpans(func(p pause) span { return p.sure }) }

func (l *life) pauseSpans(of func(pause) span) spans {
	var all []span
	for _, p := range l.pauses {
		if s := of(p); s.from <= s.to {
			all = append(all, s)
		}
	}
	return union(all...)
}

// ranFor is the time between two instants for which the process may have been running at the least.
func (l *life) ranFor(from, to sim.Duration) sim.Duration {
	return max(0, to-from-l.asleep().within(from, to).total())
}

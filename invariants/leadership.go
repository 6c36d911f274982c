package invariants

import (
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A leadership is one term of one replica in one role, as the replica reports it.
type leadership struct {
	who
	role    string
	key     int64
	term    int64
	token   string
	session string

	lead  *sim.Event
	over  *sim.Event   // end: no new effect is begun from here on; nil when it never said so
	idle  *sim.Event   // all work has stopped
	beats []*sim.Event // the good ones
	undo  *unlock      // its explicit unlock
	next  *leadership  // of the same life, in the same role
	life  *life
	bump  *bump // nil: none is in the ledger

	sure, maybe spans // when it believed, whatever the intervals say; and when it may have
}

func (l *leadership) from() sim.Duration { return l.lead.At }

// until is the last instant at which it may have believed.
func (l *leadership) until() sim.Duration {
	if n := len(l.maybe); n > 0 {
		return l.maybe[n-1].to
	}
	return l.lead.At
}

func (w *world) takeLeadership(e *sim.Event) {
	if e.Kind == sim.EvLead {
		l := &leadership{who: whoOf(e), role: e.Role, key: e.Key, term: e.Term, token: e.Token, session: e.Session, lead: e}
		for _, other := range slices.Backward(w.leaderships) {
			if other.who == l.who && other.role == l.role {
				other.next = l
				break
			}
		}
		w.leaderships = append(w.leaderships, l)
		return
	}
	l := w.latest(e)
	if l == nil {
		return
	}
	switch e.Kind {
	case sim.EvBeat:
		if e.Op != sim.OpBegin && e.Answer == sim.BeatOK {
			l.beats = append(l.beats, e)
		}
	case sim.EvEnd:
		if l.over == nil {
			l.over = e
		}
	case sim.EvIdle:
		if l.idle == nil {
			l.idle = e
		}
	}
}

// latest is the leadership that an event of its replica is about: the last that has begun, of the term that it names.
func (w *world) latest(e *sim.Event) *leadership {
	for _, l := range slices.Backward(w.leaderships) {
		if l.who == whoOf(e) && (e.Role == "" || e.Role == l.role) && (e.Term == 0 || e.Term == l.term) {
			return l
		}
	}
	return nil
}

func (w *world) finishLeaderships() {
	for _, l := range w.leaderships {
		l.life = w.life(l.who)
		w.believe(l)
	}
}

// believe works out when the leadership believed: from lead to the earliest of end, the process's death and trusted_until, less
// the time for which the process was paused.
func (w *world) believe(l *leadership) {
	sureStop, maybeStop := l.life.died(w)
	for _, e := range []*sim.Event{l.over, l.nextLead()} {
		if e != nil {
			sureStop, maybeStop = min(sureStop, e.Earliest()), min(maybeStop, e.Latest())
		}
	}
	var sure, maybe []span
	for _, e := range append([]*sim.Event{l.lead}, l.beats...) {
		trusted := e.Trusted
		if trusted == 0 {
			trusted = w.end // it reports no trust: it trusts for ever
		}
		sure = append(sure, span{e.Latest(), trusted})
		maybe = append(maybe, span{e.Earliest(), trusted})
	}
	l.sure = union(forward(sure)...).within(0, min(sureStop, w.end)).minus(l.life.asleep())
	l.maybe = union(forward(maybe)...).within(0, min(maybeStop, w.end)).minus(l.life.surelyAsleep())
}

func (l *leadership) nextLead() *sim.Event {
	if l.next == nil {
		return nil
	}
	return l.next.lead
}

// forward drops what ends before it begins.
func forward(ss []span) []span {
	return slices.DeleteFunc(ss, func(s span) bool { return s.to < s.from })
}

// elections are the leaderships by which effects are judged.
func (w *world) elections() []*leadership {
	if w.silent {
		return w.guessed
	}
	return w.leaderships
}

// guessLeaderships takes each bump for the beginning of a leadership or, where there is none, each time a named session came to
// hold the lock.
func (w *world) guessLeaderships() {
	add := func(e *sim.Event) {
		if r, i, _, ok := sim.ParseSession(e.Session); ok {
			id := who{r, i}
			w.guessed = append(w.guessed, &leadership{who: id, role: e.Role, key: e.Key, term: e.Term, token: e.Token, session: e.Session, lead: e, life: w.life(id)})
		}
	}
	for _, b := range w.bumps {
		add(b.Event)
	}
	if len(w.bumps) > 0 {
		return
	}
	for i := range w.events {
		if e := &w.events[i]; e.Kind == sim.EvHeld {
			add(e)
		}
	}
}

// byRole groups leaderships by role, in the order in which the roles appear.
func (w *world) byRole() (groups [][]*leadership) {
	index := map[string]int{}
	for _, l := range w.leaderships {
		i, ok := index[l.role]
		if !ok {
			i = len(groups)
			index[l.role] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	return groups
}

package invariants

import (
	"cmp"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A job is an effect as the replica reports it: from the instant BEGIN is sent to the instant its outcome is known.
type job struct {
	who
	begin, end *sim.Event
	by         *leadership // nil: it has never led
	commits    int         // how many committed effects were matched with it
}

// An effect is one committed effect: a row of the ledger.
type effect struct {
	*sim.Event
	who   who
	known bool        // its session has a name of ours
	job   *job        // as its replica reports it; nil: not reported
	by    *leadership // whose effect it is; nil: nobody's
}

// A bump is one committed change of a term.
type bump struct {
	*sim.Event
	by   *leadership // nil: nobody was told of it
	role string
}

// A tick is one round of a scheduler.
type tick struct {
	who
	begin, listed, end *sim.Event
	by                 *leadership
}

func (w *world) takeTick(e *sim.Event) {
	if e.Op == sim.OpBegin {
		w.ticks = append(w.ticks, &tick{who: whoOf(e), begin: e, by: w.latest(e)})
		return
	}
	for _, t := range slices.Backward(w.ticks) {
		if t.who != whoOf(e) || t.begin.Term != e.Term && e.Term != 0 || t.end != nil {
			continue
		}
		if e.Op == sim.OpListed {
			t.listed = e
		} else {
			t.end = e
		}
		return
	}
}

func (w *world) takeEffect(e *sim.Event) {
	switch {
	case e.Source == sim.FromLedger || e.Op == sim.OpCommit:
		f := &effect{Event: e}
		if r, i, _, ok := sim.ParseSession(e.Session); ok {
			f.who, f.known = who{r, i}, true
		}
		w.effects = append(w.effects, f)
	case e.Op == sim.OpBegin:
		w.jobs = append(w.jobs, &job{who: whoOf(e), begin: e, by: w.owner(whoOf(e), e.Key, e.Term, e.At)})
	case e.Op == sim.OpEnd:
		for _, j := range slices.Backward(w.jobs) {
			if j.who == whoOf(e) && j.end == nil && j.begin.Row == e.Row && j.begin.Unit == e.Unit && j.begin.Session == e.Session {
				j.end = e
				return
			}
		}
	}
}

// owner is the leadership of that life to which work of the given key and term belongs, begun by the instant t: the one of that term,
// or else the latest for that key, or else the latest. A term or key that is not its own does not count: a wrong program may name
// the current one.
func (w *world) owner(id who, key, term int64, t sim.Duration) (l *leadership) {
	var other *leadership
	for _, c := range slices.Backward(w.elections()) {
		if c.who != id || c.lead.Earliest() > t {
			continue
		}
		if key != 0 && c.key != 0 && c.key != key {
			other = cmp.Or(other, c)
			continue
		}
		if l == nil {
			l = c
		}
		if term == 0 || c.term == term {
			return c
		}
	}
	return cmp.Or(l, other)
}

func (w *world) finishWork() {
	inCommitOrder := func(a, b *sim.Event) int {
		if a.Commit != b.Commit {
			return int(max(-1, min(1, a.Commit-b.Commit)))
		}
		return a.Seq - b.Seq
	}
	slices.SortStableFunc(w.effects, func(a, b *effect) int { return inCommitOrder(a.Event, b.Event) })
	slices.SortStableFunc(w.bumps, func(a, b *bump) int { return inCommitOrder(a.Event, b.Event) })
	for _, b := range w.bumps {
		w.assignBump(b)
	}
	for _, e := range w.effects {
		if !e.known {
			continue
		}
		if e.job = w.jobOf(e); e.job != nil {
			e.job.commits++
			e.by = e.job.by
		}
		if e.job == nil || w.silent {
			e.by = w.owner(e.who, e.Key, e.Term, e.Latest())
		}
	}
}

func (w *world) assignBump(b *bump) {
	r, i, _, named := sim.ParseSession(b.Session)
	for _, l := range w.elections() {
		if l.key == b.Key && l.term == b.Term && l.bump == nil && (l.token == "" || b.Token == "" || l.token == b.Token) && (!named || l.who == who{r, i}) {
			b.by, l.bump, b.role = l, b, l.role
			return
		}
	}
	b.role = b.Role
	for _, a := range w.attempts {
		if b.role == "" && a.key == b.Key {
			b.role = a.role
		}
	}
	for _, l := range w.leaderships {
		if b.role == "" && l.key == b.Key {
			b.role = l.role
		}
	}
}

// jobOf finds the replica's report of a committed effect: same session, same unit, and of several the one that was told so, or
// may have succeeded, nearest to the commit.
func (w *world) jobOf(e *effect) (best *job) {
	rank := func(j *job) (r int) {
		if j.commits == 0 {
			r += 8
		}
		switch {
		case j.end != nil && j.end.Outcome == sim.OutcomeDone:
			r += 4
		case j.end == nil || j.end.Outcome == sim.OutcomeUnknown:
			r += 2
		}
		if j.begin.At <= e.Latest() && (j.end == nil || j.end.At >= e.Earliest()) {
			r++
		}
		return r
	}
	for _, j := range w.jobs {
		if j.begin.Session != e.Session || j.begin.Row != e.Row || j.begin.Unit != e.Unit || j.begin.At > e.Latest()+w.allow {
			continue
		}
		if best == nil || rank(j) >= rank(best) {
			best = j
		}
	}
	return best
}

// after orders committed events: by commit order where the ledger has it, else by the order of the history.
func (e *effect) after(b *bump) bool {
	if e.Commit != 0 && b.Commit != 0 {
		return e.Commit > b.Commit
	}
	return e.Seq > b.Seq
}

package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// overlapMeasure is the figure that is always given.
const overlapMeasure = "overlap of beliefs"

// An overlap is two leaderships of different lives that believed at the same time; first began first.
type overlap struct {
	first, second *leadership
	both          spans
	bound         bound
}

func (w *world) overlaps() (all []overlap) {
	for _, group := range w.byRole() {
		for i, second := range group {
			for _, first := range group[:i] {
				if first.who == second.who {
					continue
				}
				if both := first.sure.and(second.sure); both.total() > 0 {
					all = append(all, overlap{first, second, both, w.lossBound(first, second.lead.At)})
				}
			}
		}
	}
	return all
}

// ruleBeliefs is rule 4, and gives the overlap that comes nearest to its bound, or exceeds it most.
func (w *world) ruleBeliefs(f *finding) {
	m := sim.Measure{Name: overlapMeasure}
	for i, o := range w.overlaps() {
		if d := o.both.total(); i == 0 || d-o.bound.d > m.Value-m.Bound {
			m.Value, m.Bound = d, o.bound.d
		}
		if o.both.total() <= o.bound.d || w.excusedByStall(f, o.both.total()-o.bound.d) {
			continue
		}
		f.violated(w.overlapping(o))
	}
	if m.Value == 0 {
		for _, l := range w.leaderships {
			m.Bound = max(m.Bound, w.lossBound(l, l.until()).d)
		}
	}
	f.measures = append(f.measures, m)
}

func (w *world) overlapping(o overlap) sim.Violation {
	from, to := o.both[0].from, o.both[len(o.both)-1].to
	return sim.Violation{
		At: from, Replicas: replicas(o.first.replica, o.second.replica), Events: seqs(o.first.lead, o.second.lead, o.first.over, o.second.over),
		Text: fmt.Sprintf("beliefs (rule 4): %s and %s both believed to lead%s from %s to %s: for %s, where %s is allowed (%s)",
			o.first.who, o.second.who, roleWords(o.first.role), sec(from), sec(to), sec(o.both.total()), sec(o.bound.d), o.bound.why),
		Cause: w.causeOfTwo(o.first, o.second),
	}
}

func roleWords(role string) string {
	if role == "" {
		return ""
	}
	return " (" + role + ")"
}

// excusedByStall: in a live run whose host stood still for longer than the allowance, an excess that the stall explains is no
// proof; processes learn of a loss when they are given the processor again.
func (w *world) excusedByStall(f *finding, excess sim.Duration) bool {
	if !w.live || w.h.Stalled <= w.allow || excess > w.h.Stalled {
		return false
	}
	f.doubt("the host stalled for %s, longer than the allowance of %s, so that %s beyond a bound proves nothing",
		sec(w.h.Stalled), sec(w.allow), sec(excess))
	return true
}

// ruleBacked is rule 5: outside the last bound of a belief, the key is held by the believer's own session. pg_locks shows one row
// where two clients share a backend, so that of two believers on one key at most one is ever backed.
func (w *world) ruleBacked(f *finding) {
	shared := map[*leadership]bool{}
	for _, o := range w.overlaps() {
		if o.both.total() > o.bound.d && w.shareBackend(o.first, o.second) {
			shared[o.first], shared[o.second] = true, true
			f.violated(w.onOneBackend(o.first, o.second))
		}
	}
	unheld := map[int64]bool{}
	for _, l := range w.leaderships {
		if len(w.holds[l.key]) == 0 && !unheld[l.key] {
			unheld[l.key] = true
			f.note("nobody ever held key %d, so that nothing is said of belief that no lock backs (rule 5): right for a lease that is no advisory lock, wrong for one on another key", l.key)
		}
		if shared[l] || len(w.holds[l.key]) == 0 {
			continue
		}
		b := w.lossBound(l, l.until())
		judged := l.sure.within(0, l.until()-b.d)
		bare := judged.minus(w.maybeHeld(l.key, l.ownSession))
		// A hold shorter than the time between two samples is never seen: in a live run the allowance covers it.
		if bare.total() > w.allow && !w.excusedByStall(f, bare.total()-w.allow) {
			f.violated(w.unbacked(l, bare, b))
		}
	}
}

// ownSession reports whether a session that holds the key is this leadership's.
func (l *leadership) ownSession(name string) bool {
	if l.session != "" {
		return name == l.session
	}
	r, i, _, ok := sim.ParseSession(name)
	return ok && l.who == who{r, i}
}

// shareBackend reports whether the second came to lead on the backend on which the first led: the way there could give two
// clients one backend, and the key was never free between the two.
func (w *world) shareBackend(first, second *leadership) bool {
	if first.key != second.key || len(w.holds[first.key]) == 0 || w.pathStable(w.route(second.session), second.lead.At, second.lead.At) {
		return false
	}
	for _, h := range w.holds[first.key] {
		// A sample that missed the lock between the two is no proof that it was free.
		free := spans{h.surely(w)}.within(first.lead.Latest(), second.lead.Earliest())
		if h.session == nobody && (free.total() > 0 || h.until == nil) {
			return false
		}
	}
	return true
}

func (w *world) onOneBackend(first, second *leadership) sim.Violation {
	return sim.Violation{
		At: second.lead.At, Replicas: replicas(first.replica, second.replica), Events: seqs(first.lead, second.lead), Cause: causeShared,
		Text: fmt.Sprintf("belief is backed (rule 5): %s began to lead at %s while %s led, and the server knew one holder of key %d all the time: both sat on one backend",
			second.who, sec(second.lead.At), first.who, first.key),
	}
}

func (w *world) unbacked(l *leadership, bare spans, b bound) sim.Violation {
	at := bare[0].from
	v := sim.Violation{At: at, Replicas: replicas(l.replica), Events: seqs(l.lead, l.over), Cause: w.causeOfUnbacked(l)}
	whom := "its own session did not hold"
	for _, h := range w.holds[l.key] {
		if (spans{h.surely(w)}).and(bare).total() == 0 {
			continue
		}
		switch r, i, _, ok := sim.ParseSession(h.session); {
		case h.session == nobody:
			whom = "nobody held"
		case ok && l.who != who{r, i}:
			whom = fmt.Sprintf("a session of %s held", who{r, i})
			v.Replicas = replicas(l.replica, r)
		default:
			whom = fmt.Sprintf("a session called %.40q held", h.session)
		}
		v.Events = append(v.Events, h.since.Seq)
		break
	}
	within := ""
	if b.d > 0 {
		within = fmt.Sprintf(", longer than the %s that are allowed at its end (%s)", sec(b.d), b.why)
	}
	v.Text = fmt.Sprintf("belief is backed (rule 5): %s believed to lead from %s to %s while %s key %d%s",
		l.who, sec(at), sec(bare[len(bare)-1].to), whom, l.key, within)
	return v
}

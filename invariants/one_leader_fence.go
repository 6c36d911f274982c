package invariants

import (
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// ruleFence is rule 1. With terms it is a matter of commit order alone; no clock is asked.
func (w *world) ruleFence(f *finding) {
	var late lateEffects
	for _, e := range w.effects {
		if b := w.overtakenBy(e); b != nil {
			late.add(e, w.beginning(b))
		} else if l := w.overtakenByLead(e); l != nil {
			late.add(e, newLeader{who: l.who, term: l.term, at: l.lead.At, event: l.lead, of: l})
		}
	}
	for _, g := range late.groups {
		f.violated(w.lateEffect(g))
	}
}

// A newLeader is the beginning of a leadership as a late effect runs into it.
type newLeader struct {
	who   who
	term  int64
	at    sim.Duration
	event *sim.Event
	of    *leadership // nil: nobody was told of the bump
}

func (w *world) beginning(b *bump) newLeader {
	n := newLeader{term: b.Term, at: b.At, event: b.Event, of: b.by}
	if b.by != nil {
		n.who = b.by.who
	} else if r, i, _, ok := sim.ParseSession(b.Session); ok {
		n.who = who{r, i}
	}
	return n
}

// overtakenBy is the first bump of a later leadership of the role that was committed before the effect.
func (w *world) overtakenBy(e *effect) *bump {
	role, own := w.standing(e)
	for _, b := range w.bumps {
		if b.role != role || b == own || !e.after(b) {
			continue
		}
		if own != nil && !laterThan(b, own) || own == nil && e.by != nil {
			continue
		}
		if own == nil && b.Term <= e.Term {
			continue
		}
		return b
	}
	return nil
}

// standing is the role of an effect, and the bump that began its leadership. Whose effect it is follows from its session. Only
// for a session without a name of ours is the term believed that it wrote.
func (w *world) standing(e *effect) (role string, own *bump) {
	if e.by != nil {
		return e.by.role, e.by.bump
	}
	role = e.Role
	for _, b := range w.bumps {
		if role == "" {
			role = b.role
		}
		if b.role == role && b.Term == e.Term && !e.known && (e.Key == 0 || b.Key == e.Key) {
			return role, b
		}
	}
	return role, nil
}

func laterThan(b, own *bump) bool {
	if b.Commit != 0 && own.Commit != 0 {
		return b.Commit > own.Commit
	}
	return b.Seq > own.Seq
}

// overtakenByLead is the second form of the rule, for leaderships that no bump marks: a later leadership was reported before
// the effect was begun, or has had an effect committed before it.
func (w *world) overtakenByLead(e *effect) *leadership {
	if e.by == nil || e.by.bump != nil {
		return nil
	}
	for _, l := range w.elections() {
		if l.role != e.by.role || l == e.by || l.lead.At < e.by.lead.At || l.lead.At == e.by.lead.At && l.lead.Seq < e.by.lead.Seq {
			continue
		}
		begun := e.Earliest()
		if e.job != nil {
			begun = max(begun, e.job.begin.Earliest())
		}
		if begun > l.lead.Latest()+w.allow || w.workedBefore(l, e) {
			return l
		}
	}
	return nil
}

func (w *world) workedBefore(l *leadership, e *effect) bool {
	for _, other := range w.effects {
		if other == e {
			return false
		}
		if other.by == l {
			return true
		}
	}
	return false
}

// lateEffects gathers the late effects of one leadership after the beginning of another.
type lateEffects struct{ groups []*lateGroup }

type lateGroup struct {
	first *effect
	rows  []int64 // the others
	after newLeader
}

func (ls *lateEffects) add(e *effect, after newLeader) {
	for _, g := range ls.groups {
		if g.first.who == e.who && g.first.by == e.by && g.after.event == after.event {
			g.rows = append(g.rows, e.Row)
			return
		}
	}
	ls.groups = append(ls.groups, &lateGroup{first: e, after: after})
}

func (w *world) lateEffect(g *lateGroup) sim.Violation {
	e, n := g.first, g.after
	actor := "a session without a name of ours"
	if e.known {
		actor = e.who.String()
	}
	successor := n.who.String()
	if n.who == (who{}) {
		successor = "a session without a name of ours"
	}
	begun := fmt.Sprintf("after %s had begun to lead at %s", successor, sec(n.at))
	switch {
	case n.term != 0 && n.who == e.who:
		begun = fmt.Sprintf("after it had itself begun term %d at %s", n.term, sec(n.at))
	case n.term != 0:
		begun = fmt.Sprintf("after %s had begun term %d at %s", successor, n.term, sec(n.at))
	}
	if e.At < n.at {
		begun += " (the commits came in this order; the times are those of the statements before)"
	}
	v := sim.Violation{
		At:       e.At,
		Replicas: replicas(e.who.replica, n.who.replica),
		Events:   seqs(n.event, e.Event),
		Text:     fmt.Sprintf("fence (rule 1): %s published row %d%s at %s, %s%s", actor, e.Row, inTerm(e), sec(e.At), begun, more(g.rows)),
		Cause:    w.causeOfLate(e, n),
	}
	if e.job != nil {
		v.Events = append(v.Events, e.job.begin.Seq)
		slices.Sort(v.Events)
	}
	return v
}

// inTerm names the term whose effect it is, and the one it wrote where that is another.
func inTerm(e *effect) string {
	own := e.Term
	if e.by != nil && e.by.term != 0 {
		own = e.by.term
	}
	switch {
	case own == 0:
		return ""
	case e.Term != 0 && e.Term != own:
		return fmt.Sprintf(" in term %d (as term %d, which was not its own)", own, e.Term)
	}
	return fmt.Sprintf(" in term %d", own)
}

package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A course is what a history says of who was alive, paused, leading and holding the lock, and when: what the timeline draws
// as bars. It draws what was reported and observed; it judges nothing.
type course struct {
	replicas []int // in order
	lives    []stretch
	pauses   []stretch
	beliefs  []stretch
	trust    []stretch // the parts of beliefs after trust has run out
	holds    []stretch
	faults   []stretch
	twice    []stretch // when two or more acted on the belief that they lead
	end      sim.Duration
}

// A stretch is a piece of time with an event that it begins with.
type stretch struct {
	from, to sim.Duration
	replica  int // 0: nobody in particular
	life     int
	term     int64
	fault    int
	open     bool // it had not ended when the history did
	label    string
	words    string
	seq      int
}

// chart reconstructs the course of a history.
func chart(h *sim.History) *course {
	c := &course{}
	for _, e := range h.Events {
		c.end = max(c.end, e.Latest(), e.At+max(e.Lasts, 0))
		if e.Replica > 0 && !slices.Contains(c.replicas, e.Replica) && e.Replica <= maxLanes {
			c.replicas = append(c.replicas, e.Replica)
		}
	}
	for r := 1; r <= min(h.Header.Scenario.Replicas, maxLanes); r++ {
		// A shrunk plan may need fewer replicas than the scenario has; one that never did anything gets no lane.
		if len(c.replicas) == 0 && !slices.Contains(c.replicas, r) {
			c.replicas = append(c.replicas, r)
		}
	}
	slices.Sort(c.replicas)
	c.end = max(c.end, sim.Duration(time.Millisecond)) // an empty history has a picture too
	c.walk(h)
	return c
}

// maxLanes bounds the page, whatever a history says.
const maxLanes = 64

// mind is what is open for one replica while the history is walked through.
type mind struct {
	life, pause, belief int // indexes into the course, -1: none
	trusted             sim.Duration
}

func (c *course) walk(h *sim.History) {
	minds := map[int]*mind{}
	of := func(r int) *mind {
		if minds[r] == nil {
			minds[r] = &mind{-1, -1, -1, 0}
		}
		return minds[r]
	}
	hold, faults := -1, map[int]int{}
	for _, e := range h.Events {
		m := of(e.Replica)
		switch e.Kind {
		case sim.EvUp:
			c.lives = append(c.lives, stretch{from: e.At, replica: e.Replica, life: e.Incarnation, seq: e.Seq})
			m.life = len(c.lives) - 1
		case sim.EvDown:
			c.stopBelief(m, e.At)
			c.stop(c.pauses, &m.pause, e.At)
			c.stop(c.lives, &m.life, e.At)
		case sim.EvPaused:
			c.pauses = append(c.pauses, stretch{from: e.At, replica: e.Replica, life: e.Incarnation, fault: e.Fault, seq: e.Seq})
			m.pause = len(c.pauses) - 1
		case sim.EvResumed:
			c.stop(c.pauses, &m.pause, e.At)
		case sim.EvLead:
			c.stopBelief(m, e.At)
			c.beliefs = append(c.beliefs, stretch{from: e.At, replica: e.Replica, life: e.Incarnation, term: e.Term, seq: e.Seq})
			m.belief, m.trusted = len(c.beliefs)-1, e.Trusted
		case sim.EvBeat:
			if e.Answer == sim.BeatOK && e.Trusted > 0 {
				c.distrust(m, e.At)
				m.trusted = e.Trusted
			}
		case sim.EvEnd:
			c.stopBelief(m, e.At)
		case sim.EvHeld:
			c.stop(c.holds, &hold, e.At)
			if e.Session != "" {
				s := stretch{from: e.At, seq: e.Seq, label: cmp.Or(e.Session, "?")}
				if r, life, _, ok := sim.ParseSession(e.Session); ok {
					s.replica, s.life, s.label = r, life, sim.Who(r, life)
				}
				c.holds = append(c.holds, s)
				hold = len(c.holds) - 1
			}
		case sim.EvFault:
			c.fault(e, faults, lasting(h, e.Fault))
		}
	}
	for _, m := range minds {
		c.leaveOpen(m)
	}
	if hold >= 0 {
		c.holds[hold].to, c.holds[hold].open = c.end, true
	}
	for _, i := range faults {
		c.faults[i].to, c.faults[i].open = c.end, true
	}
	c.describe(h)
	c.overlap()
}

// lasting reports whether a fault of the plan goes on until it heals, and is not over at once.
func lasting(h *sim.History, fault int) bool {
	return fault >= 1 && fault <= len(h.Header.Plan.Faults) && h.Header.Plan.Faults[fault-1].For > 0
}

func (c *course) fault(e sim.Event, open map[int]int, lasts bool) {
	switch e.Op {
	case sim.OpApplied:
		c.faults = append(c.faults, stretch{from: e.At, to: e.At, fault: e.Fault, seq: e.Seq})
		if lasts {
			open[e.Fault] = len(c.faults) - 1
		}
	case sim.OpHealed:
		if i, ok := open[e.Fault]; ok {
			c.faults[i].to = e.At
			delete(open, e.Fault)
		}
	case sim.OpMoot, sim.OpFailed:
		c.faults = append(c.faults, stretch{from: e.At, to: e.At, fault: e.Fault, seq: e.Seq, label: e.Op})
	}
}

func (c *course) stop(list []stretch, i *int, at sim.Duration) {
	if *i >= 0 {
		list[*i].to = at
		*i = -1
	}
}

func (c *course) stopBelief(m *mind, at sim.Duration) {
	if m.belief >= 0 {
		c.distrust(m, at)
		c.stop(c.beliefs, &m.belief, at)
	}
}

// distrust notes the time for which the replica led although its trust had run out.
func (c *course) distrust(m *mind, until sim.Duration) {
	if m.belief < 0 || m.trusted == 0 || m.trusted >= until {
		return
	}
	b := c.beliefs[m.belief]
	c.trust = append(c.trust, stretch{from: max(m.trusted, b.from), to: until, replica: b.replica, life: b.life, term: b.term, seq: b.seq})
}

func (c *course) leaveOpen(m *mind) {
	if m.belief >= 0 {
		c.distrust(m, c.end)
	}
	for _, x := range []struct {
		list []stretch
		i    int
	}{{c.beliefs, m.belief}, {c.pauses, m.pause}, {c.lives, m.life}} {
		if x.i >= 0 {
			x.list[x.i].to, x.list[x.i].open = c.end, true
		}
	}
}

// describe gives the stretches their labels and sentences.
func (c *course) describe(h *sim.History) {
	from := func(s stretch) string {
		if s.open {
			return fmt.Sprintf("from %s until the end of the run", seconds(s.from))
		}
		return fmt.Sprintf("from %s to %s, %s", seconds(s.from), seconds(s.to), span(round(s.to-s.from)))
	}
	for i := range c.lives {
		s := &c.lives[i]
		s.words = fmt.Sprintf("%s lives %s", sim.Who(s.replica, s.life), from(*s))
	}
	for i := range c.pauses {
		s := &c.pauses[i]
		s.label, s.words = "paused", fmt.Sprintf("%s is paused %s", sim.Who(s.replica, s.life), from(*s))
	}
	for i := range c.beliefs {
		s := &c.beliefs[i]
		s.label = "leads"
		if s.term > 0 {
			s.label = fmt.Sprintf("leads, term %d", s.term)
		}
		s.words = fmt.Sprintf("%s %s %s", sim.Who(s.replica, s.life), s.label, from(*s))
	}
	for i := range c.trust {
		s := &c.trust[i]
		s.words = fmt.Sprintf("%s may not act as leader any more %s: its trust has run out", sim.Who(s.replica, s.life), from(*s))
	}
	for i := range c.holds {
		s := &c.holds[i]
		s.words = fmt.Sprintf("on the server, %s holds the lock %s", s.label, from(*s))
	}
	for i := range c.faults {
		s := &c.faults[i]
		name := fmt.Sprintf("fault %d", s.fault)
		if s.fault >= 1 && s.fault <= len(h.Header.Plan.Faults) {
			name = string(h.Header.Plan.Faults[s.fault-1].Kind)
		}
		if s.label != "" { // moot, failed
			s.words = fmt.Sprintf("fault %d, %s, %s at %s", s.fault, name, s.label, seconds(s.from))
			s.label = name + " (" + s.label + ")"
			continue
		}
		s.label = name
		s.words = fmt.Sprintf("fault %d, %s, at %s", s.fault, name, seconds(s.from))
		if s.to > s.from {
			s.words = fmt.Sprintf("fault %d, %s, %s", s.fault, name, from(*s))
		}
	}
}

// overlap finds when two or more were awake, trusted their lease and believed that they led. Whether that was allowed is for
// the invariants to say.
func (c *course) overlap() {
	type edge struct {
		at    sim.Duration
		who   string
		delta int
	}
	var edges []edge
	add := func(s stretch, sign int) {
		who := sim.Who(s.replica, s.life)
		edges = append(edges, edge{s.from, who, sign}, edge{s.to, who, -sign})
	}
	for _, b := range c.beliefs {
		add(b, 1)
		for _, list := range [][]stretch{c.pauses, c.trust} {
			for _, p := range list {
				cut := stretch{from: max(p.from, b.from), to: min(p.to, b.to), replica: b.replica, life: b.life}
				if p.replica == b.replica && p.life == b.life && cut.from < cut.to {
					add(cut, -1)
				}
			}
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	level := map[string]int{}
	believers := func() (names []string) {
		for who, n := range level {
			if n > 0 {
				names = append(names, who)
			}
		}
		slices.Sort(names)
		return names
	}
	for i, e := range edges {
		level[e.who] += e.delta
		if i+1 == len(edges) || edges[i+1].at == e.at {
			continue
		}
		if names := believers(); len(names) > 1 {
			s := stretch{from: e.at, to: edges[i+1].at}
			s.words = fmt.Sprintf("%s lead at the same time from %s to %s, %s", strings.Join(names, " and "), seconds(s.from), seconds(s.to), span(round(s.to-s.from)))
			c.twice = append(c.twice, s)
		}
	}
}

// round drops what nobody reads.
func round(d sim.Duration) sim.Duration {
	const grain = sim.Duration(1e6)
	if d < 10*grain {
		return d
	}
	return (d + grain/2) / grain * grain
}

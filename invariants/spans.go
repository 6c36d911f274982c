package invariants

import (
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A span is a closed stretch of time; from <= to.
type span struct{ from, to sim.Duration }

// spans are in order of time, and do not overlap.
type spans []span

// add appends s, joined to the last span where they touch. s must not begin before the last span does.
func (ss spans) add(s span) spans {
	if s.to < s.from {
		return ss
	}
	if n := len(ss); n > 0 && s.from <= ss[n-1].to {
		ss[n-1].to = max(ss[n-1].to, s.to)
		return ss
	}
	return append(ss, s)
}

// union is what lies in one of them, given in any order.
func union(all ...span) (ss spans) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b span) int { return cmpDuration(a.from, b.from) })
	for _, s := range all {
		ss = ss.add(s)
	}
	return ss
}

func (ss spans) total() (d sim.Duration) {
	for _, s := range ss {
		d += s.to - s.from
	}
	return d
}

// and is what lies in both.
func (ss spans) and(other spans) (both spans) {
	for i, j := 0, 0; i < len(ss) && j < len(other); {
		both = both.add(span{max(ss[i].from, other[j].from), min(ss[i].to, other[j].to)})
		if ss[i].to < other[j].to {
			i++
		} else {
			j++
		}
	}
	return both
}

// minus is what lies in ss and not in other. The ends of a hole belong to what remains.
func (ss spans) minus(other spans) (rest spans) {
	for _, s := range ss {
		for _, o := range other {
			if o.to < s.from || o.from > s.to {
				continue
			}
			if o.from > s.from {
				rest = append(rest, span{s.from, o.from})
			}
			s.from = o.to
		}
		if s.from <= s.to {
			rest = append(rest, s)
		}
	}
	return rest
}

// within is the part between from and to.
func (ss spans) within(from, to sim.Duration) spans {
	if to < from {
		return nil
	}
	return ss.and(spans{{from, to}})
}

func (ss spans) contains(t sim.Duration) bool {
	return slices.ContainsFunc(ss, func(s span) bool { return s.from <= t && t <= s.to })
}

// lastBefore is the latest instant of ss that is not after t.
func (ss spans) lastBefore(t sim.Duration) (at sim.Duration, ok bool) {
	for _, s := range ss {
		if s.from > t {
			break
		}
		at, ok = min(s.to, t), true
	}
	return at, ok
}

func cmpDuration(a, b sim.Duration) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

package scenarios

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// The most a scenario may ask for. Beyond these a value is a slip, not a wish.
const (
	maxRows     = 100_000
	maxCount    = 20
	maxPool     = 1000
	maxDuration = sim.Duration(24 * time.Hour) // of a run, and of whatever happens within it
)

var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// QuietTail is how much quiet time a run must have after its last fault has healed, so that what should happen then can
// be judged: in the worst case a leader that hears nothing notices it at its next beat's deadline, and a standby then
// takes over within one retry interval; its first tick follows at once. The TTL is not part of it: a fault that only the
// TTL ends is over when it heals.
func QuietTail(i sim.Intervals) sim.Duration {
	i = i.WithDefaults()
	return i.Beat + i.BeatDeadline + i.Retry
}

// A checker looks at a decoded scenario as a whole.
type checker struct {
	*decoder
	s   *sim.Scenario
	opt options
}

func (c *checker) check() {
	c.words()
	c.shape()
	c.intervals()
	for i := range c.s.Faults {
		c.fault(i)
	}
	c.judging()
	if c.s.Plan != nil && c.good("plan") {
		c.plan(*c.s.Plan)
	}
}

// plan checks a plan that a scenario brings.
func (c *checker) plan(p sim.Plan) {
	if p.V != sim.PlanVersion {
		c.say("plan.v", fmt.Sprintf("the plan has format %d, this simrun reads %d", p.V, sim.PlanVersion), "")
	}
	if p.Horizon != c.s.Duration && c.good("duration") {
		c.say("plan.horizon", fmt.Sprintf("the plan's horizon is %s, but the run ends at %s", span(p.Horizon), span(c.s.Duration)), "write the duration")
	}
	within := func(path string, d sim.Duration) {
		if d < 0 || d > p.Horizon {
			c.say(path, fmt.Sprintf("%s is %s, which is not between the start and the end of the run", last(path), d), "")
		}
	}
	for i, f := range p.Faults {
		path := fmt.Sprintf("plan.faults[%d]", i)
		if !c.required(path+".kind", f.Kind != "") {
			continue
		}
		info, known := sim.FaultByKind(f.Kind)
		if !known {
			c.oneOf(path+".kind", "fault", string(f.Kind), faultNames())
			continue
		}
		c.target(path, sim.FaultSpec{Kind: f.Kind, Target: f.Target}, info)
		within(path+".at", f.At)
		within(path+".for", f.For)
		if f.Before != nil && f.After != nil {
			c.say(path+".after", "give before or after, not both", "")
		}
		for name, t := range map[string]*sim.Trigger{"before": f.Before, "after": f.After} {
			if t != nil && (strings.TrimSpace(t.Pattern) == "" || t.Nth < 1) {
				c.say(path+"."+name, fmt.Sprintf("%s needs a pattern, a part of the SQL it waits for, and nth, which counts from 1", name), "")
			}
		}
	}
	for i, d := range p.Phase {
		within(fmt.Sprintf("plan.phase[%d]", i), d)
	}
	for i, list := range p.Delays {
		for k, d := range list {
			within(fmt.Sprintf("plan.delays[%d][%d].req", i, k), d.Req)
			within(fmt.Sprintf("plan.delays[%d][%d].resp", i, k), d.Resp)
		}
	}
	for i, n := range p.Picks {
		if n < 0 {
			c.say(fmt.Sprintf("plan.picks[%d]", i), "picks count from 0", "")
		}
	}
}

// words checks the name and the sentences.
func (c *checker) words() {
	s := c.s
	if c.required("name", s.Name != "") && (!kebab.MatchString(s.Name) || len(s.Name) > 64) {
		c.say("name", fmt.Sprintf("name: %q is not a name: use small letters, digits and single hyphens, at most 64", shorten(s.Name)), kebabHint(s.Name))
	}
	if c.required("shows", strings.TrimSpace(s.Shows) != "") && len(s.Shows) > 500 {
		c.say("shows", "shows must be one sentence, at most 500 characters", "")
	}
	if s.StartsAt != "" {
		if _, err := time.Parse(time.RFC3339, s.StartsAt); err != nil {
			c.say("starts_at", fmt.Sprintf("starts_at: %q is not a date", shorten(s.StartsAt)), "write it as 2026-03-08T01:30:00-05:00")
		}
	}
}

// shape checks who runs, where and for how long.
func (c *checker) shape() {
	s := c.s
	if c.required("replicas", c.has("replicas")) && (s.Replicas < 1 || s.Replicas > sim.MaxReplicas) {
		c.say("replicas", fmt.Sprintf("replicas must be from 1 to %d, not %d", sim.MaxReplicas, s.Replicas), "")
	}
	if c.required("duration", c.has("duration")) && (s.Duration <= 0 || s.Duration > maxDuration) {
		c.say("duration", fmt.Sprintf("duration must be more than 0 and at most %s, not %s", span(maxDuration), span(s.Duration)), "")
	}
	c.rng("phase", s.Phase)
	if s.Phase.To > s.Duration && c.good("duration") {
		c.say("phase", fmt.Sprintf("phase reaches %s, but the run ends at %s", span(s.Phase.To), span(s.Duration)), "")
	}
	if c.required("routes", len(s.Routes) > 0) {
		for i, r := range s.Routes {
			path := fmt.Sprintf("routes[%d]", i)
			c.oneOf(path, "route", string(r), names(sim.Routes))
			if slices.Contains(s.Routes[:i], r) {
				c.say(path, fmt.Sprintf("route %q is given twice", shorten(string(r))), "")
			}
		}
	}
	if s.Impl != "" && len(s.Impls) > 0 {
		c.say("impl", "give impl or impls, not both", "")
	}
	c.program()
	if s.Impl != "" && s.Program == nil {
		c.impl("impl", s.Impl)
	}
	for i, name := range s.Impls {
		path := fmt.Sprintf("impls[%d]", i)
		c.impl(path, name)
		if slices.Contains(s.Impls[:i], name) {
			c.say(path, fmt.Sprintf("implementation %q is given twice", shorten(name)), "")
		}
	}
	c.pool()
	c.workload()
	if b := s.BeliefOverlap; b != nil && (*b < 0 || *b > maxDuration) {
		c.say("belief_overlap", fmt.Sprintf("belief_overlap must be from 0 to %s, not %s", span(maxDuration), *b), "")
	}
}

func (c *checker) pool() {
	s := c.s
	if s.Pool == (sim.Pool{}) {
		return
	}
	if !slices.ContainsFunc(s.Routes, func(r sim.Route) bool { return r.Pooled() }) {
		c.say("pool", "pool is set, but no route goes through a pooler", "")
	}
	if s.Pool.Size < 0 || s.Pool.Size > maxPool {
		c.say("pool.size", fmt.Sprintf("size must be from 1 to %d, not %d", maxPool, s.Pool.Size), "")
	}
}

func (c *checker) workload() {
	w := c.s.Workload
	switch {
	case w.Rows < 0 || w.Rows > maxRows:
		c.say("workload.rows", fmt.Sprintf("rows must be from 0 to %d, not %d", maxRows, w.Rows), "")
	case w.Every < 0 || w.Every > maxDuration:
		c.say("workload.every", fmt.Sprintf("every must be from 0 to %s, not %s", span(maxDuration), w.Every), "")
	case w.Rows > 0 && c.s.Program != nil && c.s.Program.Migrations != "" && c.s.Program.Load == "" && c.good("impl"):
		c.say("workload", "workload has rows, but nothing says how one comes into the tables of impl.migrations", "give impl a load: the SQL that adds one, $1 its id, $2 seconds until it is due")
	case w.Rows == 0 && w.Every != 0:
		c.say("workload", "workload has every, but no rows", "say how many rows there are")
	case sim.Duration(w.Rows)*w.Every > c.s.Duration && c.good("duration"):
		c.say("workload", fmt.Sprintf("the last of %d rows falls due at %s, but the run ends at %s", w.Rows, span(sim.Duration(w.Rows)*w.Every), span(c.s.Duration)), "")
	}
}

// intervals checks the timings of the implementation against each other (semantics.md, 2).
func (c *checker) intervals() {
	given := c.s.Intervals
	sound := true
	for _, f := range []struct {
		name string
		v    sim.Duration
	}{
		{"retry", given.Retry}, {"beat", given.Beat}, {"beat_deadline", given.BeatDeadline}, {"probe_wait", given.ProbeWait},
		{"tick", given.Tick}, {"ttl", given.TTL}, {"stop_grace", given.StopGrace},
	} {
		path := "intervals." + f.name
		if !c.has(path) || !c.good(path) {
			sound = sound && !c.has(path)
			continue
		}
		if negative := f.v < 0 && f.name != "ttl"; negative || f.v == 0 || f.v > maxDuration || f.v < -maxDuration {
			c.say(path, fmt.Sprintf("%s must be more than 0 and at most %s, not %s", f.name, span(maxDuration), f.v), "")
			sound = false
		}
	}
	if !sound {
		return
	}
	i := given.WithDefaults()
	if least := max(i.Beat+i.BeatDeadline+i.StopGrace, i.Retry+1); i.TTL > 0 && i.TTL < least {
		c.say("intervals", fmt.Sprintf("a ttl of %s ends sessions of healthy replicas: it must be at least beat + beat_deadline + stop_grace and more than retry, which is %s", span(i.TTL), span(least)), "a negative ttl switches it off")
	}
}

// fault checks one fault on its own, and that the run outlasts it.
func (c *checker) fault(i int) {
	f, path := c.s.Faults[i], fmt.Sprintf("faults[%d]", i)
	if !c.required(path+".kind", f.Kind != "") {
		return
	}
	info, known := sim.FaultByKind(f.Kind)
	if !known {
		c.oneOf(path+".kind", "fault", string(f.Kind), faultNames())
	} else {
		c.target(path, f, info)
		switch {
		case info.Heals && f.For.IsZero() && c.good(path+".for"):
			c.say(path, fmt.Sprintf("%s needs `for`: how long until it heals", f.Kind), "for example, for: 10s")
		case !info.Heals && c.has(path+".for"):
			c.say(path+".for", fmt.Sprintf("%s is over at once and takes no `for`", f.Kind), "take the line out")
		}
	}
	if c.has(path+".weight") && c.good(path+".weight") && f.Weight < 1 || f.Weight > 10 {
		c.say(path+".weight", fmt.Sprintf("weight is in how many of ten plans the fault is drawn: from 1 to 10, not %d", f.Weight), "")
	}
	if c.has(path+".count") && c.good(path+".count") && (f.Count.To < 1 || f.Count.To > maxCount) {
		c.say(path+".count", fmt.Sprintf("count must end between 1 and %d, not at %d", maxCount, f.Count.To), "")
	}
	c.rng(path+".window", f.Window)
	c.rng(path+".for", f.For)
	c.triggers(path, f)
	c.when(path, f)
}

// target checks whom a fault is aimed at, and that it is there.
func (c *checker) target(path string, f sim.FaultSpec, info sim.FaultInfo) {
	pooler := f.Kind == sim.PoolerRestart || f.Kind == sim.PoolerReload || f.Kind == sim.PoolerNoise
	if pooler && len(c.s.Routes) > 0 && c.good("routes") && !slices.ContainsFunc(c.s.Routes, sim.Route.Pooled) {
		c.say(path+".kind", fmt.Sprintf("%s needs a pooler, and no route goes through one", f.Kind), "for example, routes: [pgbouncer-session]")
	}
	switch {
	case !c.good(path + ".target"):
	case !info.Targets && f.Target != "":
		c.say(path+".target", fmt.Sprintf("%s is not aimed at a replica and takes no target", f.Kind), "take the line out")
	case info.Targets && f.Target == "":
		c.say(path, fmt.Sprintf("%s needs a target: leader, standby, all or a replica's number", f.Kind), "")
	case !info.Targets:
	case f.Target == sim.TargetStandby && c.s.Replicas == 1 && c.good("replicas"):
		c.say(path+".target", "there is no standby: the scenario has one replica", "write replicas: 2 or more")
	case f.Target == sim.TargetLeader, f.Target == sim.TargetStandby, f.Target == sim.TargetAll:
	default:
		n, err := strconv.Atoi(string(f.Target))
		switch {
		case err != nil:
			c.oneOf(path+".target", "target", string(f.Target), []string{"leader", "standby", "all", "a replica's number"})
		case n < 1 || n > c.s.Replicas && c.good("replicas"):
			c.say(path+".target", fmt.Sprintf("there is no replica %s; they are numbered from 1 to %d", shorten(string(f.Target)), c.s.Replicas), "")
		}
	}
}

func (c *checker) triggers(path string, f sim.FaultSpec) {
	if f.Before != nil && f.After != nil {
		c.say(path+".after", "give before or after, not both", "")
	}
	for _, t := range []struct {
		name string
		spec *sim.TriggerSpec
	}{{"before", f.Before}, {"after", f.After}} {
		at := path + "." + t.name
		if t.spec == nil || !c.good(at) {
			continue
		}
		if strings.TrimSpace(t.spec.Pattern) == "" && c.good(at+".pattern") {
			c.say(at, fmt.Sprintf("%s needs a pattern: a part of the SQL of the statement it waits for", t.name), "for example, pattern: commit")
		}
		if c.has(at+".nth") && c.good(at+".nth") && t.spec.Nth.From < 1 {
			c.say(at+".nth", "nth counts statements from 1", "")
		}
	}
	if f.Before == nil && f.After == nil && !c.has(path+".window") {
		c.say(path, "the fault has no window: say when it strikes", "for example, window: 10s..20s")
	}
}

// when checks that the fault strikes and heals early enough to be judged.
func (c *checker) when(path string, f sim.FaultSpec) {
	for _, p := range []string{"duration", "intervals", path + ".window", path + ".for"} {
		if !c.good(p) {
			return
		}
	}
	if c.s.Duration <= 0 || f.Window.To > maxDuration || f.For.To > maxDuration {
		return // said already
	}
	end, tail := f.Window.To+f.For.To, QuietTail(c.s.Intervals)
	switch {
	case f.Window.To > c.s.Duration:
		c.say(path+".window", fmt.Sprintf("the window reaches %s, but the run ends at %s", span(f.Window.To), span(c.s.Duration)), "")
	case end+tail > c.s.Duration && !c.opt.anyEnd:
		c.say(path, fmt.Sprintf("the fault may be over only at %s; the run needs %s of quiet after it (beat + beat_deadline + retry), so it must last at least %s, not %s",
			span(end), span(tail), span(end+tail), span(c.s.Duration)), "")
	}
}

// judging checks what is judged, required and expected.
func (c *checker) judging() {
	s := c.s
	if c.required("invariants", len(s.Invariants) > 0) {
		for i, name := range s.Invariants {
			path := fmt.Sprintf("invariants[%d]", i)
			c.invariant(path, name)
			if slices.Contains(s.Invariants[:i], name) {
				c.say(path, fmt.Sprintf("invariant %q is given twice", shorten(name)), "")
			}
		}
	}
	stable := slices.ContainsFunc(s.Routes, sim.Route.Stable)
	if i := slices.Index(s.Invariants, "failover"); i >= 0 && len(s.Routes) > 0 && !stable {
		c.say(fmt.Sprintf("invariants[%d]", i), "failover cannot be judged here: nobody may lead over any of the routes", "")
	}
	for i, r := range s.Require {
		path := fmt.Sprintf("require[%d]", i)
		if c.required(path+".what", r.What != "") {
			c.oneOf(path+".what", "metric", string(r.What), names(sim.Metrics))
		}
		if r.AtLeast < 1 && c.good(path+".at_least") {
			c.say(path, "at_least must be 1 or more: what may be missing is not required", "")
		}
		c.scope(path, r.Impl, r.Route)
	}
	for i, e := range s.Expect {
		path := fmt.Sprintf("expect[%d]", i)
		if c.required(path+".invariant", e.Invariant != "") && !slices.Contains(s.Invariants, e.Invariant) {
			c.say(path+".invariant", fmt.Sprintf("%q is expected to be violated, but is not one of the scenario's invariants", shorten(e.Invariant)), suggestOrList(e.Invariant, s.Invariants))
		}
		c.scope(path, e.Impl, e.Route)
	}
}

// scope checks the impl and route of an entry of require or expect.
func (c *checker) scope(path, impl string, route sim.Route) {
	if impl != "" && impl != "any" {
		c.impl(path+".impl", impl)
	}
	if route == "" || !c.oneOf(path+".route", "route", string(route), names(sim.Routes)) {
		return
	}
	if !slices.Contains(c.s.Routes, route) && len(c.s.Routes) > 0 {
		c.say(path+".route", fmt.Sprintf("%s is not one of the scenario's routes", route), suggestOrList(string(route), names(c.s.Routes)))
	}
}

func (c *checker) impl(path, name string) {
	if command, ok := strings.CutPrefix(name, sim.ExecPrefix); ok {
		if _, err := ParseCommand(command); err != nil {
			c.say(path, err.Error(), "")
		}
		return
	}
	if c.opt.impls != nil {
		c.oneOf(path, "implementation", name, c.opt.impls)
	}
}

func (c *checker) invariant(path, name string) {
	if c.opt.invariants != nil {
		c.oneOf(path, "invariant", name, c.opt.invariants)
	}
}

// oneOf says so when got is not one of the known words.
func (c *checker) oneOf(path, what, got string, known []string) bool {
	if !c.good(path) || slices.Contains(known, got) {
		return true
	}
	c.say(path, fmt.Sprintf("unknown %s %q", what, shorten(got)), suggestOrList(got, known))
	return false
}

// rng checks a range's size; its form was checked when it was read.
func (c *checker) rng(path string, r sim.Range) {
	if r.To > maxDuration {
		c.say(path, fmt.Sprintf("%s is more than %s", last(path), span(maxDuration)), "")
	}
}

// required says so when a field that must be there is not. It reports whether the field may be looked at further.
func (c *checker) required(path string, there bool) bool {
	if !c.good(path) {
		return false
	}
	switch {
	case there:
	case c.has(path):
		c.say(path, fmt.Sprintf("%s is empty", last(path)), "")
	default:
		c.say(path, fmt.Sprintf("%s is missing", last(path)), "")
	}
	return there
}

// good reports whether the field and all it contains could be read; what could not be read has been reported already.
func (c *checker) good(path string) bool {
	for p, at := range c.places {
		if at.bad && (p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[")) {
			return false
		}
	}
	return true
}

// say notes a problem at a field, or at the nearest thing around it that stands in the file.
func (c *checker) say(path, text, suggestion string) {
	if !c.good(path) {
		return
	}
	for p := path; p != ""; p = p[:max(0, strings.LastIndexAny(p, ".["))] {
		if at, ok := c.places[p]; ok {
			c.problem(at.line, at.column, text, suggestion)
			return
		}
	}
	c.problem(0, 0, text, suggestion)
}

// span is a duration without the zeros that Go writes: 1m, not 1m0s.
func span(d sim.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func names[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

func faultNames() []string {
	out := make([]string, len(sim.Faults))
	for i, f := range sim.Faults {
		out[i] = string(f.Kind)
	}
	return out
}

// kebabHint is the name as it should have been written.
func kebabHint(name string) string {
	out := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(name), "-"), "-")
	if !kebab.MatchString(out) || len(out) > 64 {
		return ""
	}
	return fmt.Sprintf("for example, %s", out)
}

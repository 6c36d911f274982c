package sim

import "slices"

// MaxReplicas is the most replicas a scenario may have.
const MaxReplicas = 32

// A Scenario says what may happen. It is written in YAML (see the package scenarios) and holds no chance of its own: a
// seed turns it into plans. All times in it are nominal; the live engine multiplies them by its time scale.
type Scenario struct {
	Name         string `yaml:"name" json:"name"`                                       // kebab-case, unique
	Shows        string `yaml:"shows" json:"shows"`                                     // one sentence for people
	SeedDocument string `yaml:"seed_document,omitempty" json:"seed_document,omitempty"` // where the promise was made
	Promise      string `yaml:"promise,omitempty" json:"promise,omitempty"`             // the promise that is checked

	Replicas int      `yaml:"replicas" json:"replicas"`
	Phase    Range    `yaml:"phase,omitempty" json:"phase,omitzero"` // start of each replica, drawn per replica
	Routes   []Route  `yaml:"routes" json:"routes"`
	Impl     string   `yaml:"impl,omitempty" json:"impl,omitempty"` // implementation used when none is named; "" is reference
	Impls    []string `yaml:"impls,omitempty" json:"impls,omitempty"`

	// Program is what a file says in `impl: {exec: [...], ...}`; Impl is its name then. Dir is the folder in which programs are started,
	// and to which their names are relative: that of the scenario's file, or the current one for a program of the command line.
	Program *Program `yaml:"-" json:"program,omitempty"`
	Dir     string   `yaml:"-" json:"dir,omitempty"`

	Intervals Intervals `yaml:"intervals,omitempty" json:"intervals"`
	Pool      Pool      `yaml:"pool,omitempty" json:"pool,omitzero"`
	Workload  Workload  `yaml:"workload,omitempty" json:"workload,omitzero"`

	Faults   []FaultSpec `yaml:"faults,omitempty" json:"faults,omitempty"`
	Duration Duration    `yaml:"duration" json:"duration"` // whole run; the rest after the last heal is the quiet tail

	// BeliefOverlap overrides the bound of one-leader's rules 4 and 5 (semantics.md, 5). nil: from the fault in play.
	BeliefOverlap *Duration `yaml:"belief_overlap,omitempty" json:"belief_overlap,omitempty"`

	Invariants []string  `yaml:"invariants" json:"invariants"`
	Require    []Require `yaml:"require,omitempty" json:"require,omitempty"`
	Expect     []Expect  `yaml:"expect,omitempty" json:"expect,omitempty"`

	// Plan, where there is one, is the first schedule whatever the seed is, as it was when it broke something; the others are drawn.
	Plan *Plan `yaml:"plan,omitempty" json:"plan,omitempty"`

	// StartsAt is the database's date at the start of the run, RFC 3339. Virtual engine only; "" is a fixed date.
	StartsAt string `yaml:"starts_at,omitempty" json:"starts_at,omitempty"`
}

// A Route is the way from a replica to Postgres.
type Route string

// The routes.
const (
	Direct               Route = "direct"
	PgBouncerSession     Route = "pgbouncer-session"
	PgBouncerTransaction Route = "pgbouncer-transaction"
	PgBouncerStatement   Route = "pgbouncer-statement"
)

// Routes are all routes, in the order they are shown.
var Routes = []Route{Direct, PgBouncerSession, PgBouncerTransaction, PgBouncerStatement}

// Pooled reports whether a PgBouncer stands on the route.
func (r Route) Pooled() bool { return r != Direct }

// PoolMode is PgBouncer's pool_mode on the route, "" on the direct one.
func (r Route) PoolMode() string {
	switch r {
	case PgBouncerSession:
		return "session"
	case PgBouncerTransaction:
		return "transaction"
	case PgBouncerStatement:
		return "statement"
	}
	return ""
}

// Stable reports whether a session on the route keeps its backend, so that a session lock may be trusted there.
func (r Route) Stable() bool { return r == Direct || r == PgBouncerSession }

// Intervals are the timings of the implementation under test. Zero fields take the defaults of DefaultIntervals.
type Intervals struct {
	Retry        Duration `yaml:"retry,omitempty" json:"retry"`                 // standby: start of one attempt to the next
	Beat         Duration `yaml:"beat,omitempty" json:"beat"`                   // leader: heartbeat interval
	BeatDeadline Duration `yaml:"beat_deadline,omitempty" json:"beat_deadline"` // and the time a heartbeat may take
	ProbeWait    Duration `yaml:"probe_wait,omitempty" json:"probe_wait"`       // how long the probe waits for its notification
	Tick         Duration `yaml:"tick,omitempty" json:"tick"`                   // scheduler: start of one tick to the next
	TTL          Duration `yaml:"ttl,omitempty" json:"ttl"`                     // idle_session_timeout on the lease session; negative: off
	StopGrace    Duration `yaml:"stop_grace,omitempty" json:"stop_grace"`       // work may go on so long after its term was cancelled
}

// DefaultIntervals are the reference's (design.md, 4; seed 3: heartbeat 15 s, retry "every few seconds"; seeds 0 and 1: tick 10 s).
var DefaultIntervals = Intervals{
	Retry: Duration(5e9), Beat: Duration(15e9), BeatDeadline: Duration(5e9), ProbeWait: Duration(3e9),
	Tick: Duration(10e9), TTL: Duration(30e9), StopGrace: Duration(5e9),
}

// WithDefaults fills zero fields.
func (i Intervals) WithDefaults() Intervals {
	fill := func(v *Duration, d Duration) {
		if *v == 0 {
			*v = d
		}
	}
	fill(&i.Retry, DefaultIntervals.Retry)
	fill(&i.Beat, DefaultIntervals.Beat)
	fill(&i.BeatDeadline, DefaultIntervals.BeatDeadline)
	fill(&i.ProbeWait, DefaultIntervals.ProbeWait)
	fill(&i.Tick, DefaultIntervals.Tick)
	fill(&i.TTL, DefaultIntervals.TTL)
	fill(&i.StopGrace, DefaultIntervals.StopGrace)
	return i
}

// A Pool describes the PgBouncer of a pooled route.
type Pool struct {
	Size       int  `yaml:"size,omitempty" json:"size,omitempty"`               // server connections per database; 0 is 20
	RoundRobin bool `yaml:"round_robin,omitempty" json:"round_robin,omitempty"` // server_round_robin; the default is LIFO
}

// A Workload is what is there to do: rows to be published, one falling due every so often.
type Workload struct {
	Rows  int      `yaml:"rows,omitempty" json:"rows,omitempty"`
	Every Duration `yaml:"every,omitempty" json:"every,omitempty"`
}

// Due is the nominal instant at which row i (from 1) falls due; its unit is 1.
func (w Workload) Due(i int) Duration { return Duration(i) * w.Every }

// A FaultSpec is a fault that a plan may contain; ranges are drawn when the plan is.
type FaultSpec struct {
	Kind   FaultKind    `yaml:"kind" json:"kind"`
	Target Target       `yaml:"target,omitempty" json:"target,omitempty"`
	Weight int          `yaml:"weight,omitempty" json:"weight,omitempty"` // in how many of ten plans it is drawn; 0 is 10
	Count  IntRange     `yaml:"count,omitempty" json:"count,omitzero"`    // how often in a plan; absent is 1
	Window Range        `yaml:"window,omitempty" json:"window,omitzero"`  // when; absent with before or after: from 0 on
	For    Range        `yaml:"for,omitempty" json:"for,omitzero"`        // until it is healed
	Before *TriggerSpec `yaml:"before,omitempty" json:"before,omitempty"`
	After  *TriggerSpec `yaml:"after,omitempty" json:"after,omitempty"`
}

// A TriggerSpec places a fault at a statement instead of an instant.
type TriggerSpec struct {
	Pattern string   `yaml:"pattern" json:"pattern"` // part of the SQL, without regard to case
	Nth     IntRange `yaml:"nth,omitempty" json:"nth,omitzero"`
}

// A Require says what must have happened over all schedules of an entry, so that nothing passes empty.
type Require struct {
	What    Metric `yaml:"what" json:"what"`
	AtLeast int    `yaml:"at_least" json:"at_least"`
	Impl    string `yaml:"impl,omitempty" json:"impl,omitempty"`   // reference, a flaw's name, or any (the default)
	Route   Route  `yaml:"route,omitempty" json:"route,omitempty"` // "" is any
}

// A Metric is something that is counted in a history.
type Metric string

// The metrics that require knows.
const (
	Elections     Metric = "elections"      // times a replica began to lead
	LeaderChanges Metric = "leader-changes" // elections after the first of a schedule
	Refusals      Metric = "refusals"       // times a probe refused the session path
	Publishes     Metric = "publishes"      // committed effects
	FaultsApplied Metric = "faults-applied" // faults proved to have taken effect
)

// Metrics are all metrics.
var Metrics = []Metric{Elections, LeaderChanges, Refusals, Publishes, FaultsApplied}

// An Expect is a violation the scenario is there to find, with a kind of implementation that has it.
type Expect struct {
	Invariant string `yaml:"invariant" json:"invariant"`
	Impl      string `yaml:"impl,omitempty" json:"impl,omitempty"`
	Route     Route  `yaml:"route,omitempty" json:"route,omitempty"`
}

func applies(wantImpl string, wantRoute Route, impl string, route Route) bool {
	return (wantImpl == "" || wantImpl == "any" || wantImpl == impl) && (wantRoute == "" || wantRoute == route)
}

// RequireFor is the part of Require that is for impl on route.
func (s *Scenario) RequireFor(impl string, route Route) (rs []Require) {
	for _, r := range s.Require {
		if applies(r.Impl, r.Route, impl, route) {
			rs = append(rs, r)
		}
	}
	return rs
}

// ExpectFor names the invariants that impl is expected to violate on route, sorted.
func (s *Scenario) ExpectFor(impl string, route Route) (names []string) {
	for _, e := range s.Expect {
		if applies(e.Impl, e.Route, impl, route) && !slices.Contains(names, e.Invariant) {
			names = append(names, e.Invariant)
		}
	}
	slices.Sort(names)
	return names
}

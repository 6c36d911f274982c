package invariants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// batch is how many rows a tick publishes at the most (semantics.md, 6).
const batch = 25

// taskFailed is the reason of an effect, or of a cancel, that was the task's own failure.
const taskFailed = "task-failure"

// noLostPublish judges every row of the workload: it is published, or cancelled for a failure of its task, or withdrawn, within
// the bound after it fell due and the last fault healed. The bound is as many ticks as the backlog needs, plus what a failover may
// take. The duty lasts only while some replica may lead, and what falls due too late to be judged is not examined.
func noLostPublish(w *world) (f finding) {
	load := w.h.Header.Scenario.Workload
	f.nothing = "no row fell due in time to be judged"
	if load.Rows == 0 {
		f.nothing = "the scenario has no workload"
	}
	if !w.h.Header.Route.Stable() && len(w.leaderships) == 0 {
		f.nothing = fmt.Sprintf("nobody may lead on %s, so that nothing has to be published", w.h.Header.Route)
		return f
	}
	rows := w.dueRows()
	worst := sim.Measure{Name: "due to published"}
	lost := map[string]*lostRows{}
	var order []string
	for _, r := range rows {
		d := w.judgeRow(r, rows)
		if !d.examined {
			continue
		}
		f.examined++
		if d.waited > worst.Value {
			worst.Value, worst.Bound = d.waited, d.bound
		}
		if d.text == "" {
			continue
		}
		if w.live && w.h.Stalled > w.allow && !d.never {
			f.doubt("the host stalled for %s, longer than the allowance of %s, so that a late publish proves nothing", sec(w.h.Stalled), sec(w.allow))
			continue
		}
		if d.slow {
			f.doubt("row %d was not published in time, but for most of it the replicas were waiting for answers: it may be the machine that was slow", r.row)
			continue
		}
		g := lost[d.kind]
		if g == nil {
			g = &lostRows{v: sim.Violation{At: d.at, Text: d.text, Cause: d.cause, Events: d.events, Replicas: d.replicas}}
			lost[d.kind] = g
			order = append(order, d.kind)
		} else {
			g.rows = append(g.rows, r.row)
		}
	}
	for _, kind := range order {
		g := lost[kind]
		g.v.Text += more(g.rows)
		f.violated(g.v)
	}
	if worst.Value > 0 {
		f.measures = append(f.measures, worst)
	}
	return f
}

// A dueRow is one row of the workload and what became of it.
type dueRow struct {
	row, unit int64
	due       sim.Duration
	published *effect
	cancelled *sim.Event
	failures  int        // of the infrastructure, as replicas reported them
	failed    *sim.Event // its task's own failure
	began     *sim.Event // the first attempt to publish it
}

type lostRows struct {
	v    sim.Violation
	rows []int64
}

func (w *world) dueRows() (rows []*dueRow) {
	load := w.h.Header.Scenario.Workload
	index := map[int64]*dueRow{}
	for i := 1; i <= load.Rows; i++ {
		r := &dueRow{row: int64(i), unit: 1, due: w.scaled(load.Due(i))}
		rows = append(rows, r)
		index[r.row] = r
	}
	mine := func(row, unit int64) *dueRow {
		if r := index[row]; r != nil && (unit == 1 || unit == 0) {
			return r
		}
		return nil
	}
	for _, e := range w.effects {
		if r := mine(e.Row, e.Unit); r != nil && r.published == nil {
			r.published = e
		}
	}
	for _, c := range w.cancels {
		if r := mine(c.Row, c.Unit); r != nil && r.cancelled == nil {
			r.cancelled = c
		}
	}
	for _, j := range w.jobs {
		r := mine(j.begin.Row, j.begin.Unit)
		if r == nil {
			continue
		}
		if r.began == nil {
			r.began = j.begin
		}
		switch {
		case j.end == nil || j.end.Outcome == sim.OutcomeDone:
		case strings.HasPrefix(j.end.Reason, taskFailed):
			r.failed = j.end
		default:
			r.failures++
		}
	}
	return rows
}

// A duty is what was found about one row.
type duty struct {
	examined      bool
	waited, bound sim.Duration
	text          string // what is wrong; "" nothing
	cause, kind   string // kind groups rows that have the same thing wrong with them
	never         bool   // it was not published at all
	slow          bool   // live: without the time spent waiting for answers it would have been in time
	at            sim.Duration
	events        []int
	replicas      []int
}

func (w *world) judgeRow(r *dueRow, rows []*dueRow) (d duty) {
	from := max(r.due, w.lastHeal())
	d.bound = w.publishBound(r, rows, from)
	if c := r.cancelled; c != nil {
		return w.judgeCancel(r, d)
	}
	if r.failed != nil && w.taskFailureInjected(r.failed.At) {
		return d // its task failed on purpose: the schedule is cancelled
	}
	until := w.stop
	if r.published != nil {
		until = r.published.Earliest()
	}
	d.waited = max(0, until-from)
	if spent := w.inFlight(from, until, w.everybody()...); !w.live {
		d.waited = max(0, d.waited-spent)
	} else {
		d.slow = d.waited-spent <= d.bound
	}
	if r.published != nil && d.waited <= d.bound {
		d.examined = true
		return d
	}
	if d.waited <= d.bound || !w.someoneUp(from, until) {
		return d // not watched for long enough, or nobody was there
	}
	d.examined = true
	since := fmt.Sprintf("row %d fell due at %s", r.row, sec(r.due))
	if from > r.due {
		since += fmt.Sprintf(" and the last fault was healed by %s", sec(from))
	}
	if r.published != nil {
		d.kind, d.at, d.events = "late", r.published.At, seqs(r.published.Event)
		d.replicas = replicas(r.published.who.replica)
		d.text = fmt.Sprintf("%s; it was published only at %s, %s later, where %s is allowed", since, sec(r.published.At), sec(d.waited), sec(d.bound))
		d.cause = "The leader works too slowly or not in every tick, or nobody led for too long."
		return d
	}
	d.kind, d.never, d.at, d.events = "never", true, from+d.bound, seqs(w.witness(r))
	d.text = fmt.Sprintf("%s; it was not published in the %s until the end, where %s is allowed", since, sec(until-from), sec(d.bound))
	d.cause = w.causeOfLost(r)
	return d
}

// judgeCancel: a cancel is right when it was the user's, or the task's own failure; an infrastructure failure must leave the
// schedule for the next tick.
func (w *world) judgeCancel(r *dueRow, d duty) duty {
	c := r.cancelled
	d.examined = true
	if c.Reason != "" && !strings.HasPrefix(c.Reason, taskFailed) && c.Replica == 0 {
		return d // withdrawn
	}
	if w.taskFailureInjected(c.At) {
		return d
	}
	d.kind, d.never, d.at, d.events, d.replicas = "cancelled", true, c.At, seqs(c), replicas(c.Replica)
	who := "somebody"
	if c.Replica > 0 {
		who = c.Who()
	}
	d.text = fmt.Sprintf("row %d was cancelled by %s at %s, although nothing was wrong with its task", r.row, who, sec(c.At))
	d.cause = causeCancelOnInfra
	return d
}

const causeCancelOnInfra = "An error of the infrastructure (a lost connection, a deadline, a shutdown) is taken for a failure of the task, and the schedule is cancelled for good. Cancel only for errors of the task's own code or of its data; leave the rest to the next tick."

func (w *world) causeOfLost(r *dueRow) string {
	if r.failures > 0 {
		return causeCancelOnInfra
	}
	if len(w.leaderships) == 0 {
		return "Nobody ever led."
	}
	return "The row was never taken up: nobody led, the leader did not tick, or its list leaves the row out."
}

// witness is an event to look at for a row that was never published.
func (w *world) witness(r *dueRow) *sim.Event {
	if r.began != nil {
		return r.began
	}
	if n := len(w.events); n > 0 {
		return &w.events[n-1]
	}
	return nil
}

// taskFailureInjected reports whether a task was made to fail on purpose by the instant given.
func (w *world) taskFailureInjected(by sim.Duration) bool {
	return slices.ContainsFunc(w.faults, func(f *fault) bool { return f.kind == sim.TaskFailure && f.span.from <= by })
}

// lastHeal is when the last fault was healed.
func (w *world) lastHeal() (at sim.Duration) {
	for _, f := range w.faults {
		at = max(at, f.span.to)
	}
	return at
}

// publishBound is how long the row may take from the instant given: what a failover may take, also after a silent fault and
// with a new connection to be made; then as many ticks as the backlog needs, and the rounds that a row sits out after failures.
func (w *world) publishBound(r *dueRow, rows []*dueRow, from sim.Duration) sim.Duration {
	bound := 2*w.iv.Retry + w.iv.ProbeWait
	if ttl, on := w.ttl(); on && slices.ContainsFunc(w.faults, func(f *fault) bool { return f.nature.silent }) {
		bound += ttl
	}
	backlog := 0
	for _, o := range rows {
		if o.due <= max(r.due, from) && (o.published == nil || o.published.At >= from) {
			backlog++
		}
	}
	ticks := 1 + (backlog+batch-1)/batch
	if r.failures > 0 {
		ticks += 1 << (min(r.failures, 4) - 1)
	}
	return bound + sim.Duration(ticks)*(w.iv.Tick+w.allow) + w.allow
}

// someoneUp reports whether a replica was up and awake all the time.
func (w *world) someoneUp(from, to sim.Duration) bool {
	for _, l := range w.lives {
		if l.up == nil || l.up.At > from {
			continue
		}
		if died, _ := l.died(w); died >= to && l.asleep().within(from, to).total() == 0 {
			return true
		}
	}
	return false
}

func (w *world) everybody() (ids []who) {
	for id := range w.lives {
		ids = append(ids, id)
	}
	return ids
}

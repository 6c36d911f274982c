package reports

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// How much of one thing the page shows at most, whatever a result holds.
const (
	maxEntries    = 400
	maxViolations = 10   // of one invariant
	maxLines      = 4000 // of verdicts and violations altogether
	maxExhibits   = 40
	maxText       = 400
	featuredShare = 0.6 // of the events, for the history that the page opens with
	exhibitEvents = 1500
)

// A view is the page as the template reads it. Everything in it is text that the template escapes, but for the three
// fields of trusted types, which are this package's own files.
type view struct {
	Policy string
	CSS    template.CSS
	JS     template.JS

	Title, Word, Class, Headline, Reason, Tally, Replay, ReplayLabel string
	Meta                                                             []string
	Featured                                                         *exhibitView
	Others                                                           []*exhibitView
	OthersLeft                                                       int
	Entries                                                          []entryView
	EntriesLeft                                                      int
	Measures                                                         []measureGroup
	Environment                                                      [][2]string
}

type entryView struct {
	ID, Word, Class, Name, Shows, Where, Figures, Reason string
	Open                                                 bool
	Verdicts                                             []verdictView
	Require                                              []requireView
	Faults, Exercised, Explored                          string
	Counters                                             []counterView
	Links                                                []link
	Digest                                               string
}

type link struct{ Href, Text string }

type verdictView struct {
	Name, Word, Class, Note string
	Examined                int
	Violations              []violationLine
	Left                    int
}

type violationLine struct{ At, Text, Cause string }

type requireView struct {
	What      string
	Seen      int
	AtLeast   int
	Satisfied bool
}

type counterView struct {
	Head, File, Replay string
	Schedule           []string
}

type exhibitView struct {
	ID, Title, Where, File, Scale, Heading string
	Violation                              *blame
	Schedule                               []string
	ScheduleHead                           string
	T                                      *timeline
	Rows                                   []row
	All, Left                              int
	Legend                                 []string
	Data                                   exhibitData
	Cut                                    bool

	key string // the history's name, as it stands in the result
}

// exhibitData is what the script needs besides what stands in the page.
type exhibitData struct {
	States []snapshot `json:"states"`
}

type blame struct {
	Invariant, Text, Cause, At string
	Expected                   bool
	Replay                     string
	Events                     []row
}

type row struct {
	ID, At, T, Who, Class, Kind, Words string
	Seq, State                         int // State: how things stand after it, an index
	Key, Blamed                        bool
}

type measureGroup struct {
	Name string
	List []measureView
}

type measureView struct {
	Where, Value, Bound, Class string
	Width, At                  float64 // of a bar 100 wide: the value, and where the bound stands
}

func newView(p Page, events int) *view {
	r := p.Result
	v := &view{Policy: policy, CSS: template.CSS(styleSheet), JS: template.JS(script)} //nolint:gosec // both are part of the program
	v.verdict(r)
	shown := exhibits(p)
	v.show(shown, events)
	v.replay(r, shown)
	ids := map[string]string{}
	for _, x := range v.Others {
		ids[x.key] = x.ID
	}
	if v.Featured != nil {
		ids[v.Featured.key] = "timeline"
	}
	lines := 0
	for i, e := range r.Scenarios {
		if i == maxEntries || lines > maxLines {
			v.EntriesLeft = len(r.Scenarios) - i
			break
		}
		x := viewOf(fmt.Sprintf("e%d", i), e, ids)
		for _, y := range x.Verdicts {
			lines += 1 + len(y.Violations)
		}
		v.Entries = append(v.Entries, x)
	}
	v.measures(r)
	v.environment(r)
	return v
}

// verdict is the top of the page: what came of it, in one word and one sentence.
func (v *view) verdict(r *sim.Result) {
	n := count(r)
	v.Title = fmt.Sprintf("simrun, seed %d", r.Seed)
	switch {
	case n.all == 0 && r.ExitStatus <= 5:
		v.Word, v.Class, v.Headline = "ERROR", "error", "Nothing was run"
	case r.ExitStatus == 0 && n.failed+n.inconclusive == 0:
		v.Word, v.Class, v.Headline = "PASS", "pass", "Every verdict is as expected"
	case n.failed > 0 && n.failed > n.errors:
		v.Word, v.Class, v.Headline = "FAIL", "fail", fmt.Sprintf("%d of %s failed", n.failed, plural(n.all, "scenario"))
	case n.failed > 0 || r.ExitStatus > 2:
		v.Word, v.Class, v.Headline = "ERROR", "error", "The run could not be carried out"
	case n.inconclusive > 0:
		v.Word, v.Class, v.Headline = "????", "open", fmt.Sprintf("%d of %s could not be decided", n.inconclusive, plural(n.all, "scenario"))
	default:
		v.Word, v.Class, v.Headline = "ERROR", "error", "The run did not end well"
	}
	v.Title = v.Word + " · " + v.Title
	if r.ExitStatus != 0 {
		v.Reason = short(r.ExitReason)
	}
	v.Tally = fmt.Sprintf("%s: %d passed, %d failed, %d inconclusive in %.1fs", plural(n.all, "scenario"), n.passed, n.failed, n.inconclusive, r.Seconds)
	v.Meta = []string{"seed " + strconv.FormatUint(r.Seed, 10)}
	if !r.StartedAt.IsZero() {
		v.Meta = append(v.Meta, r.StartedAt.UTC().Format("2 January 2006, 15:04 UTC"))
	}
}

// replay is the command to begin with: the one that shows the first violation again, or runs what is shown again.
func (v *view) replay(r *sim.Result, shown []exhibit) {
	v.ReplayLabel = "run again"
	if len(shown) > 0 && shown[0].counter != nil && shown[0].counter.Replay != "" {
		v.ReplayLabel = "replay"
		v.Replay = printable(shown[0].counter.Replay)
	}
	if v.Replay != "" || len(r.Scenarios) == 0 {
		return
	}
	e := r.Scenarios[0]
	if len(shown) > 0 {
		e = *shown[0].entry
	}
	for _, x := range r.Scenarios {
		if x.Status == sim.FailedEntry {
			e = x
			break
		}
	}
	v.Replay = printable(replayOf(e, r.Seed))
}

// show makes the exhibits' views within a number of events altogether.
func (v *view) show(list []exhibit, events int) {
	left := events
	for i := range list {
		n := min(exhibitEvents, left)
		if i == 0 {
			n = int(float64(events) * featuredShare)
			if len(list) == 1 {
				n = events
			}
		}
		if i == maxExhibits || n < 1 {
			v.OthersLeft = len(list) - i
			return
		}
		x := viewExhibit(fmt.Sprintf("h%d", i), &list[i], n)
		left -= len(x.Rows)
		if i == 0 {
			v.Featured = x
		} else {
			v.Others = append(v.Others, x)
		}
	}
}

func viewExhibit(id string, x *exhibit, events int) *exhibitView {
	kept, blamed := x.keep(events), x.blamed()
	hd := x.h.Header
	v := &exhibitView{
		key: x.file,
		ID:  id, Title: short(x.entry.Name), Where: short(where(*x.entry)), File: printable(x.file), Scale: x.scale(),
		Schedule: eachShort(x.schedule()), All: len(x.h.Events), Left: len(x.h.Events) - len(kept), Cut: !x.h.Complete,
	}
	c := chart(x.h)
	v.T = draw(x.h, c, kept, blamed, x.violation)
	states, after := snapshots(x.h, c.replicas)
	v.Data.States = states
	for _, e := range kept {
		r := rowOf(id, e, hd.Plan.Faults, blamed)
		r.State = after[e.Seq]
		v.Rows = append(v.Rows, r)
	}
	v.ScheduleHead = "The schedule"
	v.Heading = "A run to look at"
	if x.violation != nil {
		v.blame(x, id, blamed)
	}
	return v
}

// blame fills in the violation that the exhibit is shown for.
func (v *exhibitView) blame(x *exhibit, id string, blamed map[int]bool) {
	v.Violation = &blame{
		Invariant: short(x.invariant), Text: short(x.violation.Text), Cause: short(x.violation.Cause), At: seconds(x.violation.At), Expected: x.expected,
	}
	v.Heading = "What went wrong"
	if x.expected {
		v.Heading = "Found, as expected"
	}
	for _, e := range x.h.Events {
		if blamed[e.Seq] {
			v.Violation.Events = append(v.Violation.Events, rowOf(id, e, x.h.Header.Plan.Faults, blamed))
		}
	}
	if c := x.counter; c != nil {
		v.Violation.Replay = printable(c.Replay)
		v.ScheduleHead = fmt.Sprintf("Minimal schedule: %s, %s", plural(c.Replicas, "replica"), plural(c.Faults, "fault"))
		if c.Reproduced != "" {
			v.ScheduleHead += ", reproduced " + short(c.Reproduced)
		}
		if c.Live != "" {
			v.ScheduleHead += ", live " + short(c.Live)
		}
	}
}

func rowOf(id string, e sim.Event, faults []sim.Fault, blamed map[int]bool) row {
	r := row{
		ID: fmt.Sprintf("%s-%d", id, e.Seq), Seq: e.Seq, At: strings.TrimSuffix(seconds(e.At), "s"), T: ms(e.At), Words: short(words(e, faults)),
		Kind: strings.TrimSpace(string(e.Kind) + " " + e.Op), Key: key(e) || blamed[e.Seq], Blamed: blamed[e.Seq],
	}
	replica := e.Replica
	if replica == 0 && e.Session != "" {
		replica, _, _, _ = sim.ParseSession(e.Session)
	}
	switch {
	case e.Kind == sim.EvHeld:
		r.Who, r.Class = "server", "r0"
		if replica > 0 {
			r.Class = replicaClass(replica)
		}
	case e.Kind == sim.EvFault:
		r.Who, r.Class = "fault", "rf"
	case e.Replica > 0:
		r.Who, r.Class = e.Who(), replicaClass(e.Replica)
	case replica > 0:
		r.Who, r.Class = sim.Who(replica, 1), replicaClass(replica)
	default:
		r.Who, r.Class = cmp.Or(e.Source, "-"), "r0"
	}
	if e.Lasts > 0 {
		r.Words += " (" + span(round(e.Lasts)) + ")"
	}
	return r
}

func where(e sim.Entry) string {
	return strings.Join([]string{string(e.Route), e.Impl, e.Engine}, " · ")
}

func viewOf(id string, e sim.Entry, ids map[string]string) entryView {
	word, _ := statusWord(e.Status)
	v := entryView{
		ID: id, Word: strings.TrimSpace(word), Class: classOf(e.Status), Name: short(e.Name), Shows: short(e.Shows), Where: short(where(e)),
		Figures: figures(e), Digest: e.Digest, Open: e.Status != sim.Passed,
	}
	if e.Status != sim.Passed {
		v.Reason = short(e.Reason)
	}
	for _, x := range e.Verdicts {
		v.Verdicts = append(v.Verdicts, viewVerdict(e, x))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Require)) {
		n := e.Require[name]
		v.Require = append(v.Require, requireView{short(name), n.Seen, n.AtLeast, n.Seen >= n.AtLeast})
	}
	v.Faults = fmt.Sprintf("%d applied, %d moot, %d failed", e.Faults.Applied, e.Faults.Moot, e.Faults.Failed)
	v.Exercised = short(exercised(e.Coverage))
	if e.Exploration != nil {
		v.Explored = e.Exploration.String()
	}
	for _, c := range e.Counterexamples {
		head := fmt.Sprintf("%s: %s, %s", c.Invariant, plural(c.Replicas, "replica"), plural(c.Faults, "fault"))
		if c.Reproduced != "" {
			head += ", reproduced " + c.Reproduced
		}
		v.Counters = append(v.Counters, counterView{short(head), printable(c.File), printable(c.Replay), eachShort(c.Schedule)})
		if id := ids[c.History]; id != "" {
			v.Links = append(v.Links, link{"#" + id, "timeline of " + short(c.Invariant)})
		}
	}
	for _, file := range e.Histories {
		if id := ids[file]; id != "" && !slices.ContainsFunc(v.Links, func(l link) bool { return l.Href == "#"+id }) {
			v.Links = append(v.Links, link{"#" + id, "timeline"})
		}
	}
	return v
}

// exercised is what the schedules really met: "kill while publishing 3, pause while idle 1".
func exercised(c sim.Coverage) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.States)) {
		list = append(list, fmt.Sprintf("%s %d", name, c.States[name]))
	}
	return strings.Join(list, ", ")
}

func viewVerdict(e sim.Entry, x sim.EntryVerdict) verdictView {
	v := verdictView{Name: short(x.Invariant), Word: x.Status.String(), Class: "open", Examined: x.Examined, Note: short(strings.Join(slices.DeleteFunc([]string{x.Reason, x.Note}, func(s string) bool { return s == "" }), "; "))}
	switch {
	case x.Status == sim.StatusHeld:
		v.Class, v.Note = "pass", ""
	case x.Status == sim.StatusViolated && isExpected(e, x.Invariant):
		v.Class, v.Note = "pass", "as expected"
	case x.Status == sim.StatusViolated:
		v.Class = "fail"
	}
	if x.Status == sim.StatusHeld && isExpected(e, x.Invariant) {
		v.Class, v.Note = "fail", "a violation was expected"
	}
	for i, y := range x.Violations {
		if i == maxViolations {
			v.Left = len(x.Violations) - i
			break
		}
		v.Violations = append(v.Violations, violationLine{fmt.Sprintf("%.3fs", y.AtSeconds), short(y.Text), short(y.Cause)})
	}
	return v
}

func classOf(status string) string {
	switch status {
	case sim.Passed:
		return "pass"
	case sim.FailedEntry:
		return "fail"
	case sim.InconclusiveEntry:
		return "open"
	}
	return "error"
}

// measures are the figures with a bound, by name: how long failovers took, how long beliefs overlapped.
func (v *view) measures(r *sim.Result) {
	for _, e := range r.Scenarios {
		for _, x := range e.Verdicts {
			for _, m := range x.Measures {
				v.measure(m, fmt.Sprintf("%s · %s", e.Name, where(e)))
			}
		}
	}
	for _, g := range v.Measures {
		most := 0.0
		for _, m := range g.List {
			most = max(most, m.Width, m.At)
		}
		for i := range g.List {
			if most > 0 {
				g.List[i].Width, g.List[i].At = scaled(g.List[i].Width, most), scaled(g.List[i].At, most)
			}
		}
	}
}

// scaled leaves some room at the right end, so that the bound's line is seen.
func scaled(v, most float64) float64 { return float64(int(v/most*960)) / 10 }

func (v *view) measure(m sim.Measure, where string) {
	i := slices.IndexFunc(v.Measures, func(g measureGroup) bool { return g.Name == m.Name })
	if i < 0 {
		if len(v.Measures) == 20 {
			return
		}
		v.Measures = append(v.Measures, measureGroup{Name: short(m.Name)})
		i = len(v.Measures) - 1
	}
	if len(v.Measures[i].List) == maxEntries {
		return
	}
	x := measureView{Where: short(where), Value: span(round(m.Value)), Bound: span(round(m.Bound)), Class: "pass", Width: m.Value.Seconds(), At: m.Bound.Seconds()}
	if m.Value > m.Bound {
		x.Class = "fail"
	}
	v.Measures[i].List = append(v.Measures[i].List, x)
}

func (v *view) environment(r *sim.Result) {
	add := func(name, value string) {
		if value != "" {
			v.Environment = append(v.Environment, [2]string{name, short(value)})
		}
	}
	add("seed", strconv.FormatUint(r.Seed, 10))
	add("exit status", strings.TrimSuffix(fmt.Sprintf("%d, %s", r.ExitStatus, r.ExitReason), ", "))
	for _, x := range versionsOf(r) {
		add(x[0], x[1])
	}
	if !r.StartedAt.IsZero() {
		add("started", r.StartedAt.UTC().Format(time.RFC3339))
	}
	add("took", fmt.Sprintf("%.1fs", r.Seconds))
}

// versionsOf is with what a result was obtained, by name.
func versionsOf(r *sim.Result) [][2]string {
	return [][2]string{
		{"simrun", r.Versions.Simrun}, {"Go", r.Versions.Go},
		{"Postgres", strings.TrimSuffix(fmt.Sprintf("%s (%s)", r.Versions.Postgres, r.Backend), " ()")}, {"PgBouncer", r.Versions.PgBouncer},
	}
}

func eachShort(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = short(s)
	}
	return out
}

// short makes a text that came from outside fit to be shown: not too long, and without characters that cannot be seen or that
// turn the text around them about. The template escapes it.
func short(s string) string { return shorten(printable(s), maxText) }

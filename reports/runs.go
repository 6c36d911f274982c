package reports

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// How much the page of several runs shows at most.
const (
	maxRuns     = 60
	maxChanges  = 12 // of one kind in a run
	runExhibits = 8  // of one run
)

// A runsView is the page of several runs as the template reads it.
type runsView struct {
	Policy string
	CSS    template.CSS
	JS     template.JS

	Title, Word, Class, Headline, Reason, Tally string
	Meta                                        []string
	Runs                                        []runView // the newest first
	RunsLeft                                    int
}

type runView struct {
	ID, When, Seed, Engine, Word, Class, Reason, Tally, Folder string
	Versions                                                   []versionView
	Statuses                                                   []statusView
	Changes                                                    []changeView
	Entries                                                    []entryView
	EntriesLeft                                                int
	Exhibits                                                   []*exhibitView
	ExhibitsLeft                                               int
}

type versionView struct {
	Text    string
	Changed bool // since the run before
}

type statusView struct {
	N           int
	Name, Class string
}

type changeView struct {
	What, Class string
	List        []link
	Left        int
}

// A shownRun is a run with the histories of it that are worth looking at.
type shownRun struct {
	Page
	exhibits []exhibit
}

// byTime puts runs in order. Finding the exhibits takes longest, so it is done once, and not for each attempt at a page that fits; and not for
// runs that no page shows.
func byTime(pages []Page) (runs []shownRun) {
	for _, p := range pages {
		runs = append(runs, shownRun{Page: p})
	}
	slices.SortStableFunc(runs, func(a, b shownRun) int { return a.Result.StartedAt.Compare(b.Result.StartedAt) })
	for i := max(0, len(runs)-maxRuns); i < len(runs); i++ {
		runs[i].exhibits = exhibits(runs[i].Page)
	}
	return runs
}

// newRunsView makes the page's view from a share of what it may hold: all of it with 1, half of it with 2.
func newRunsView(runs []shownRun, share int) *runsView {
	v := &runsView{Policy: policy, CSS: template.CSS(styleSheet), JS: template.JS(script)} //nolint:gosec // both are part of the program
	if n := max(2, maxRuns/share); len(runs) > n {
		v.RunsLeft = len(runs) - n
	}
	kept := len(runs) - v.RunsLeft
	past := map[string]string{}
	var before *sim.Result
	for i, p := range runs {
		changes := changesOf(i, p.Result, past)
		if i >= v.RunsLeft {
			x := runOf(i, p, before, limits{maxPageEvents / share / kept, maxEntries / share, maxLines / share / kept})
			x.Changes = changes
			for _, c := range x.Changes {
				for j := range c.List { // what is left out of the page is no place to go to
					if !slices.ContainsFunc(x.Entries, func(e entryView) bool { return "#"+e.ID == c.List[j].Href }) {
						c.List[j].Href = "#" + x.ID
					}
				}
			}
			v.Runs = append(v.Runs, x)
		}
		before = p.Result
	}
	slices.Reverse(v.Runs)
	v.verdict(runs)
	return v
}

// verdict is the top of the page: how the newest run ended, and what it changed.
func (v *runsView) verdict(runs []shownRun) {
	newest := v.Runs[0]
	v.Word, v.Class, v.Reason = newest.Word, newest.Class, newest.Reason
	v.Title = fmt.Sprintf("%s · simrun, %s", v.Word, plural(len(runs), "run"))
	v.Headline = "The newest run changed nothing"
	var words []string
	for _, c := range newest.Changes {
		words = append(words, fmt.Sprintf("%d %s", len(c.List)+c.Left, c.What))
	}
	if len(words) > 0 {
		v.Headline = "The newest run: " + strings.Join(words, ", ")
	}
	passed := 0
	for _, p := range runs {
		if p.Result.ExitStatus == 0 {
			passed++
		}
	}
	v.Tally = fmt.Sprintf("%s, %d with exit status 0", plural(len(runs), "run"), passed)
	v.Meta = []string{plural(len(runs), "run")}
	if len(v.Runs) > 1 {
		v.Meta = append(v.Meta, v.Runs[len(v.Runs)-1].When+" to "+newest.When)
	}
}

// changesOf says what became of each entry since it was run last, and notes it in past.
func changesOf(run int, r *sim.Result, past map[string]string) (changes []changeView) {
	kinds := []changeView{{What: "newly failing", Class: "fail"}, {What: "newly undecided", Class: "open"}, {What: "newly passing", Class: "pass"}, {What: "failing from the first", Class: "fail"}}
	add := func(i int, x link) {
		if c := &kinds[i]; len(c.List) < maxChanges {
			c.List = append(c.List, x)
		} else {
			c.Left++
		}
	}
	for i, e := range r.Scenarios {
		name := e.Name + " · " + where(e)
		was, known := past[name]
		past[name] = e.Status
		x := link{fmt.Sprintf("#e%dx%d", run, i), short(name)}
		switch {
		case known && (was == e.Status || failing(was) && failing(e.Status)):
		case failing(e.Status) && known:
			add(0, x)
		case failing(e.Status):
			add(3, x)
		case e.Status == sim.InconclusiveEntry:
			add(1, x)
		case known:
			add(2, x)
		}
	}
	return slices.DeleteFunc(kinds, func(c changeView) bool { return len(c.List) == 0 })
}

// failing reports whether an entry did not pass for a reason: it failed, or could not be carried out.
func failing(status string) bool { return status != sim.Passed && status != sim.InconclusiveEntry }

// limits are how much of one run is shown.
type limits struct{ events, entries, lines int }

func runOf(run int, p shownRun, before *sim.Result, most limits) runView {
	r := p.Result
	var top view
	top.verdict(r)
	v := runView{
		ID: fmt.Sprintf("run%d", run), When: "at an unknown time", Seed: strconv.FormatUint(r.Seed, 10), Word: top.Word, Class: top.Class, Reason: top.Reason, Tally: top.Tally,
		Folder: short(p.Folder), Engine: engines(r), Versions: versionsSince(r, before), Statuses: statuses(r),
	}
	if !r.StartedAt.IsZero() {
		v.When = r.StartedAt.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	ids, left := map[string]string{}, most.events
	list := p.exhibits
	for i := range list {
		n := min(exhibitEvents, left)
		if i == runExhibits || n < 1 {
			v.ExhibitsLeft = len(list) - i
			break
		}
		x := viewExhibit(fmt.Sprintf("h%dx%d", run, i), &list[i], n)
		left -= len(x.Rows)
		ids[x.key] = x.ID
		v.Exhibits = append(v.Exhibits, x)
	}
	lines := 0
	for i, e := range r.Scenarios {
		if i >= most.entries || lines > most.lines {
			v.EntriesLeft = len(r.Scenarios) - i
			break
		}
		x := viewOf(fmt.Sprintf("e%dx%d", run, i), e, ids)
		for _, y := range x.Verdicts {
			lines += 1 + len(y.Violations)
		}
		v.Entries = append(v.Entries, x)
	}
	return v
}

// versionsSince marks what is another version than in the run before.
func versionsSince(r, before *sim.Result) (list []versionView) {
	var old [][2]string
	if before != nil {
		old = versionsOf(before)
	}
	for i, x := range versionsOf(r) {
		if x[1] != "" {
			list = append(list, versionView{short(x[0] + " " + strings.TrimPrefix(x[1], x[0]+" ")), old != nil && old[i] != x})
		}
	}
	return list
}

func engines(r *sim.Result) string {
	var list []string
	for _, e := range r.Scenarios {
		if name := short(e.Engine); !slices.Contains(list, name) && len(list) < 4 {
			list = append(list, name)
		}
	}
	return cmp.Or(strings.Join(list, ", "), "-")
}

// statuses counts the entries of each status, leaving out those that none has.
func statuses(r *sim.Result) []statusView {
	n := count(r)
	return slices.DeleteFunc([]statusView{
		{n.passed, "passed", "pass"}, {n.failed - n.errors, "failed", "fail"}, {n.inconclusive, "inconclusive", "open"}, {n.errors, "error", "error"},
	}, func(s statusView) bool { return s.N == 0 })
}

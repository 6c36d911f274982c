package reports

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fatih/color"
	"golang.org/x/term"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A Terminal writes a run as lines: one an entry, more where something is to be said, and the last line that scripts read.
// It is safe for concurrent use.
type Terminal struct {
	mu       sync.Mutex
	w        io.Writer
	colour   bool
	live     bool // a line may be redrawn
	width    int
	progress bool // a progress line stands on the screen
}

// A TerminalOption changes what NewTerminal found out about the writer.
type TerminalOption func(*Terminal)

// Colour says whether words are coloured. The words carry the meaning with or without.
func Colour(on bool) TerminalOption { return func(t *Terminal) { t.colour = on } }

// Redraw says whether a progress line may be redrawn in place.
func Redraw(on bool) TerminalOption { return func(t *Terminal) { t.live = on } }

// NewTerminal writes to w, a file or what stands before one and has its Fd. Colour and progress are for terminals only, and NO_COLOR, TERM=dumb and CI are obeyed.
func NewTerminal(w io.Writer, opts ...TerminalOption) *Terminal {
	t := &Terminal{w: w, width: 80}
	if f, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		dumb := os.Getenv("TERM") == "dumb"
		t.colour = os.Getenv("NO_COLOR") == "" && !dumb
		t.live = os.Getenv("CI") == "" && !dumb
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 20 {
			t.width = width
		}
	}
	for _, o := range opts {
		o(t)
	}
	return t
}

// The columns of an entry's line. A longer value pushes the rest to the right rather than being cut.
const (
	nameWidth  = 24
	routeWidth = 21
	implWidth  = 14
	indent     = "      "
)

// Entry writes the line of an entry, and what there is to say about it.
func (t *Terminal) Entry(e sim.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.erase()
	word, paint := statusWord(e.Status)
	t.printf("%s  %-*s %-*s %-*s %s\n", t.paint(paint, word), nameWidth, printable(e.Name), routeWidth, printable(string(e.Route)),
		implWidth, printable(e.Impl), figures(e))
	if e.Status != sim.Passed && e.Reason != "" && !saysMore(e) {
		t.say(e.Reason)
	}
	for _, v := range e.Verdicts {
		t.verdict(e, v)
	}
	for _, c := range e.Counterexamples {
		t.counterexample(e, c)
	}
}

// saysMore reports whether the verdicts below an entry's line say more than its reason does.
func saysMore(e sim.Entry) bool {
	return e.Status == sim.FailedEntry && slices.ContainsFunc(e.Verdicts, func(v sim.EntryVerdict) bool {
		return v.Status == sim.StatusViolated && len(v.Violations) > 0 && !isExpected(e, v.Invariant)
	})
}

// figures is how much was done: "10 schedules, 2 faults, 1.8s".
func figures(e sim.Entry) string {
	s := plural(e.Schedules, "schedule")
	if n := e.Faults.Applied; n > 0 {
		s += ", " + plural(n, "fault")
	}
	if e.VirtualSeconds > 0 {
		s += fmt.Sprintf(", %.0fs virtual", e.VirtualSeconds)
	}
	return s + fmt.Sprintf(", %.1fs", e.WallSeconds)
}

// verdict says what was violated, wanted or not, and why something could not be decided.
func (t *Terminal) verdict(e sim.Entry, v sim.EntryVerdict) {
	if sim.IsProgram(e.Impl) && v.Note != "" && v.Invariant == "one-leader" { // so that nobody takes less for more
		t.say(fmt.Sprintf("%s: %s", v.Invariant, v.Note))
	}
	switch expected := isExpected(e, v.Invariant); {
	case v.Status == sim.StatusViolated && len(v.Violations) > 0 && expected:
		t.say(fmt.Sprintf("%s violated, as expected: %s", v.Invariant, v.Violations[0].Text))
	case v.Status == sim.StatusViolated && len(v.Violations) > 0 && e.Status == sim.Passed:
		t.say(fmt.Sprintf("%s violated, besides what was expected: %s", v.Invariant, v.Violations[0].Text))
	case v.Status == sim.StatusViolated && len(v.Violations) > 0:
		first := v.Violations[0]
		t.say(fmt.Sprintf("%s violated at %.3fs: %s", v.Invariant, first.AtSeconds, first.Text))
		if first.Cause != "" {
			t.say("usual cause: " + first.Cause)
		}
		if n := len(v.Violations) - 1; n > 0 {
			t.say(fmt.Sprintf("and %d more of %s", n, v.Invariant))
		}
	case v.Status == sim.StatusInconclusive && e.Status == sim.InconclusiveEntry && v.Reason != "" && !strings.Contains(e.Reason, v.Reason):
		t.say(fmt.Sprintf("%s inconclusive: %s", v.Invariant, v.Reason))
	}
}

func (t *Terminal) counterexample(e sim.Entry, c sim.CounterSummary) {
	head := fmt.Sprintf("%s for %s (%s, %s", c.Title(), c.Invariant, plural(c.Replicas, "replica"), plural(c.Faults, "fault"))
	if c.Reproduced != "" {
		head += ", reproduced " + c.Reproduced
	}
	if c.Live != "" {
		head += ", live " + c.Live
	}
	if e.Status == sim.Passed { // found as expected: one line is enough
		words := strings.Join(c.Schedule, "; ")
		if words == "" {
			words = noFault
		}
		t.say(head + "): " + words)
		t.replay(c)
		return
	}
	t.say(head + "):")
	if len(c.Schedule) == 0 {
		t.say("  " + noFault)
	}
	for _, line := range c.Schedule {
		t.say("  " + line)
	}
	t.replay(c)
}

func (t *Terminal) replay(c sim.CounterSummary) {
	if c.Replay != "" {
		t.say("replay: " + c.Replay)
	}
}

// Live reports whether a progress line is redrawn in place.
func (t *Terminal) Live() bool { return t.live }

// Progress redraws the progress line on a terminal; elsewhere it is silent.
func (t *Terminal) Progress(done, total int, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.live {
		return
	}
	const cells = 20
	filled := 0
	if total > 0 {
		filled = min(cells, max(0, done*cells/total))
	}
	line := fmt.Sprintf("[%s%s] %d/%d %s", strings.Repeat("=", filled), strings.Repeat(" ", cells-filled), done, total, printable(what))
	if total <= 0 { // as many as there is time for
		line = fmt.Sprintf("%d %s", done, printable(what))
	}
	t.printf("\r\x1b[K%s", shorten(line, t.width-1))
	t.progress = true
}

// Line writes a line of text.
func (t *Terminal) Line(s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.erase()
	t.printf("%s\n", printable(s))
}

// Clear takes the progress line away, before somebody else writes to the same terminal.
func (t *Terminal) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.erase()
}

func (t *Terminal) erase() {
	if t.progress {
		t.printf("\r\x1b[K")
		t.progress = false
	}
}

// Done writes the exit status with its reason, and the last line. An entry that could not be carried out counts as
// failed there, and is named before it.
func (t *Terminal) Done(r *sim.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.erase()
	n := count(r)
	if n.errors > 0 {
		t.printf("%s could not be carried out, counted as failed\n", plural(n.errors, "scenario"))
	}
	if r.ExitReason != "" {
		t.printf("exit %d: %s\n", r.ExitStatus, printable(r.ExitReason))
	}
	t.printf("%s\n", doneLine(n, r.Seconds))
}

// doneLine is the line that scripts read (design.md, 7). Its form never changes, "1 scenarios" included.
func doneLine(n counts, wall float64) string {
	return fmt.Sprintf("DONE %d scenarios, %d passed, %d failed, %d inconclusive in %.1fs", n.all, n.passed, n.failed, n.inconclusive, wall)
}

// counts are the entries by status; errors are part of failed.
type counts struct{ all, passed, failed, inconclusive, errors int }

func count(r *sim.Result) (n counts) {
	for _, e := range r.Scenarios {
		n.all++
		switch e.Status {
		case sim.Passed:
			n.passed++
		case sim.InconclusiveEntry:
			n.inconclusive++
		case sim.FailedEntry:
			n.failed++
		default: // an error, and a status that nobody knows
			n.failed++
			n.errors++
		}
	}
	return n
}

// statusWord is an entry's status in four letters, and its colour.
func statusWord(status string) (string, color.Attribute) {
	switch status {
	case sim.Passed:
		return "PASS", color.FgGreen
	case sim.FailedEntry:
		return "FAIL", color.FgRed
	case sim.InconclusiveEntry:
		return "????", color.FgYellow
	}
	return "ERR ", color.FgMagenta
}

func (t *Terminal) paint(c color.Attribute, s string) string {
	if !t.colour {
		return s
	}
	p := color.New(c, color.Bold)
	p.EnableColor()
	return p.Sprint(s)
}

// say writes an indented line below an entry's.
func (t *Terminal) say(s string) { t.printf("%s%s\n", indent, printable(s)) }

// printf ignores errors: there is nobody left to tell when the terminal is gone.
func (t *Terminal) printf(format string, args ...any) { _, _ = fmt.Fprintf(t.w, format, args...) }

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// noFault is said of a schedule without faults.
const noFault = "no fault is needed"

func isExpected(e sim.Entry, invariant string) bool {
	return slices.Contains(e.Expected, invariant)
}

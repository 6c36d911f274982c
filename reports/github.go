package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

const (
	// maxAnnotations is how many of a step's errors GitHub is sure to show: it drops the eleventh without a word.
	maxAnnotations = 9
	// maxSummary is how long a job summary may be. GitHub drops all summaries of a job above 1 MiB, and other steps write some too.
	maxSummary = 200 << 10
)

// A Place is where a scenario's file names an invariant: a path from the repository's root, and a line from 1. The zero Place
// is nowhere.
type Place struct {
	File string
	Line int
}

// Annotations writes what is wrong as error annotations of GitHub Actions, at most nine: the last of them says how many more there are.
// where may be nil.
func Annotations(w io.Writer, r *sim.Result, where func(e sim.Entry, invariant string) Place) error {
	type annotation struct {
		title, text string
		place       Place
	}
	var list []annotation
	add := func(e sim.Entry, invariant, text string) {
		a := annotation{title: strings.Join([]string{e.Name, string(e.Route), e.Impl}, ", "), text: text}
		if where != nil {
			a.place = where(e, invariant)
		}
		list = append(list, a)
	}
	for _, e := range inOrder(r.Scenarios) {
		if e.Status == sim.Passed {
			break
		}
		said := len(list)
		for _, v := range e.Verdicts {
			if e.Status == sim.FailedEntry && v.Status == sim.StatusViolated && len(v.Violations) > 0 && !isExpected(e, v.Invariant) {
				text := v.Invariant + " violated: " + v.Violations[0].Text
				if replay := replayFor(e, v.Invariant); replay != "" {
					text += "\nreplay: " + replay
				}
				add(e, v.Invariant, text)
			}
		}
		if len(list) == said {
			add(e, "", cmp.Or(e.Reason, e.Status)+"\nagain: "+replayOf(e, r.Seed))
		}
	}
	if len(list) == 0 && r.ExitStatus != 0 {
		list = append(list, annotation{title: "simrun", text: fmt.Sprintf("exit %d: %s", r.ExitStatus, r.ExitReason)})
	}
	if more := len(list) - maxAnnotations + 1; more > 1 {
		list = append(list[:maxAnnotations-1], annotation{title: "simrun", text: fmt.Sprintf("and %d more; see the job's summary", more)})
	}
	var b bytes.Buffer
	for _, a := range list {
		b.WriteString("::error ")
		if a.place.File != "" {
			fmt.Fprintf(&b, "file=%s,line=%d,", property(a.place.File), max(a.place.Line, 1))
		}
		fmt.Fprintf(&b, "title=%s::%s\n", property(a.title), message(a.text))
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write annotations: %w", err)
	}
	return nil
}

// message escapes the text of a workflow command. What was several lines stays so.
func message(s string) string {
	parts := strings.Split(s, "\n")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(printable(p), "%", "%25")
	}
	return strings.Join(parts, "%0A")
}

// property escapes a property of a workflow command.
func property(s string) string {
	return strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C").Replace(printable(s))
}

// replayFor is the command that shows a violation of an invariant again, or "".
func replayFor(e sim.Entry, invariant string) string {
	for _, c := range e.Counterexamples {
		if c.Invariant == invariant {
			return c.Replay
		}
	}
	return ""
}

// inOrder is the entries with those first that somebody must look at.
func inOrder(entries []sim.Entry) []sim.Entry {
	rank := func(e sim.Entry) int {
		return slices.Index([]string{sim.Passed, sim.InconclusiveEntry, sim.ErrorEntry, sim.FailedEntry}, e.Status)
	}
	list := slices.Clone(entries)
	slices.SortStableFunc(list, func(a, b sim.Entry) int { return cmp.Compare(rank(b), rank(a)) })
	return list
}

// JobSummary writes the result as a job summary of GitHub Actions, in Markdown of at most limit bytes and never more than
// 200 KiB: the replay command first, then what is wrong, then all entries.
func JobSummary(w io.Writer, r *sim.Result, limit int) error {
	b := &bounded{limit: min(limit, maxSummary)}
	list := inOrder(r.Scenarios)
	if len(list) > 0 && list[0].Status != sim.Passed {
		b.add("```sh\n" + printable(replayOf(list[0], r.Seed)) + "\n```\n\n")
	}
	n := count(r)
	b.add(fmt.Sprintf("**simrun** exit %d: %s  \n%s, seed %d\n\n", r.ExitStatus, markdown(r.ExitReason), markdown(doneLine(n, r.Seconds)), r.Seed))
	for _, e := range list {
		if e.Status != sim.Passed {
			b.add(problemText(e))
		}
	}
	if len(list) > 0 {
		b.add("| | scenario | route | implementation | |\n|---|---|---|---|---|\n")
	}
	for _, e := range list {
		word, _ := statusWord(e.Status)
		b.add(fmt.Sprintf("| %s | %s | %s | %s | %s |\n", markdown(strings.TrimSpace(word)), markdown(e.Name), markdown(string(e.Route)), markdown(e.Impl), markdown(figures(e))))
	}
	if b.left > 0 {
		b.WriteString(fmt.Sprintf("\n%s did not fit; report.html has all.\n", plural(b.left, "part")))
	}
	b.WriteString("\n")
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the job summary: %w", err)
	}
	return nil
}

// problemText is what there is to say about an entry that did not pass.
func problemText(e sim.Entry) string {
	var b strings.Builder
	word, _ := statusWord(e.Status)
	fmt.Fprintf(&b, "#### %s %s\n\n", markdown(strings.TrimSpace(word)), markdown(strings.Join([]string{e.Name, string(e.Route), e.Impl}, ", ")))
	said := false
	for _, v := range e.Verdicts {
		if v.Status == sim.StatusViolated && len(v.Violations) > 0 && !isExpected(e, v.Invariant) {
			fmt.Fprintf(&b, "- **%s** violated: %s\n", markdown(v.Invariant), markdown(v.Violations[0].Text))
			if cause := v.Violations[0].Cause; cause != "" {
				fmt.Fprintf(&b, "  - usual cause: %s\n", markdown(cause))
			}
			said = true
		}
	}
	if !said || e.Status != sim.FailedEntry {
		fmt.Fprintf(&b, "- %s\n", markdown(cmp.Or(e.Reason, "no reason is given")))
	}
	for _, c := range e.Counterexamples {
		fmt.Fprintf(&b, "- %s for %s: %s\n", c.Title(), markdown(c.Invariant), markdown(cmp.Or(strings.Join(c.Schedule, "; "), noFault)))
		if c.Replay != "" {
			fmt.Fprintf(&b, "\n  ```sh\n  %s\n  ```\n", printable(c.Replay))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// markdown writes a text so that it is nothing but text in GitHub's Markdown: no markup, no HTML, no link, nobody is mentioned.
func markdown(s string) string {
	var b strings.Builder
	for _, r := range printable(s) {
		if strings.ContainsRune("\\`*_{}[]<>#|~&@!$", r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	// Addresses become links without any mark.
	return strings.NewReplacer("://", "&#58;//", "www.", "www&#46;").Replace(b.String())
}

// A bounded text takes parts until one does not fit, and counts the rest.
type bounded struct {
	bytes.Buffer
	limit, left int
}

// room is kept for the last lines.
const room = 200

func (b *bounded) add(part string) {
	if b.left > 0 || b.Len()+len(part) > b.limit-room {
		b.left++
		return
	}
	b.WriteString(part)
}

package reports

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/seed-aafb3a99/simrun/sim"
)

// JUnit writes the result as JUnit XML: a suite per entry, a case per invariant. Names hold no time and no number of the
// run, since CI servers compare runs by them. What could not be decided is an error, not a skip: nobody looks at skips.
func JUnit(w io.Writer, r *sim.Result) error {
	suites := junit.Testsuites{Name: "simrun", Time: xmlSeconds(r.Seconds)}
	for i, e := range r.Scenarios {
		suites.AddSuite(suite(i, e, r))
	}
	if r.ExitStatus != 0 && suites.Failures+suites.Errors == 0 {
		// The run itself failed, perhaps before anything ran; a file without a failure would read as a success.
		s := junit.Testsuite{ID: len(r.Scenarios), Name: "simrun", Package: "simrun", Time: xmlSeconds(0)}
		if !r.StartedAt.IsZero() {
			s.SetTimestamp(r.StartedAt)
		}
		s.AddTestcase(junit.Testcase{Classname: "simrun", Name: "run", Time: xmlSeconds(0), Error: because1(fmt.Sprintf("exit %d", r.ExitStatus), r.ExitReason)})
		suites.AddSuite(s)
	}
	if _, err := io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"); err != nil {
		return fmt.Errorf("write junit.xml: %w", err)
	}
	if err := suites.WriteXML(w); err != nil {
		return fmt.Errorf("write junit.xml: %w", err)
	}
	return nil
}

func suite(id int, e sim.Entry, r *sim.Result) junit.Testsuite {
	class := printable(strings.Join([]string{e.Name, string(e.Route), e.Impl, e.Engine}, "."))
	s := junit.Testsuite{ID: id, Name: class, Package: "simrun", Time: xmlSeconds(e.WallSeconds)}
	if !r.StartedAt.IsZero() {
		s.SetTimestamp(r.StartedAt)
	}
	s.AddProperty("simrun.seed", strconv.FormatUint(r.Seed, 10))
	s.AddProperty("simrun.replay", printable(replayOf(e, r.Seed)))
	for _, v := range e.Verdicts {
		s.AddTestcase(invariantCase(class, e, v))
	}
	if len(e.Require) > 0 {
		s.AddTestcase(requireCase(class, e))
	}
	if e.Status != sim.Passed && s.Errors+s.Failures == 0 {
		// The reason lies in none of the cases: a fault that could not be carried out, a server that did not start.
		s.AddTestcase(junit.Testcase{Classname: class, Name: "run", Error: because1(e.Status, e.Reason)})
	}
	for i := range s.Testcases {
		// GitLab adds up the cases and does not look at the suite: the first case carries the time of the run that all judge.
		s.Testcases[i].Time = xmlSeconds(0)
		if i == 0 {
			s.Testcases[i].Time = s.Time
		}
	}
	return s
}

// invariantCase is one invariant's case. An implementation that is expected to fail passes when it does.
func invariantCase(class string, e sim.Entry, v sim.EntryVerdict) junit.Testcase {
	c := junit.Testcase{Classname: class, Name: printable(v.Invariant)}
	var said []string
	for _, x := range v.Violations {
		said = append(said, fmt.Sprintf("at %.3fs in schedule %d: %s", x.AtSeconds, x.Schedule, x.Text))
		if x.Cause != "" {
			said = append(said, "usual cause: "+x.Cause)
		}
	}
	for _, ce := range e.Counterexamples {
		if ce.Invariant == v.Invariant {
			said = append(said, ce.Title()+": "+cmp.Or(strings.Join(ce.Schedule, "; "), noFault), "replay: "+ce.Replay)
		}
	}
	text := lines(said)
	switch expected := isExpected(e, v.Invariant); {
	case expected && v.Status == sim.StatusViolated:
		c.SystemOut = &junit.Output{Data: lines(append([]string{"violated, as expected"}, said...))}
	case expected && e.Status != sim.Passed:
		c.Failure = &junit.Result{Message: "the expected violation was not found", Type: "expected", Data: text}
	case e.Status == sim.Passed && v.Status != sim.StatusHeld:
		// Collateral damage of a flaw that the scenario is there to find.
		c.SystemOut = &junit.Output{Data: lines(append([]string{v.Status.String() + ", besides what was expected", v.Reason}, said...))}
	case v.Status == sim.StatusViolated:
		message := v.Invariant + " violated"
		if len(v.Violations) > 0 {
			message = v.Violations[0].Text
		}
		c.Failure = &junit.Result{Message: printable(message), Type: "violation", Data: text}
	case v.Status == sim.StatusInconclusive:
		c.Error = because1("inconclusive", v.Reason)
	default:
		c.SystemOut = &junit.Output{Data: fmt.Sprintf("held, %d examined", v.Examined)}
	}
	return c
}

// requireCase says whether enough happened for the other cases to mean something.
func requireCase(class string, e sim.Entry) junit.Testcase {
	c := junit.Testcase{Classname: class, Name: "require"}
	var said, missing []string
	for _, name := range slices.Sorted(maps.Keys(e.Require)) {
		n := e.Require[name]
		line := fmt.Sprintf("%s: %d, at least %d required", name, n.Seen, n.AtLeast)
		said = append(said, line)
		if n.Seen < n.AtLeast {
			missing = append(missing, line)
		}
	}
	if len(missing) > 0 && e.Status == sim.InconclusiveEntry {
		c.Error = because1("inconclusive", "not enough happened: "+strings.Join(missing, "; "))
		return c
	}
	c.SystemOut = &junit.Output{Data: lines(said)}
	return c
}

// because1 is an error with its reason in one line.
func because1(kind, reason string) *junit.Result {
	if reason == "" {
		reason = "no reason is given"
	}
	return &junit.Result{Message: printable(reason), Type: printable(kind), Data: printable(reason)}
}

// replayOf is the command that shows the entry's first failure again, or runs the entry again where there is none.
func replayOf(e sim.Entry, seed uint64) string {
	for _, c := range e.Counterexamples {
		if c.Replay != "" {
			return c.Replay
		}
	}
	return fmt.Sprintf("simrun run %s --engine %s --route %s --impl %s --seed %d", quote(cmp.Or(e.File, e.Name)), quote(e.Engine), quote(string(e.Route)), quote(e.Impl), seed)
}

// quote makes a word safe to paste into a shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// lines joins what is said, each on its line and printable; what is empty is left out.
func lines(list []string) string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, printable(s))
		}
	}
	return strings.Join(out, "\n")
}

func xmlSeconds(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) }

package main

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// gather adds one schedule to the entry and forgets its history, so that memory stays flat however many there are. The first
// passing history and every other one are kept on disk.
func (j *job) gather(s schedule) {
	first := j.result.Schedules == 0
	j.result.Schedules++
	if s.index >= 0 {
		j.digests.Write([]byte(s.digest)) // not of past failures: the same seed gives the same digest
	} else {
		j.result.Past++
	}
	if s.err != nil {
		j.failure = s.err
	} else {
		for _, m := range sim.Metrics {
			j.seen[m] += s.hist.Count(m)
		}
		tally(j.result, s.hist)
		cover(&j.result.Coverage, s.hist)
		for _, v := range s.verdicts {
			merge(j.result, v, s.index)
			if _, found := j.failures[v.Invariant]; !found && v.Status == sim.StatusViolated {
				j.failures[v.Invariant] = s
			}
		}
	}
	if s.file == "" {
		return
	}
	if s.plain() && !first && !j.Keep {
		j.out.remove(s.file)
		return
	}
	j.result.Histories = append(j.result.Histories, s.file)
}

// conclude sets the entry's digest, requirements and status.
func (j *job) conclude() {
	j.result.Digest = hex.EncodeToString(j.digests.Sum(nil)[:16])
	var missing []string
	for _, r := range j.Scenario.RequireFor(j.impl.Name, j.Route) {
		j.result.Require[string(r.What)] = sim.Count{AtLeast: r.AtLeast, Seen: j.seen[r.What]}
		if j.seen[r.What] < r.AtLeast {
			missing = append(missing, fmt.Sprintf("%s: %d, required %d", r.What, j.seen[r.What], r.AtLeast))
		}
	}
	j.result.Status, j.result.Reason = status(j.result, missing, j.failure)
}

// tally adds one history's counts.
func tally(out *sim.Entry, h *sim.History) {
	last := sim.Duration(0)
	for _, e := range h.Events {
		last = max(last, e.At)
		switch {
		case e.Kind == sim.EvStatement:
			out.Statements++
		case e.Kind == sim.EvFault && e.Op == sim.OpApplied:
			out.Faults.Applied++
		case e.Kind == sim.EvFault && e.Op == sim.OpMoot:
			out.Faults.Moot++
		case e.Kind == sim.EvFault && e.Op == sim.OpFailed:
			out.Faults.Failed++
		}
	}
	if h.Header.Engine == "virtual" {
		out.VirtualSeconds += last.Seconds()
	}
}

// merge adds one schedule's verdict to the entry's: the worst status wins, examined adds up, the largest measure stays.
func merge(out *sim.Entry, v sim.Verdict, schedule int) {
	i := slices.IndexFunc(out.Verdicts, func(o sim.EntryVerdict) bool { return o.Invariant == v.Invariant })
	if i < 0 {
		out.Verdicts = append(out.Verdicts, sim.EntryVerdict{Invariant: v.Invariant, Status: sim.StatusHeld, Note: v.Note, Violations: []sim.EntryViolation{}})
		i = len(out.Verdicts) - 1
	}
	o := &out.Verdicts[i]
	if o.Note != v.Note {
		o.Note = ""
	}
	o.Examined += v.Examined
	switch {
	case v.Status == sim.StatusViolated:
		o.Status = sim.StatusViolated
	case v.Status == sim.StatusInconclusive && o.Status != sim.StatusViolated:
		o.Status = sim.StatusInconclusive
	}
	if v.Status == sim.StatusInconclusive && o.Reason == "" {
		o.Reason = fmt.Sprintf("schedule %d: %s", schedule, v.Reason)
	}
	for _, m := range v.Measures {
		j := slices.IndexFunc(o.Measures, func(x sim.Measure) bool { return x.Name == m.Name })
		switch {
		case j < 0:
			o.Measures = append(o.Measures, m)
		case m.Value > o.Measures[j].Value:
			o.Measures[j] = m
		}
	}
	for _, x := range v.Violations {
		o.Violations = append(o.Violations, sim.EntryViolation{
			Text: x.Text, Cause: x.Cause, AtSeconds: x.At.Seconds(), Replicas: append([]int{}, x.Replicas...), Schedule: schedule, Events: x.Events,
		})
	}
}

// status is the entry's status and why it is not passed. An implementation that is expected to violate something may
// break other promises on the way; the reference may not, since no scenario expects anything of it.
func status(out *sim.Entry, missing []string, failure error) (string, string) {
	var differs *divergence
	if errors.As(failure, &differs) {
		return sim.InconclusiveEntry, differs.Error()
	}
	if failure != nil {
		return sim.ErrorEntry, failure.Error()
	}
	var violated, inconclusive []string
	for _, v := range out.Verdicts {
		switch v.Status {
		case sim.StatusViolated:
			violated = append(violated, v.Invariant)
		case sim.StatusInconclusive:
			inconclusive = append(inconclusive, v.Invariant)
		}
	}
	if len(out.Expected) > 0 {
		var absent []string
		for _, name := range out.Expected {
			if !slices.Contains(violated, name) {
				absent = append(absent, name)
			}
		}
		if len(absent) > 0 && out.Faults.Moot > 0 && out.Faults.Applied == 0 {
			return sim.InconclusiveEntry, "expected a violation of " + strings.Join(absent, ", ") + "; " + nothingBroken(out)
		}
		if len(absent) > 0 {
			return sim.FailedEntry, "expected a violation of " + strings.Join(absent, ", ") + " and found none"
		}
		return sim.Passed, ""
	}
	if len(violated) > 0 {
		return sim.FailedEntry, "violated: " + strings.Join(violated, ", ")
	}
	if out.Faults.Failed > 0 {
		return sim.InconclusiveEntry, plural(out.Faults.Failed, "fault") + " could not be carried out"
	}
	if len(inconclusive) > 0 {
		first := slices.IndexFunc(out.Verdicts, func(v sim.EntryVerdict) bool { return v.Status == sim.StatusInconclusive })
		return sim.InconclusiveEntry, fmt.Sprintf("%s is inconclusive: %s", strings.Join(inconclusive, ", "), out.Verdicts[first].Reason)
	}
	if out.Faults.Moot > 0 && out.Faults.Applied == 0 {
		return sim.InconclusiveEntry, nothingBroken(out)
	}
	if len(missing) > 0 {
		return sim.InconclusiveEntry, "not enough happened: " + strings.Join(missing, "; ")
	}
	if len(out.Verdicts) == 0 {
		return sim.InconclusiveEntry, "no invariant was judged"
	}
	return sim.Passed, ""
}

func nothingBroken(out *sim.Entry) string {
	return fmt.Sprintf("nothing was broken: %s came to nothing, and none took effect; the report says why of each", plural(out.Faults.Moot, "planned fault"))
}

// exitStatus is the run's exit status and its reason in one sentence.
func exitStatus(entries []sim.Entry, fatal error) (int, string) {
	code, why := exitOK, "every verdict as expected"
	consider := func(c int, reason string) {
		if w := worse(code, c); w != code {
			code, why = w, reason
		}
	}
	if len(entries) == 0 {
		consider(exitNothing, "nothing ran")
	}
	for _, e := range entries {
		name := fmt.Sprintf("%s, %s, %s", e.Name, e.Route, e.Impl)
		switch e.Status {
		case sim.FailedEntry:
			consider(exitViolated, name+": "+e.Reason)
		case sim.InconclusiveEntry:
			consider(exitInconclusive, name+": "+e.Reason)
		case sim.ErrorEntry:
			consider(exitEnvironment, name+": "+e.Reason)
		}
	}
	if fatal != nil {
		consider(cmp.Or(statusOf(fatal), exitInternal), fatal.Error())
	}
	return code, why
}

package invariants

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A sample is a history by hand and what an invariant must say of it. The format is described in testdata/README.md.
type sample struct {
	h        *sim.History
	status   string
	says     []string // the sentences of the violations, or the reason
	because  []string // parts of the causes
	examined int      // -1: not checked
	notes    []string
	measures []string
}

func readSample(t *testing.T, file string) *sample {
	t.Helper()
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	s, err := parseSample(string(src))
	require.NoError(t, err, file)
	return s
}

func parseSample(src string) (*sample, error) {
	s := &sample{examined: -1, h: &sim.History{Complete: true, Header: sim.Header{
		V: 1, Engine: "virtual", Route: sim.Direct, Impl: "reference", Terms: true, TimeScale: 1,
	}}}
	for n, line := range strings.Split(src, "\n") {
		line, _, _ = strings.Cut(line, " #")
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		var err error
		if line[0] >= '0' && line[0] <= '9' {
			err = s.event(line)
		} else {
			err = s.setting(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n+1, line, err)
		}
	}
	s.h.Header.Intervals = s.h.Header.Intervals.WithDefaults()
	return s, nil
}

func (s *sample) setting(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	hd := &s.h.Header
	switch word {
	case "want":
		s.status = rest
	case "says":
		s.says = append(s.says, rest)
	case "because":
		s.because = append(s.because, rest)
	case "notes":
		s.notes = append(s.notes, rest)
	case "measure":
		s.measures = append(s.measures, rest)
	case "examined":
		s.examined, err = strconv.Atoi(rest)
	case "route":
		hd.Route = sim.Route(rest)
	case "engine":
		hd.Engine = rest
	case "impl":
		hd.Impl = rest
	case "terms":
		hd.Terms = rest == "true"
	case "incomplete":
		s.h.Complete = false
	case "allowance":
		err = hd.Allowance.UnmarshalText([]byte(rest))
	case "stalled":
		err = s.h.Stalled.UnmarshalText([]byte(rest))
	case "horizon":
		err = hd.Plan.Horizon.UnmarshalText([]byte(rest))
	case "scale":
		hd.TimeScale, err = strconv.ParseFloat(rest, 64)
	case "belief-overlap":
		hd.Scenario.BeliefOverlap = new(sim.Duration)
		err = hd.Scenario.BeliefOverlap.UnmarshalText([]byte(rest))
	case "pool":
		hd.Scenario.Pool.Size, err = strconv.Atoi(rest)
	case "workload":
		return s.pairs(rest, func(k, v string) (err error) {
			if k == "rows" {
				hd.Scenario.Workload.Rows, err = strconv.Atoi(v)
				return err
			}
			return hd.Scenario.Workload.Every.UnmarshalText([]byte(v))
		})
	case "intervals":
		at := map[string]*sim.Duration{"retry": &hd.Intervals.Retry, "beat": &hd.Intervals.Beat, "deadline": &hd.Intervals.BeatDeadline,
			"probe": &hd.Intervals.ProbeWait, "tick": &hd.Intervals.Tick, "ttl": &hd.Intervals.TTL, "grace": &hd.Intervals.StopGrace}
		return s.pairs(rest, func(k, v string) error {
			if at[k] == nil {
				return fmt.Errorf("no interval %q", k)
			}
			return at[k].UnmarshalText([]byte(v))
		})
	case "delay": // delay REQ RESP: one for all
		var d sim.Delay
		req, resp, _ := strings.Cut(rest, " ")
		if err = d.Req.UnmarshalText([]byte(req)); err == nil {
			err = d.Resp.UnmarshalText([]byte(resp))
		}
		hd.Plan.Delays = [][]sim.Delay{{d}}
	case "fault": // fault KIND TARGET at=.. for=..
		words := strings.Fields(rest)
		f := sim.Fault{Kind: sim.FaultKind(words[0]), Target: sim.Target(words[1])}
		err = s.pairs(strings.Join(words[2:], " "), func(k, v string) error {
			if k == "for" {
				return f.For.UnmarshalText([]byte(v))
			}
			return f.At.UnmarshalText([]byte(v))
		})
		hd.Plan.Faults = append(hd.Plan.Faults, f)
	default:
		return fmt.Errorf("unknown setting")
	}
	return err
}

func (s *sample) pairs(text string, set func(k, v string) error) error {
	for _, w := range strings.Fields(text) {
		k, v, _ := strings.Cut(w, "=")
		if err := set(k, v); err != nil {
			return err
		}
	}
	return nil
}

var (
	eventLine = regexp.MustCompile(`^(\S+?)(?:\[(\S+),(\S+)\])?\s+(\S+)\s*(.*)$`)
	whoWord   = regexp.MustCompile(`^r(\d+)(?:#(\d+))?$`)
	ops       = map[string]bool{"begin": true, "end": true, "open": true, "close": true, "listed": true, "commit": true,
		"planned": true, "applied": true, "moot": true, "failed": true, "healed": true}
	sources = map[sim.EventKind]string{sim.EvUp: sim.FromEngine, sim.EvDown: sim.FromEngine, sim.EvPaused: sim.FromEngine, sim.EvResumed: sim.FromEngine,
		sim.EvFault: sim.FromEngine, sim.EvStatement: sim.FromEngine, sim.EvTerm: sim.FromLedger, sim.EvHeld: sim.FromObserver}
)

func (s *sample) event(line string) error {
	m := eventLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("no event line")
	}
	e := sim.Event{Seq: len(s.h.Events) + 1, Kind: sim.EventKind(m[4]), Source: sim.FromReplica}
	if err := e.At.UnmarshalText([]byte(m[1])); err != nil {
		return err
	}
	if m[2] != "" {
		if err := e.AtLo.UnmarshalText([]byte(m[2])); err != nil {
			return err
		}
		if err := e.AtHi.UnmarshalText([]byte(m[3])); err != nil {
			return err
		}
	}
	if src := sources[e.Kind]; src != "" {
		e.Source = src
	}
	for _, word := range strings.Fields(m[5]) {
		if err := s.word(&e, word); err != nil {
			return err
		}
	}
	s.defaults(&e)
	s.h.Events = append(s.h.Events, e)
	return nil
}

func (s *sample) word(e *sim.Event, word string) (err error) {
	if m := whoWord.FindStringSubmatch(word); m != nil {
		e.Replica, _ = strconv.Atoi(m[1])
		e.Incarnation = 1
		if m[2] != "" {
			e.Incarnation, _ = strconv.Atoi(m[2])
		}
		return nil
	}
	k, v, pair := strings.Cut(word, "=")
	n, _ := strconv.ParseInt(v, 10, 64)
	switch {
	case pair:
	case word == "nobody":
		return nil
	case word == "?" || strings.Contains(word, "/"):
		e.Session = word
		return nil
	case ops[word]:
		e.Op = word
		return nil
	case e.Kind == sim.EvEffect || e.Kind == sim.EvTick:
		e.Outcome = word
		return nil
	default:
		e.Answer = strings.ReplaceAll(word, "_", " ")
		return nil
	}
	switch k {
	case "row":
		e.Row = n
	case "unit":
		e.Unit = n
	case "term":
		e.Term = n
	case "key":
		e.Key = n
	case "commit":
		e.Commit = n
	case "fault":
		e.Fault = int(n)
	case "n":
		e.N = int(n)
	case "role":
		e.Role = v
	case "token":
		e.Token = v
	case "route":
		e.Route = sim.Route(v)
	case "reason":
		e.Reason = strings.ReplaceAll(v, "_", " ")
	case "by":
		e.BlockedBy = strings.Split(v, ",")
	case "trusted":
		err = e.Trusted.UnmarshalText([]byte(v))
	case "lasts":
		err = e.Lasts.UnmarshalText([]byte(v))
	case "targets":
		for _, t := range strings.Split(v, ",") {
			i, _ := strconv.Atoi(t)
			e.Targets = append(e.Targets, i)
		}
	default:
		return fmt.Errorf("unknown field %q", k)
	}
	return err
}

// defaults fills in what every line would repeat: role publish with key 7, unit 1, the token of the term, the lease session, and
// the place in commit order.
func (s *sample) defaults(e *sim.Event) {
	if r, i, use, ok := sim.ParseSession(e.Session); ok {
		e.Use = use
		if e.Replica == 0 && e.Source != sim.FromLedger && e.Source != sim.FromObserver {
			e.Replica, e.Incarnation = r, i
		}
	}
	if e.Kind == sim.EvEffect {
		if e.Unit == 0 {
			e.Unit = 1
		}
		if e.Op == sim.OpCommit {
			e.Source, e.Replica, e.Incarnation = sim.FromLedger, 0, 0
		}
		if e.Session == "" {
			e.Session = sim.SessionName(e.Replica, e.Incarnation, sim.UseEffect, 1)
		}
	}
	if e.Kind == sim.EvTerm {
		e.Op = sim.OpCommit
	}
	if e.Source == sim.FromLedger && e.Commit == 0 {
		for _, o := range s.h.Events {
			e.Commit = max(e.Commit, o.Commit)
		}
		e.Commit++
	}
	switch e.Kind {
	case sim.EvAttempt, sim.EvLead, sim.EvUnlock, sim.EvHeld, sim.EvTerm:
		if e.Key == 0 {
			e.Key = 7
		}
		if e.Session == "" && e.Replica > 0 {
			e.Session = sim.SessionName(e.Replica, e.Incarnation, sim.UseLease, 1)
		}
	}
	switch e.Kind {
	case sim.EvAttempt, sim.EvLead, sim.EvBeat, sim.EvEnd, sim.EvIdle, sim.EvUnlock, sim.EvTick:
		if e.Role == "" {
			e.Role = "publish"
		}
	}
	if (e.Kind == sim.EvLead || e.Kind == sim.EvTerm) && e.Token == "" && e.Term > 0 {
		e.Token = fmt.Sprintf("t%d", e.Term)
	}
}

// within keeps a fuzzed duration printable.
func within(d, lim time.Duration) sim.Duration {
	if lim == 0 {
		return 0
	}
	return sim.Duration(d % lim)
}

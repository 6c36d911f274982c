package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What a replica may report at most. Beyond these it is a defect of the program and no report.
const (
	maxReport     = 1 << 20          // bytes of a line
	maxRate       = 20_000           // reports a second
	maxWord       = 100              // characters of a name
	maxText       = 1000             // characters of a text for people; what is longer is cut
	clockSlack    = time.Second      // how far unix_ns may lie before the start or after the arrival: the clock may be set meanwhile
	helloPatience = 10 * time.Second // for a program to start up
	leastWords    = time.Second      // a replica that was up for so long when the run ended must have said hello
	lastGasp      = time.Second      // between the end of a program and that of its descriptor 3, whichever comes first
)

// A vocabulary is what a kind of event may say: op -> the answers or outcomes that belong to it.
type vocabulary struct {
	ops      map[string][]string
	outcomes bool // they stand in outcome and not in answer
}

var silent = map[string][]string{"": nil}

var vocabularies = map[sim.EventKind]vocabulary{
	sim.EvSession: {ops: map[string][]string{sim.OpOpen: nil, sim.OpClose: nil}},
	sim.EvProbe:   {ops: map[string][]string{sim.OpBegin: nil, sim.OpEnd: {sim.Stable, sim.Unstable, sim.Inconclusive}}},
	sim.EvAttempt: {ops: map[string][]string{sim.OpBegin: nil, sim.OpEnd: {sim.Acquired, sim.Busy, sim.Shared, sim.Moved, sim.Failed}}},
	sim.EvLead:    {ops: silent},
	sim.EvBeat: {ops: map[string][]string{
		"": {sim.BeatOK, sim.BeatLost}, sim.OpBegin: nil, sim.OpEnd: {sim.BeatOK, sim.BeatLost},
	}},
	sim.EvEnd:    {ops: silent},
	sim.EvIdle:   {ops: silent},
	sim.EvUnlock: {ops: map[string][]string{sim.OpBegin: nil, sim.OpEnd: {sim.Unlocked, sim.NotHeld, sim.Moved, sim.Failed}}},
	sim.EvTick: {outcomes: true, ops: map[string][]string{
		sim.OpBegin: nil, sim.OpListed: nil, sim.OpEnd: {sim.OutcomeOK, sim.OutcomeError, sim.OutcomeTermOver},
	}},
	sim.EvEffect: {outcomes: true, ops: map[string][]string{sim.OpBegin: nil, sim.OpEnd: {sim.OutcomeDone, sim.OutcomeRefused, sim.OutcomeUnknown}}},
	sim.EvCancel: {ops: silent},
	sim.EvNote:   {ops: silent},
}

// A report is a line as it is read: an explicit zero is told from a field that is not there.
type report struct {
	Hello *int   `json:"hello"`
	UNIX  *int64 `json:"unix_ns"`
	Term  *int64 `json:"term"`
	sim.Event
}

// parseReport reads a line. The error is the end of a sentence that begins with the replica.
func parseReport(line []byte) (r report, err error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields() // a misspelt field would silently not be judged
	err = dec.Decode(&r)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the JSON value")
		}
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return r, fmt.Errorf("reported %s as a %s, which it cannot be: %s", wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:], wrong.Value, excerpt(line))
	case err != nil:
		return r, fmt.Errorf("reported a line that is no JSON of protocol %d, %s: %s", sim.ProtocolVersion, strings.TrimPrefix(err.Error(), "json: "), excerpt(line))
	}
	if r.Term != nil {
		r.Event.Term = *r.Term
	}
	return r, nil
}

// event is what a replica may say of itself, and nothing else: who it is, and what only the engine or the server can know, is not its
// to tell. started and arrived are offsets from the start of the run, of the process and of the line.
func (r report) event(replica, incarnation int, start time.Time, started, arrived time.Duration) (sim.Event, error) {
	e := sim.Event{
		At: sim.Duration(arrived), Source: sim.FromReplica, Kind: r.Kind, Op: r.Op, Replica: replica, Incarnation: incarnation, Session: r.Session,
		Use: r.Use, Role: r.Role, Key: r.Key, Term: r.Event.Term, Token: r.Token, Answer: r.Answer, Outcome: r.Outcome,
		Reason: cut(r.Reason), Trusted: r.Trusted, N: r.N, Row: r.Row, Unit: r.Unit, Text: cut(r.Text),
	}
	if err := r.words(); err != nil {
		return e, err
	}
	if err := r.numbers(); err != nil {
		return e, err
	}
	if id, inc, _, ok := sim.ParseSession(e.Session); e.Session != "" && (!ok || id != replica || inc != incarnation) {
		return e, fmt.Errorf("reported %s with the session %q, which is none of its own: a session is called as its application_name is, %s", r.what(), e.Session, sim.SessionName(replica, incarnation, sim.UseLease, 1))
	}
	if r.UNIX == nil {
		return e, nil
	}
	at := time.Duration(*r.UNIX - start.UnixNano())
	if at < started-clockSlack || at > arrived+clockSlack {
		return e, fmt.Errorf("reported %s at unix_ns %d, before it was started or after the line arrived: it counts nanoseconds since 1970 on the host's clock, and it is %d now", r.what(), *r.UNIX, start.UnixNano()+int64(arrived))
	}
	e.At = sim.Duration(at)
	return e, nil
}

// words checks the kind, the op and the answer, and that names are names.
func (r report) words() error {
	v, known := vocabularies[r.Kind]
	if !known {
		return fmt.Errorf("reported an event of kind %q, which a replica does not report", clip(string(r.Kind)))
	}
	answers, known := v.ops[r.Op]
	if !known {
		return fmt.Errorf("reported %s with the op %q; %s", r.what(), clip(r.Op), orList("its op", v.ops))
	}
	said, field, other := r.Answer, "answer", r.Outcome
	if v.outcomes {
		said, field, other = r.Outcome, "outcome", r.Answer
	}
	if len(answers) > 0 && !slices.Contains(answers, said) {
		return fmt.Errorf("reported %s with the %s %q; it is one of %s", r.what(), field, clip(said), strings.Join(answers, ", "))
	}
	if other != "" || len(answers) == 0 && said != "" {
		return fmt.Errorf("reported %s with an answer or outcome that does not belong to it: %q", r.what(), clip(said+other))
	}
	for _, w := range []string{r.Session, r.Use, r.Role, r.Token} {
		if len([]rune(w)) > maxWord {
			return fmt.Errorf("reported %s with a name of more than %d characters: %q", r.what(), maxWord, clip(w))
		}
	}
	return nil
}

// numbers checks what cannot be negative or nothing.
func (r report) numbers() error {
	switch {
	case r.Term != nil && *r.Term < 1:
		return fmt.Errorf("reported %s with the term %d: terms are counted from 1; leave the field out where there are none", r.what(), *r.Term)
	case r.Trusted < 0:
		return fmt.Errorf("reported %s trusted until %s: that is an offset from the start of the run, and not negative", r.what(), r.Trusted)
	case r.N < 0:
		return fmt.Errorf("reported %s with an n of %d", r.what(), r.N)
	case r.Kind == sim.EvEffect && r.Row == 0:
		return fmt.Errorf("reported an effect without a row, or with row 0")
	case r.Kind == sim.EvSession && r.Session == "":
		return fmt.Errorf("reported a session without its name")
	}
	return nil
}

// what names the event: an effect, a lead.
func (r report) what() string {
	if strings.ContainsRune("aeiou", rune(r.Kind[0])) {
		return "an " + string(r.Kind)
	}
	return "a " + string(r.Kind)
}

func orList(what string, ops map[string][]string) string {
	var names []string
	for op := range ops {
		if op != "" {
			names = append(names, op)
		}
	}
	if len(names) == 0 {
		return "it has none"
	}
	slices.Sort(names)
	return what + " is " + strings.Join(names, " or ")
}

// excerpt shows a line of a program's in a sentence.
func excerpt(line []byte) string { return fmt.Sprintf("%q", clip(strings.TrimSpace(string(line)))) }

func clip(s string) string { return shortened(s, maxWord) }

func cut(s string) string { return shortened(s, maxText) }

func shortened(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "..."
	}
	return s
}

// splitReports is a split function for lines that keeps their end, so that half a line can be told from a whole one.
func splitReports(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// A meter counts reports and says when there are too many of them.
type meter struct {
	since time.Duration
	n     int
}

func (m *meter) over(at time.Duration) bool {
	if at-m.since >= time.Second {
		m.since, m.n = at, 0
	}
	m.n++
	return m.n > maxRate
}

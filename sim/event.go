package sim

import (
	"fmt"
	"strconv"
	"strings"
)

// An EventKind is a class of events. README of the history format: docs/history.md.
type EventKind string

// The event kinds. Behind each: who reports it and which fields it has besides Seq, At and Source.
const (
	// The life of a replica; Source engine; Replica, Incarnation, Fault when a fault did it, Reason.
	EvUp      EventKind = "up"
	EvDown    EventKind = "down"
	EvPaused  EventKind = "paused"
	EvResumed EventKind = "resumed"

	// A database session: Op open or close; Session, Use, Route, Reason. Source replica.
	EvSession EventKind = "session"
	// The stability probe: Op begin or end; at the end Answer stable, unstable or inconclusive, Reason; Session.
	EvProbe EventKind = "probe"
	// An attempt to take the lock: Op begin or end; at the end Answer acquired, busy, shared, moved or error; Role, Key, Session.
	EvAttempt EventKind = "attempt"
	// Leadership begins (after the bump): Role, Key, Term, Token, Session, Trusted.
	EvLead EventKind = "lead"
	// A heartbeat was answered or given up: Answer ok or lost, Reason; Trusted (new trusted_until) when ok.
	EvBeat EventKind = "beat"
	// Leadership ends in the replica's mind: Reason; no new effect is begun from here on.
	EvEnd EventKind = "end"
	// All work of the term has stopped.
	EvIdle EventKind = "idle"
	// An explicit unlock: Op begin or end; at the end Answer unlocked, not held, moved or error.
	EvUnlock EventKind = "unlock"
	// A tick of a scheduler: Op begin, listed (N due rows), end (Outcome ok, error, term-over; N published); Term.
	EvTick EventKind = "tick"

	// An effect. Source replica: Op begin (BEGIN is about to be sent) and end (Outcome done, refused, unknown), with
	// Row, Unit, Term, Session. Source ledger: Op commit, with Row, Unit, Term as written, Session as the server
	// knows it, and Commit, its place in commit order.
	EvEffect EventKind = "effect"
	// A due unit will not be published any more: Row, Unit, Reason (task-failure, or who withdrew it).
	EvCancel EventKind = "cancel"
	// A term was bumped; Source ledger: Op commit; Role, Key, Term, Token, Session, Commit.
	EvTerm EventKind = "term"

	// Who holds the key on the server; Source observer: Key, Session ("" when nobody does; "?" when it has no name of ours). In a live run the
	// change happened in [AtLo, AtHi]. The observer's first reading of each key it watches is an event too, so that "nobody" can
	// be told from "nobody looked".
	EvHeld EventKind = "held"

	// A fault: Op planned, applied (proved from outside, Text is the proof), moot or failed (Reason), healed;
	// Fault is its number, Targets what the target was resolved to.
	EvFault EventKind = "fault"

	// One step of the virtual engine: Session, SQL, Answer, Lasts, BlockedBy. At is the instant the replica sent it; it has the
	// answer at At + Lasts.
	EvStatement EventKind = "statement"
	// Something a person should know; Text. A violation is never inferred from it.
	EvNote EventKind = "note"
)

// Sources of events.
const (
	FromEngine   = "engine"
	FromReplica  = "replica"
	FromObserver = "observer"
	FromLedger   = "ledger"
)

// Operations and answers that judges read. Fields hold exactly these words.
const (
	OpBegin   = "begin"
	OpEnd     = "end"
	OpOpen    = "open"
	OpClose   = "close"
	OpListed  = "listed"
	OpCommit  = "commit"
	OpPlanned = "planned"
	OpApplied = "applied"
	OpMoot    = "moot"
	OpFailed  = "failed"
	OpHealed  = "healed"

	Stable       = "stable"
	Unstable     = "unstable"
	Inconclusive = "inconclusive"

	Acquired = "acquired"
	Busy     = "busy"
	Shared   = "shared"
	Moved    = "moved"
	Failed   = "error"

	Unlocked = "unlocked"
	NotHeld  = "not held"

	BeatOK   = "ok"
	BeatLost = "lost"

	OutcomeDone     = "done"
	OutcomeRefused  = "refused"
	OutcomeUnknown  = "unknown"
	OutcomeOK       = "ok"
	OutcomeError    = "error"
	OutcomeTermOver = "term-over"

	UseLease  = "lease"
	UseProbe  = "probe"
	UseEffect = "effect"
)

// An Event is one thing that happened. It is flat: which fields mean something depends on the kind. No pid, token, xid,
// port or address is ever in it, so that a virtual run can be compared byte by byte.
type Event struct {
	Seq int      `json:"seq"`
	At  Duration `json:"at"` // offset from the start; live: stamped at the source, by the host's clock

	// Live, for what was sampled or received: the instant lies in [AtLo, AtHi]. Both zero: exactly At.
	AtLo Duration `json:"at_lo,omitempty"`
	AtHi Duration `json:"at_hi,omitempty"`

	Source string    `json:"source"`
	Kind   EventKind `json:"kind"`
	Op     string    `json:"op,omitempty"`

	Replica     int    `json:"replica,omitempty"`     // from 1; 0: none
	Incarnation int    `json:"incarnation,omitempty"` // from 1
	Session     string `json:"session,omitempty"`     // r1/1/lease/1: replica, incarnation, use, number
	Use         string `json:"use,omitempty"`
	Route       Route  `json:"route,omitempty"`

	Role  string `json:"role,omitempty"`
	Key   int64  `json:"key,omitempty"`
	Term  int64  `json:"term,omitempty"`
	Token string `json:"token,omitempty"` // an ordinal (t1, t2, ...) in place of the random number

	Answer  string   `json:"answer,omitempty"`
	Outcome string   `json:"outcome,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Trusted Duration `json:"trusted,omitempty"` // trusted_until; 0: the replica knows no limit

	N      int   `json:"n,omitempty"`
	Row    int64 `json:"row,omitempty"`
	Unit   int64 `json:"unit,omitempty"`   // schedule_no: (Row, Unit) is the unit of publishing
	Commit int64 `json:"commit,omitempty"` // place in commit order, from 1, effects and bumps together

	Fault   int    `json:"fault,omitempty"` // number of the plan's fault, from 1
	Targets []int  `json:"targets,omitempty"`
	Text    string `json:"text,omitempty"`

	SQL       string   `json:"sql,omitempty"`
	Lasts     Duration `json:"lasts,omitempty"`
	BlockedBy []string `json:"blocked_by,omitempty"`
}

// Who names the replica and its incarnation: "r2", or "r2 (2nd life)".
func (e Event) Who() string { return Who(e.Replica, e.Incarnation) }

// Who names a replica and its incarnation.
func Who(replica, incarnation int) string {
	if incarnation > 1 {
		return fmt.Sprintf("r%d#%d", replica, incarnation)
	}
	return fmt.Sprintf("r%d", replica)
}

// Earliest and Latest bound the instant of the event.
func (e Event) Earliest() Duration {
	if e.AtHi != 0 {
		return e.AtLo
	}
	return e.At
}

// Latest is the other end of Earliest.
func (e Event) Latest() Duration {
	if e.AtHi != 0 {
		return e.AtHi
	}
	return e.At
}

// SessionName is the application_name of a replica's nth session of a use. Judges and observers read the identity of
// a session from it, never from what the code under test writes.
func SessionName(replica, incarnation int, use string, n int) string {
	return fmt.Sprintf("r%d/%d/%s/%d", replica, incarnation, use, n)
}

// ParseSession is the inverse of SessionName; ok is false for a foreign name.
func ParseSession(name string) (replica, incarnation int, use string, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || !strings.HasPrefix(parts[0], "r") {
		return 0, 0, "", false
	}
	replica, err1 := strconv.Atoi(parts[0][1:])
	incarnation, err2 := strconv.Atoi(parts[1])
	_, err3 := strconv.Atoi(parts[3])
	if err1 != nil || err2 != nil || err3 != nil {
		return 0, 0, "", false
	}
	return replica, incarnation, parts[2], true
}

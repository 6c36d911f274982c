package lockimpl

import (
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
)

// A Use says what a connection is for.
type Use string

// The uses. Each has connections of its own: a lease that shares its connection with the work waits behind it.
const (
	UseLease  Use = "lease"  // holds the lock
	UseProbe  Use = "probe"  // notifies the lease, to find out whether it can be reached
	UseEffect Use = "effect" // does the work
)

// An EventKind is a class of events.
type EventKind string

// The event kinds, with the fields that mean something besides Op.
const (
	EventSession EventKind = "session" // open, close: Session, Use, Reason
	EventProbe   EventKind = "probe"   // begin, end: Session; Answer, Reason, Err
	EventAttempt EventKind = "attempt" // begin, end: Session; Answer, Err
	EventLead    EventKind = "lead"    // the process leads from here on: Term, Session, Trusted
	EventBeat    EventKind = "beat"    // Term, Session, Answer (ok, lost), Reason, Trusted, Err
	EventEnd     EventKind = "end"     // it does not lead any more, and begins no effect: Term, Session, Reason, Err
	EventIdle    EventKind = "idle"    // the work has returned: Term, Session
	EventUnlock  EventKind = "unlock"  // begin, end: Term, Session; Answer, Err
	EventTick    EventKind = "tick"    // a scheduler's: begin, listed (N), end (Outcome, N): Term
	EventCancel  EventKind = "cancel"  // a scheduler's: a unit was cancelled for a failure of its task: Term, Row, Unit, Reason
	EventEffect  EventKind = "effect"  // a scheduler's: begin, end (Outcome, Reason): Term, Session, Row, Unit
)

// Operations and answers.
const (
	OpBegin  = "begin"
	OpEnd    = "end"
	OpOpen   = "open"
	OpClose  = "close"
	OpListed = "listed"

	Stable       = session.Stable
	Unstable     = session.Unstable
	Inconclusive = session.Inconclusive

	Acquired = session.Acquired
	Busy     = session.Busy
	Shared   = session.Shared
	Moved    = session.Moved
	Failed   = session.Failed
	Unlocked = session.Unlocked
	NotHeld  = session.NotHeld

	BeatOK   = "ok"
	BeatLost = "lost"
)

// Reasons for the end of a term.
const (
	ReasonStopped    = "stopped"                 // the context of Run ended
	ReasonStepDown   = "step-down"               // somebody asked for it
	ReasonFenced     = "fenced"                  // an effect was refused: a later term has begun
	ReasonReturned   = "the work returned"       // there is nothing to lead for
	ReasonConnection = "lease connection lost"   // closed, by whomever
	ReasonDeadline   = "heartbeat deadline"      // no answer in time
	ReasonMoved      = session.ReasonMoved       // the session is not the one that took the lock
	ReasonLockGone   = session.ReasonLockGone    // the server says so
	ReasonTermOver   = session.ReasonTermOver    // the server says so
	ReasonBeat       = session.ReasonBeatError   // any other error of the heartbeat
	ReasonNotHeard   = session.ReasonNotHeard    // the path is no session any more
	ReasonOneBackend = session.ReasonSameBackend // the path is no session any more
)

// An Event is something that happened to a lease or a scheduler. Reasons are a few fixed phrases; what differs from time
// to time is in Err.
type Event struct {
	Kind    EventKind
	Op      string
	Use     Use
	Session string // application_name
	Key     int64  // of the role's lock
	Answer  string
	Reason  string
	Outcome string
	Term    *Term
	Trusted time.Time // zero: without limit
	N       int
	Row     int64
	Unit    int64
	Err     error
}

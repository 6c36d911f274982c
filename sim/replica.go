package sim

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Replica is the code under test: it competes, leads and works until ctx ends, and then returns. The same function runs in a
// goroutine of the virtual engine and in a process of the live one. It closes what it opened before it returns.
type Replica func(ctx context.Context, env *Env) error

// An Env is all a replica knows of the world.
type Env struct {
	Replica     int    // its number, from 1
	Incarnation int    // its life, from 1
	Version     int    // of its program: 1, and 2 once a rolling deploy has reached it
	Replicas    int    // how many there are
	Role        Role   // what it competes for
	DSN         string // a postgres:// address, without application_name; it may hold a password: never print it
	ExecMode    string // pgx's default_query_exec_mode on this route
	Intervals   Intervals
	Start       time.Time // the run's start on the replica's clock; Event.Trusted is an offset from it

	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the operating system
	Now  func() time.Time                                                  // the replica's clock, which faults may skew
	Rand *rand.Rand                                                        // the replica's only source of chance
	Emit func(Event)                                                       // reports; Replica, Incarnation and At are filled in by the receiver

	// NextSession numbers the sessions of a use, from 1. nil: they are counted in the order in which they are asked for.
	NextSession func(use string) int

	Commands <-chan Command // what the operator asks for; nil: nothing ever
	Tasks    *Tasks         // asked at the start of each task; nil: no fault ever reaches one

	mu       sync.Mutex
	sessions map[string]int
}

// A Role is something at most one replica may be at a time.
type Role struct {
	Name string `json:"name"`
	Key  int64  `json:"key"`
}

// A Command is what an operator may ask of a running replica.
type Command string

// The commands. To stop altogether, the replica's context is cancelled.
const CommandStepDown Command = "step-down"

// SessionName returns a new application_name for a session of the given use.
func (e *Env) SessionName(use string) string {
	if e.NextSession != nil {
		return SessionName(e.Replica, e.Incarnation, use, e.NextSession(use))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sessions == nil {
		e.sessions = map[string]int{}
	}
	e.sessions[use]++
	return SessionName(e.Replica, e.Incarnation, use, e.sessions[use])
}

// An Implementation is code under test as an engine sees it.
type Implementation struct {
	Name       string // reference, a flaw's name, exec:COMMAND
	Models     string // one sentence: what it does wrong, and who was bitten; "" for a correct one
	Role       Role
	Migrations string // SQL that creates its tables; run once in an empty database
	Load       string // SQL that adds one unit of work: $1 its id (bigint), $2 seconds from now until it is due (float8)
	Terms      bool   // it keeps its term in lock_terms
	Probes     bool   // it has a stability probe of whatever quality, so that never refusing is a fault
	Run        Replica
	Command    []string // how to start it as a process; nil: only in process

	// What only a program of somebody else's has (IsProgram).
	Dir            string  // the folder it is started in; "": the run's own
	Keys           []int64 // advisory locks to watch besides the role's
	MigrationsFile string  // where Migrations come from, for messages
	// Ledger is a query over its own tables that yields what was committed, in commit order, in place of simrun.ledger: columns of that
	// table by name, of which row_id and at must be there.
	Ledger string
}

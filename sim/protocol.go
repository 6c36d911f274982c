package sim

// The replica protocol, version 1: how the live engine talks to a process that is one replica. docs/protocol.md is the
// page for people; these are its values.
//
// The process gets JSON lines on standard input: one Start, then Orders. It writes JSON lines on file descriptor 3, unbuffered:
// a Hello, then Reports. Standard output and error are its log.

// ProtocolVersion is the protocol's version.
const ProtocolVersion = 1

// ReportFD is the descriptor a replica reports on.
const ReportFD = 3

// Start is the first line on standard input. The address is handed over here and not as an argument, where everybody
// on the machine could read its password.
type Start struct {
	Protocol    int       `json:"protocol"`
	Replica     int       `json:"replica"`
	Incarnation int       `json:"incarnation"`
	Version     int       `json:"version"` // of the program: 1, and 2 once a rolling deploy has reached it
	Replicas    int       `json:"replicas"`
	Impl        string    `json:"impl"`
	Role        Role      `json:"role"`
	DSN         string    `json:"dsn"`
	ExecMode    string    `json:"exec_mode"`
	Intervals   Intervals `json:"intervals"`
	Seconds     Seconds   `json:"seconds"`       // the intervals once more, for whom "1.5s" is work to read
	StartUnixNS int64     `json:"start_unix_ns"` // the run's start on the host's clock
	Seed        uint64    `json:"seed"`
}

// Seconds are intervals as plain numbers.
type Seconds struct {
	Retry        float64 `json:"retry"`
	Beat         float64 `json:"beat"`
	BeatDeadline float64 `json:"beat_deadline"`
	ProbeWait    float64 `json:"probe_wait"`
	Tick         float64 `json:"tick"`
	TTL          float64 `json:"ttl"`
	StopGrace    float64 `json:"stop_grace"`
}

// Seconds are the intervals as plain numbers.
func (i Intervals) Seconds() Seconds {
	return Seconds{
		Retry: i.Retry.Seconds(), Beat: i.Beat.Seconds(), BeatDeadline: i.BeatDeadline.Seconds(), ProbeWait: i.ProbeWait.Seconds(),
		Tick: i.Tick.Seconds(), TTL: i.TTL.Seconds(), StopGrace: i.StopGrace.Seconds(),
	}
}

// An Order is a further line on standard input.
type Order struct {
	Order string   `json:"order"`         // stop: step down, close everything, exit 0; step-down: give up leadership, live on
	For   Duration `json:"for,omitempty"` // of a slow task
}

// The orders.
const (
	OrderStop     = "stop"
	OrderStepDown = string(CommandStepDown)
	// OrderRecycle closes the lease's sockets under the replica. Only simrun's own implementations get it: a program's pool is its own.
	OrderRecycle = "recycle"
	// Orders for the next task, which simrun's own implementations obey and report as a note with the order's name as its Reason.
	OrderTaskFailure = string(TaskFailure)
	OrderSlowTask    = string(SlowTask)
)

// A Report is a line the process writes: an event, or the first one, {"hello":1}.
type Report struct {
	Hello int   `json:"hello,omitempty"`   // protocol version
	UNIX  int64 `json:"unix_ns,omitempty"` // when it happened, on the host's clock; absent: when the line arrived
	Event
}

// ReplicaKinds are the events a replica may report.
var ReplicaKinds = []EventKind{EvSession, EvProbe, EvAttempt, EvLead, EvBeat, EvEnd, EvIdle, EvUnlock, EvTick, EvEffect, EvCancel, EvNote}

package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PlanVersion is the version of the plan's format.
const PlanVersion = 1

// A Plan is one draw from a scenario and one run's complete input: nothing is drawn while a run goes on.
type Plan struct {
	V       int        `yaml:"v" json:"v"`
	Faults  []Fault    `yaml:"faults,omitempty" json:"faults"`           // in order of time; a fault's number in the history is its index + 1
	Delays  [][]Delay  `yaml:"delays,omitempty" json:"delays,omitempty"` // per replica, one per request in turn; both lists wrap round
	Picks   []int      `yaml:"picks,omitempty" json:"picks,omitempty"`   // which of several steps due at one instant goes first; 0 when used up
	Phase   []Duration `yaml:"phase,omitempty" json:"phase,omitempty"`   // start of each replica; wraps round
	Horizon Duration   `yaml:"horizon" json:"horizon"`                   // the replicas are stopped then
}

// Has reports whether a fault of that kind is planned.
func (p Plan) Has(kind FaultKind) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == kind })
}

// Key is a short name for the plan, the same for equal plans.
func (p Plan) Key() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // a Plan holds nothing that JSON cannot express
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// A Delay is the time a request spends on its way to the database and its answer on the way back.
type Delay struct {
	Req  Duration `yaml:"req" json:"req"`
	Resp Duration `yaml:"resp" json:"resp"`
}

// A Fault is one thing that goes wrong, at an instant or at a statement, and heals by itself after For.
type Fault struct {
	Kind   FaultKind `yaml:"kind" json:"kind"`
	Target Target    `yaml:"target,omitempty" json:"target,omitempty"`
	At     Duration  `yaml:"at" json:"at"`                             // with Before or After: not earlier than this
	Before *Trigger  `yaml:"before,omitempty" json:"before,omitempty"` // just before the nth matching statement of the target reaches the database
	After  *Trigger  `yaml:"after,omitempty" json:"after,omitempty"`   // just after it was executed, before its answer is delivered
	For    Duration  `yaml:"for,omitempty" json:"for,omitempty"`
}

// A Trigger is the nth statement, counted from At on and from 1, whose SQL contains Pattern without regard to case.
type Trigger struct {
	Pattern string `yaml:"pattern" json:"pattern"`
	Nth     int    `yaml:"nth" json:"nth"`
}

// String says the fault in words: "pause the leader at 20s for 12s".
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	if f.Target != "" {
		fmt.Fprintf(&b, " %s", f.Target.words())
	}
	switch {
	case f.Before != nil:
		fmt.Fprintf(&b, " just before %s number %d after %s", strconv.Quote(f.Before.Pattern), f.Before.Nth, f.At)
	case f.After != nil:
		fmt.Fprintf(&b, " just after %s number %d after %s", strconv.Quote(f.After.Pattern), f.After.Nth, f.At)
	default:
		fmt.Fprintf(&b, " at %s", f.At)
	}
	if f.For > 0 {
		fmt.Fprintf(&b, " for %s", f.For)
	}
	return b.String()
}

// A Target says whom a fault hits. It stays symbolic in the plan: the engine resolves it at the fault's instant.
type Target string

// The symbolic targets; a replica's number ("1" is the first) is one as well.
const (
	TargetLeader  Target = "leader"  // the latest living believer
	TargetStandby Target = "standby" // the lowest-numbered living replica that does not believe
	TargetAll     Target = "all"
)

// Replica is the number of the replica the target names, 0 when it is symbolic.
func (t Target) Replica() int {
	n, err := strconv.Atoi(string(t))
	if err != nil {
		return 0
	}
	return n
}

func (t Target) words() string {
	if n := t.Replica(); n > 0 {
		return fmt.Sprintf("r%d", n)
	}
	if t == TargetAll {
		return "all replicas"
	}
	return "the " + string(t)
}

// A FaultKind names a fault.
type FaultKind string

// The faults (design.md, 6).
const (
	Kill                 FaultKind = "kill"
	Restart              FaultKind = "restart"
	Stop                 FaultKind = "stop"
	StepDown             FaultKind = "step-down"
	Pause                FaultKind = "pause"
	Disconnect           FaultKind = "disconnect"
	BlackHole            FaultKind = "black-hole"
	HalfOpen             FaultKind = "half-open"
	Latency              FaultKind = "latency"
	Slow                 FaultKind = "slow"
	CutReply             FaultKind = "cut-reply"
	TerminateBackend     FaultKind = "terminate-backend"
	CancelStatement      FaultKind = "cancel-statement"
	PostgresRestart      FaultKind = "postgres-restart"
	ConnectionsExhausted FaultKind = "connections-exhausted"
	IdleTimeout          FaultKind = "idle-timeout"
	PoolerRestart        FaultKind = "pooler-restart"
	PoolerReload         FaultKind = "pooler-reload"
	PoolerNoise          FaultKind = "pooler-noise"
	Recycle              FaultKind = "recycle"
	ClockSkew            FaultKind = "clock-skew"
	ClockJump            FaultKind = "clock-jump"
	TaskFailure          FaultKind = "task-failure"
	SlowTask             FaultKind = "slow-task"
	RollingDeploy        FaultKind = "rolling-deploy"
)

// How strong the faults are that only say how long they last. Nominal times, like those of a scenario.
const (
	LatencyAdds = Duration(500e6) // latency: to each way of the link
	SlowAdds    = Duration(2e9)   // slow: to each answer
	SkewBy      = Duration(10e9)  // clock-skew: the replica's clock is so far ahead
	JumpBy      = Duration(60e9)  // clock-jump: it is put forward by this
)

// A FaultInfo describes a fault kind to people and to the validator.
type FaultInfo struct {
	Kind    FaultKind `json:"kind"`
	Does    string    `json:"does"`
	Targets bool      `json:"targets"` // it is aimed at replicas
	Heals   bool      `json:"heals"`   // For means something; otherwise it is over at once
	Live    bool      `json:"live"`    // the live engine can do it
	Virtual bool      `json:"virtual"` // the virtual engine can do it
}

// Faults is every fault that some engine carries out, in the order it is shown.
var Faults = []FaultInfo{
	{Kind: Kill, Does: "the process is killed (SIGKILL) and started again after `for`", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: Restart, Does: "the process is asked to stop and, when it has, started again after `for`", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: Stop, Does: "the process is asked to stop; with `for` it is started again", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: RollingDeploy, Does: "one replica after another is asked to stop and started again as version 2; the next one's turn is `for` later", Heals: true, Live: true, Virtual: true},
	{Kind: StepDown, Does: "the replica is asked to give up leadership and lives on", Targets: true, Live: true, Virtual: true},
	{Kind: Pause, Does: "the process is stopped (SIGSTOP) and continued after `for`", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: Disconnect, Does: "the replica's open connections are cut on both sides; new ones are let through", Targets: true, Live: true, Virtual: true},
	{Kind: BlackHole, Does: "nothing passes the replica's link, the end of a connection included; then everything arrives late", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: HalfOpen, Does: "the server no longer hears the replica's open connections and is not told; after `for` it notices", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: Latency, Does: "each way of the replica's link takes longer", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: Slow, Does: "answers trickle to the replica", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: CutReply, Does: "a statement is executed, its answer lost and the connection cut", Targets: true, Live: true, Virtual: true},
	{Kind: TerminateBackend, Does: "the server ends the replica's lease session (pg_terminate_backend)", Targets: true, Live: true, Virtual: true},
	{Kind: CancelStatement, Does: "the server cancels what the replica has running (pg_cancel_backend)", Targets: true, Live: true, Virtual: true},
	{Kind: IdleTimeout, Does: "the server ends the replica's lease session for being idle", Targets: true, Live: true, Virtual: true},
	{Kind: Recycle, Does: "a client pool closes the lease session for its age", Targets: true, Live: true, Virtual: true},
	{Kind: TaskFailure, Does: "the replica's next task fails, for a reason of its own", Targets: true, Live: true, Virtual: true},
	{Kind: SlowTask, Does: "the replica's next task takes `for` longer, its transaction open", Targets: true, Heals: true, Live: true, Virtual: true},
	{Kind: ClockSkew, Does: "the replica's clock is ahead, for implementations that take a clock", Targets: true, Heals: true, Virtual: true},
	{Kind: ClockJump, Does: "the replica's clock jumps forward, for implementations that take a clock", Targets: true, Virtual: true},
	{Kind: PostgresRestart, Does: "the server is restarted as in a crash (immediate)", Live: true, Virtual: true},
	{Kind: ConnectionsExhausted, Does: "the server has no room for new connections", Heals: true, Live: true, Virtual: true},
	{Kind: PoolerRestart, Does: "PgBouncer is killed and started again", Live: true, Virtual: true},
	{Kind: PoolerReload, Does: "PgBouncer is reloaded into transaction mode under everybody, and back after `for`", Heals: true, Live: true, Virtual: true},
	{Kind: PoolerNoise, Does: "other clients keep the pool busy and rotate its server connections", Heals: true, Live: true, Virtual: true},
}

// FaultByKind finds a fault's description.
func FaultByKind(k FaultKind) (FaultInfo, bool) {
	for _, f := range Faults {
		if f.Kind == k {
			return f, true
		}
	}
	return FaultInfo{}, false
}

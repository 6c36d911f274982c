package virtual

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What code under test may do wrong as a Go program.

// A PanicError says that a replica's function panicked.
type PanicError struct {
	Replica int
	Value   any
	Stack   string // functions and lines, without addresses
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("replica %d panicked: %v\n%s", e.Replica, e.Value, e.Stack)
}

// A LeakError says that goroutines were still there a minute of virtual time after the replicas had returned, or two
// minutes after they had been told to stop.
type LeakError struct{ Stacks []string }

func (e *LeakError) Error() string {
	return fmt.Sprintf("the code under test left %s behind; the first: %s", counted(len(e.Stacks), "goroutine"), e.Stacks[0])
}

// A HungError says that the replicas neither blocked nor let virtual time pass. The engine, and the process, are of no
// more use; the implementation cannot be run in virtual time.
type HungError struct {
	After  time.Duration
	Stacks []string // those that keep time from passing first
}

func (e *HungError) Error() string {
	why := "a mutex held across a statement, or a loop that does not yield"
	if len(e.Stacks) > 0 {
		if one := inTheWay(e.Stacks[0]); one != "" {
			why = one
		}
	}
	return fmt.Sprintf("not runnable in virtual time: for %s the code under test neither waited for the database nor for time: %s; goroutines:\n%s",
		e.After, why, strings.Join(e.Stacks, "\n\n"))
}

// inTheWay is how a goroutine keeps virtual time from passing, by the state in its stack's first line; "" when it does not, or nobody knows how.
func inTheWay(stack string) string {
	state, _, _ := strings.Cut(stack, "\n")
	for _, s := range []struct{ state, why string }{
		{"(durable)", ""},
		{"sync.Mutex", "a goroutine wants a mutex that another one holds across a statement or a pause"},
		{"sync.RWMutex", "a goroutine wants a mutex that another one holds across a statement or a pause"},
		{"chan ", "a goroutine waits for a channel that was made outside the replica's function, by the test or in a package's variable"},
		{"select", "a goroutine waits for channels of which one was made outside the replica's function, by the test or in a package's variable"},
		{"run", "a loop does not yield"}, // running, runnable
		{"IO wait", "a goroutine waits for input or output other than the database's"},
		{"syscall", "a goroutine is in a call of the operating system, such as real input or output"},
		{"sync.WaitGroup", "a goroutine waits for a sync.WaitGroup that was made outside the replica's function"},
	} {
		if strings.Contains(state, s.state) {
			return s.why
		}
	}
	return ""
}

// maxStepsAtOnce is how many statements may follow one another at one instant. Where the plan's delays have run out a statement takes no time,
// and a loop that never pauses would go on for ever.
const maxStepsAtOnce = 100_000

// A BusyError says that the replicas sent statement after statement without any virtual time passing.
type BusyError struct {
	Replica   int
	Statement string // the last
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("not runnable in virtual time: %d statements were sent at one instant, since they take no time here and nobody waited in between; the last, of replica %d: %s. A loop needs a pause (time.Sleep, a ticker, a timer)",
		maxStepsAtOnce, e.Replica, e.Statement)
}

// misbehaved is the error for what the replicas did wrong, which it also notes in the history.
func (w *world) misbehaved(leaks []string) error {
	var errs []error
	for _, r := range w.all {
		var p *PanicError
		if errors.As(r.failed, &p) {
			errs = append(errs, p)
		}
	}
	if len(leaks) > 0 {
		e := &LeakError{Stacks: leaks}
		w.rec.Add(sim.Event{At: w.virtual, Source: sim.FromEngine, Kind: sim.EvNote, Text: e.Error()})
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// watched runs the world in a bubble under a watchdog on real time. The bubble has a goroutine of its own, so that a
// hung one can be left behind.
func (e *Engine) watched(w *world, starts time.Time) ([]string, error) {
	type result struct {
		leaks []string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		leaks, err := e.bubble(w, starts)
		done <- result{leaks, err}
	}()
	tick := time.NewTicker(e.cfg.Watchdog / 10)
	defer tick.Stop()
	last, since := e.beat.Load(), time.Now()
	for {
		select {
		case r := <-done:
			return r.leaks, r.err
		case <-tick.C:
			if b := e.beat.Load(); b != last || e.working.Load() {
				last, since = b, time.Now()
			} else if d := time.Since(since); d > e.cfg.Watchdog {
				err := &HungError{After: e.cfg.Watchdog, Stacks: leaked()}
				slices.SortStableFunc(err.Stacks, func(a, b string) int { return btoi(inTheWay(a) == "") - btoi(inTheWay(b) == "") })
				e.broken = err
				return nil, err
			}
		}
	}
}

// bubbleStacks are the stacks of goroutines in bubbles that no earlier run left behind.
func bubbleStacks() (stacks []string) {
	for _, s := range allStacks() {
		if _, old := leftBehind.Load(goroutineID(s)); !old && inBubble(s) {
			stacks = append(stacks, cleanStack(s))
		}
	}
	return stacks
}

// leaked is bubbleStacks, once.
func leaked() (stacks []string) {
	stacks = bubbleStacks()
	for _, s := range allStacks() {
		if inBubble(s) {
			leftBehind.Store(goroutineID(s), true)
		}
	}
	return stacks
}

// inBubble reports whether a stack's first line says that its goroutine is in a bubble.
func inBubble(stack string) bool {
	head, _, _ := strings.Cut(stack, "\n")
	return strings.Contains(head, "synctest bubble")
}

var leftBehind sync.Map

var addresses = regexp.MustCompile(`\(0x[0-9a-f, x.?{}…]*\)|\+0x[0-9a-f]+|goroutine \d+|, synctest bubble \d+|in goroutine \d+|, \d+ minutes|\({0x[^)]*\)|\(\.\.\.\)`)

// cleanStack is a stack without what differs from run to run.
func cleanStack(s string) string {
	var out []string
	for _, l := range strings.Split(addresses.ReplaceAllString(s, ""), "\n") {
		if l = strings.TrimRight(l, " "); l != "" {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

// trace is the stack of the goroutine that calls it.
func trace() string { return cleanStack(string(debug.Stack())) }

// panicked is the stack of a panic, for the deferred function that recovers it: from where it arose to the replica's function.
func panicked() string {
	lines := strings.Split(trace(), "\n") // two for each function: its name and its place
	for i, l := range lines {
		if strings.HasPrefix(l, "panic(") || l == "panic" {
			lines = lines[min(i+2, len(lines)):]
			break
		}
	}
	for i, l := range lines {
		if strings.Contains(l, "sim/virtual.(*replica).live") {
			lines = lines[:i]
			break
		}
	}
	return strings.Join(lines, "\n")
}

var (
	digits  = regexp.MustCompile(`\d{3,}`)
	address = regexp.MustCompile(`(\d{1,3}\.){3}\d{1,3}(:\d+)?`)
)

// plain is an error's text without numbers that differ from run to run.
func plain(err error) string {
	var p *pgconn.PgError
	if errors.As(err, &p) {
		return "SQLSTATE " + p.Code
	}
	return digits.ReplaceAllString(address.ReplaceAllString(err.Error(), "<address>"), "#")
}

// unable says why a plan cannot be carried out.
func unable(run sim.Run) error {
	if run.Impl.Run == nil {
		return fmt.Errorf("the implementation %s is a command: only the live engine can run it", run.Impl.Name)
	}
	if run.Scenario.Replicas < 1 {
		return errors.New("a scenario needs a replica")
	}
	return nil
}

package live

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
)

// A replica is one process at a time, its link, and what the engine knows of it. Fields below mu of the world.
type replica struct {
	id   int
	link *netfault.Link

	inc       int
	child     *proc.Child
	up        bool
	paused    bool
	stopping  bool // its end is ours: asked to stop, or killed by a fault
	believes  bool
	leadSince time.Duration
	reports   chan struct{} // closed when its reports have been read to the end
}

// boot starts the next incarnation and reads its reports until it ends.
func (w *world) boot(r *replica, fault int) error {
	rd, wr, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start replica %d: %w", r.id, err)
	}
	defer wr.Close()
	child, err := w.e.cfg.Run.Start(proc.Spec{
		Name: fmt.Sprintf("replica %d", r.id), Path: w.run.Impl.Command[0], Args: w.run.Impl.Command[1:],
		StdinPipe: true, Stdout: w.log, Stderr: w.log, ExtraFiles: []*os.File{wr},
	})
	if err != nil {
		rd.Close()
		return fmt.Errorf("start replica %d: %w", r.id, err)
	}
	w.mu.Lock()
	r.inc++
	r.child, r.up, r.paused, r.stopping, r.believes = child, true, false, false, false
	r.reports = make(chan struct{})
	inc, reports := r.inc, r.reports
	w.mu.Unlock()
	w.add(sim.Event{Kind: sim.EvUp, Replica: r.id, Incarnation: inc, Fault: fault})
	start, err := json.Marshal(sim.Start{
		Protocol: sim.ProtocolVersion, Replica: r.id, Incarnation: inc, Replicas: len(w.replicas),
		Impl: w.run.Impl.Name, Role: w.run.Impl.Role, DSN: w.dsn(r), ExecMode: execMode(w.run.Route),
		Intervals: w.intervals, StartUnixNS: w.start.UnixNano(), Seed: w.run.Seed + uint64(w.run.Schedule),
	})
	if err != nil {
		return fmt.Errorf("start replica %d: %w", r.id, err)
	}
	if _, err := child.Stdin().Write(append(start, '\n')); err != nil {
		w.note("replica %d did not read its start line: %v", r.id, err)
	}
	go func() {
		defer close(reports)
		w.read(r, inc, rd)
		rd.Close()
		<-child.Done()
		w.mu.Lock()
		r.up, r.believes = false, false
		ours := r.stopping
		w.mu.Unlock()
		reason := "exit"
		if !ours {
			reason = "it ended by itself"
			if err := child.Err(); err != nil {
				reason = "it ended by itself: " + err.Error()
			}
		}
		w.add(sim.Event{Kind: sim.EvDown, Replica: r.id, Incarnation: inc, Reason: reason})
	}()
	return nil
}

// read records the reports of one incarnation until its end of the pipe is closed.
func (w *world) read(r *replica, inc int, rd *os.File) {
	lines := bufio.NewScanner(rd)
	lines.Buffer(nil, 1<<20)
	hello := false
	for lines.Scan() {
		arrived := w.since()
		var rep sim.Report
		if err := json.Unmarshal(lines.Bytes(), &rep); err != nil {
			w.broken(r, "reported a line that is no JSON of protocol %d: %v", sim.ProtocolVersion, err)
			return
		}
		if !hello {
			if rep.Hello != sim.ProtocolVersion {
				w.broken(r, "did not begin with {\"hello\":%d}", sim.ProtocolVersion)
				return
			}
			hello = true
			continue
		}
		e := rep.Event
		if !slices.Contains(sim.ReplicaKinds, e.Kind) {
			w.broken(r, "reported an event of kind %q, which a replica does not report", e.Kind)
			return
		}
		e.Source, e.Replica, e.Incarnation = sim.FromReplica, r.id, inc
		e.At = sim.Duration(arrived)
		if rep.UNIX != 0 {
			e.At = sim.Duration(rep.UNIX - w.start.UnixNano())
		}
		w.mu.Lock()
		switch e.Kind {
		case sim.EvLead:
			r.believes, r.leadSince = true, arrived
		case sim.EvEnd:
			r.believes = false
		}
		w.mu.Unlock()
		w.rec.Add(e)
	}
	if err := lines.Err(); err != nil {
		w.broken(r, "reported a line longer than 1 MiB or unreadable: %v", err)
		return
	}
	w.mu.Lock()
	quiet := !hello && !r.stopping
	w.mu.Unlock()
	if quiet {
		w.broken(r, "ended without a word on descriptor %d; see logs", sim.ReportFD)
	}
}

// A ProtocolError says that a program is no replica. It is the program's fault, not the world's.
type ProtocolError struct {
	Replica int
	Problem string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("replica %d %s (docs/protocol.md)", e.Replica, e.Problem)
}

func (w *world) broken(r *replica, format string, a ...any) {
	w.fail(&ProtocolError{Replica: r.id, Problem: fmt.Sprintf(format, a...)})
}

// stopAll asks every replica to stop, waits for the stop grace and kills what is left.
func (w *world) stopAll() {
	w.mu.Lock()
	var left []*replica
	for _, r := range w.replicas {
		if r.child == nil {
			continue
		}
		left = append(left, r)
		if !r.up {
			continue
		}
		r.stopping = true
		if r.paused {
			_ = r.child.Signal(syscall.SIGCONT)
		}
	}
	w.mu.Unlock()
	order, _ := json.Marshal(sim.Order{Order: sim.OrderStop})
	for _, r := range left {
		go func() { // a replica that does not read must not keep the others from stopping
			_, _ = r.child.Stdin().Write(append(order, '\n'))
			_ = r.child.Stdin().Close()
		}()
	}
	grace := time.After(w.intervals.StopGrace.D() + w.intervals.BeatDeadline.D() + time.Second)
	for _, r := range left {
		select {
		case <-r.reports:
		case <-grace:
			w.note("replica %d did not stop within its grace and was killed", r.id)
			_ = r.child.Kill()
			<-r.reports
			grace = time.After(0)
		}
	}
}

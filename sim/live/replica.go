package live

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
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
	hello     bool
	began     time.Duration
	met       []sim.Event // notes of tasks that met an order
	version   int         // of its program; 0 is 1
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
	dsn := w.dsn(r)
	w.mu.Lock()
	inc := r.inc + 1
	w.mu.Unlock()
	log := newLifeLog(w.log, sim.Who(r.id, inc), dsn)
	spec := proc.Spec{
		Name: fmt.Sprintf("replica %d", r.id), Path: w.run.Impl.Command[0], Args: w.run.Impl.Command[1:],
		StdinPipe: true, Stdout: log, Stderr: log, ExtraFiles: []*os.File{wr},
	}
	if sim.IsProgram(w.run.Impl.Name) {
		spec.Dir, spec.Unprivileged, spec.Env = w.run.Impl.Dir, true, programEnv(os.Environ(), dsn)
	}
	child, err := w.e.cfg.Run.Start(spec)
	if err != nil {
		rd.Close()
		return err
	}
	began := w.since()
	w.mu.Lock()
	r.inc, r.child, r.began, r.reports = inc, child, began, make(chan struct{})
	r.up, r.paused, r.stopping, r.believes, r.hello = true, false, false, false, false
	reports := r.reports
	w.mu.Unlock()
	w.add(sim.Event{Kind: sim.EvUp, Replica: r.id, Incarnation: inc, Fault: fault})
	start, err := json.Marshal(sim.Start{
		Protocol: sim.ProtocolVersion, Replica: r.id, Incarnation: inc, Version: max(r.version, 1), Replicas: len(w.replicas),
		Impl: w.run.Impl.Name, Role: w.run.Impl.Role, DSN: dsn, ExecMode: execMode(w.run.Route),
		Intervals: w.intervals, Seconds: w.intervals.Seconds(), StartUnixNS: w.start.UnixNano(), Seed: w.run.Seed + uint64(w.run.Schedule),
	})
	if err != nil {
		return fmt.Errorf("start replica %d: %w", r.id, err)
	}
	if _, err := child.Stdin().Write(append(start, '\n')); err != nil {
		w.note("replica %d did not read its start line: %v", r.id, err)
	}
	life := &life{w: w, r: r, inc: inc, began: began, child: child, log: log}
	impatient := time.AfterFunc(helloPatience, life.missHello)
	go func() {
		defer close(reports)
		defer impatient.Stop()
		defer rd.Close()
		life.follow(rd)
	}()
	return nil
}

// programEnv is the environment of somebody else's program: ours without what leads to a database past the proxies, and with the
// way through them as libpq and all that is built on it read it.
func programEnv(environ []string, dsn string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "SIMRUN_")
	})
	u, err := url.Parse(dsn)
	if err != nil {
		return env // w.dsn made it
	}
	env = append(env, "PGHOST="+u.Hostname(), "PGPORT="+u.Port(), "PGUSER="+u.User.Username(), "PGDATABASE="+strings.TrimPrefix(u.Path, "/"))
	if password, ok := u.User.Password(); ok {
		env = append(env, "PGPASSWORD="+password)
	}
	for _, p := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout"} {
		if v := u.Query().Get(p); v != "" {
			env = append(env, "PG"+strings.ToUpper(p)+"="+v)
		}
	}
	return env
}

// A ProtocolError says that a program is no replica. It is the program's fault, not the world's.
type ProtocolError struct {
	Replica int
	Problem string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("replica %d %s (docs/protocol.md)", e.Replica, e.Problem)
}

// broken ends the run, and the program at once: there is nothing that it could be asked to do.
func (w *world) broken(r *replica, format string, a ...any) {
	w.fail(&ProtocolError{Replica: r.id, Problem: fmt.Sprintf(format, a...)})
	w.mu.Lock()
	r.stopping = true
	child := r.child
	w.mu.Unlock()
	_ = child.Kill() // what is left is killed when the run is closed
}

// stopAll asks every replica to stop, waits for the stop grace and kills what is left.
func (w *world) stopAll() {
	w.mu.Lock()
	var left, mute []*replica
	for _, r := range w.replicas {
		if r.child == nil {
			continue
		}
		left = append(left, r)
		if !r.up {
			continue
		}
		if up := w.since() - r.began; !r.hello && !r.stopping && !r.paused && (up >= leastWords || up >= w.plan.Horizon.D()/2) {
			mute = append(mute, r)
		}
		r.stopping = true
		if r.paused {
			_ = r.child.SignalGroup(syscall.SIGCONT)
		}
	}
	w.mu.Unlock()
	for _, r := range mute {
		w.broken(r, "did not say {\"hello\":%d} on descriptor %d for as long as it ran", sim.ProtocolVersion, sim.ReportFD)
	}
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

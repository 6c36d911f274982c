package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

// A virtual engine lives in a process of its own: it needs a *testing.T, one processor is enough for it, and a replica
// that hangs it for good must not take simrun along. Parent and worker exchange JSON lines: orders on standard input,
// answers on descriptor workerFD.
const (
	workerVerb = "internal-worker"
	workerFD   = 3
)

// A workerOrder is a line to the worker. The first one sets it up.
type workerOrder struct {
	Setup  *workerSetup `json:"setup,omitempty"`
	Entry  *task        `json:"entry,omitempty"`
	Replay *replayTask  `json:"replay,omitempty"`
	Stop   bool         `json:"stop,omitempty"` // end what is under way
}

type workerSetup struct {
	Postgres string `json:"postgres"` // the address of a given server is in SIMRUN_DSN of the environment
	Logs     string `json:"logs"`
}

// A workerAnswer is a line from the worker: progress, or the last word on an order.
type workerAnswer struct {
	Progress *stage     `json:"progress,omitempty"`
	Done     bool       `json:"done,omitempty"`
	Entry    *sim.Entry `json:"entry,omitempty"`
	Replayed *replayed  `json:"replayed,omitempty"`
	Postgres string     `json:"postgres,omitempty"`
	Backend  string     `json:"backend,omitempty"`
	Error    string     `json:"error,omitempty"`
	Status   int        `json:"status,omitempty"` // exit status that the error asks for
	Broken   bool       `json:"broken,omitempty"` // the worker is of no more use
}

func (a *workerAnswer) fail(err error) {
	if err == nil {
		return
	}
	a.Error, a.Status = err.Error(), statusOf(err)
	a.Broken = isHung(err)
}

// isHung says that a replica has stopped virtual time for good, and with it the process.
func isHung(err error) bool {
	var hung *virtual.HungError
	return errors.As(err, &hung)
}

// A remote carries out tasks in a worker process, which it starts again when a replica has hung it.
type remote struct {
	run      *proc.Run
	setup    workerSetup
	postgres string
	backend  string

	child   *proc.Child
	answers *bufio.Reader
	reports *os.File
	log     *os.File
}

func newRemote(ctx context.Context, run *proc.Run, setup workerSetup) (*remote, error) {
	log, err := os.OpenFile(filepath.Join(setup.Logs, "worker.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, &sim.EnvironmentError{Problem: "the worker's log cannot be written", Err: err}
	}
	x := &remote{run: run, setup: setup, log: log}
	if err := x.start(ctx); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return x, nil
}

func (x *remote) start(ctx context.Context) error {
	rd, wr, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	defer wr.Close()
	here, err := os.Getwd() // the results folder may be named relative to it
	if err != nil {
		rd.Close()
		return fmt.Errorf("start a worker: %w", err)
	}
	child, err := x.run.Start(proc.Spec{
		Name: "worker", Dir: here, Path: self(), Args: []string{workerVerb}, StdinPipe: true, Stdout: x.log, Stderr: x.log,
		ExtraFiles: []*os.File{wr}, Env: workerEnv(),
	})
	if err != nil {
		rd.Close()
		return fmt.Errorf("start a worker: %w", err)
	}
	x.child, x.reports, x.answers = child, rd, bufio.NewReaderSize(rd, 1<<16)
	a, err := x.ask(ctx, workerOrder{Setup: &x.setup}, nil)
	x.postgres, x.backend = a.Postgres, a.Backend
	return err
}

// workerEnv has the settings of Go's runtime: one processor, since only one goroutine of a bubble runs at a time, and, unless the
// user says otherwise, a garbage collector that comes less often, since little of what a run makes is kept.
func workerEnv() []string {
	return append(append([]string{"GOGC=400"}, os.Environ()...), "GOMAXPROCS=1")
}

func (x *remote) send(o workerOrder) error {
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("ask a worker: %w", err)
	}
	if _, err := x.child.Stdin().Write(append(b, '\n')); err != nil {
		return fmt.Errorf("ask a worker: %w", err)
	}
	return nil
}

// ask sends an order and waits for the last word on it. When ctx ends, the worker is told to stop, and answers with what it has.
func (x *remote) ask(ctx context.Context, o workerOrder, progress func(stage)) (workerAnswer, error) {
	if x.child == nil {
		if err := x.start(ctx); err != nil {
			return workerAnswer{}, err
		}
	}
	if err := x.send(o); err != nil {
		return workerAnswer{}, err
	}
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-ctx.Done():
			_ = x.send(workerOrder{Stop: true})
		case <-finished:
		}
	}()
	for {
		line, err := x.answers.ReadBytes('\n')
		if err != nil {
			x.discard()
			return workerAnswer{}, fmt.Errorf("a worker of the virtual engine ended; see %s", x.log.Name())
		}
		var a workerAnswer
		if err := json.Unmarshal(line, &a); err != nil {
			return a, fmt.Errorf("a worker's answer: %w", err)
		}
		if !a.Done {
			if progress != nil && a.Progress != nil {
				progress(*a.Progress)
			}
			continue
		}
		if a.Broken {
			x.discard()
		}
		switch {
		case a.Error == "":
			return a, nil
		case a.Status == exitEnvironment:
			return a, &sim.EnvironmentError{Problem: a.Error}
		default:
			return a, errors.New(a.Error)
		}
	}
}

// discard ends a worker that is of no more use; the next order starts another.
func (x *remote) discard() {
	_ = x.child.Kill()
	x.reports.Close()
	x.child = nil
}

func (x *remote) entry(ctx context.Context, t task, progress func(stage)) (*sim.Entry, error) {
	a, err := x.ask(ctx, workerOrder{Entry: &t}, progress)
	if a.Entry == nil && err != nil && ctx.Err() == nil {
		// The worker died over this task, and says so here: the others go on.
		return &sim.Entry{
			Name: t.Scenario.Name, Shows: t.Scenario.Shows, File: t.File, Route: t.Route, Impl: t.Impl, Engine: "virtual", Status: sim.ErrorEntry, Reason: err.Error(),
			Expected: []string{}, Require: map[string]sim.Count{}, Verdicts: []sim.EntryVerdict{}, Counterexamples: []sim.CounterSummary{}, Histories: []string{},
		}, nil
	}
	return a.Entry, err
}

func (x *remote) replay(ctx context.Context, t replayTask, progress func(stage)) (replayed, error) {
	a, err := x.ask(ctx, workerOrder{Replay: &t}, progress)
	if a.Replayed == nil {
		return replayed{}, err
	}
	return *a.Replayed, err
}

// close lets the worker end its servers, and waits for it.
func (x *remote) close() error {
	if x.child != nil {
		_ = x.child.Stdin().Close()
		<-x.child.Done()
		x.reports.Close()
	}
	return x.log.Close()
}

// work is the worker's side: it answers orders until standard input ends.
func work(in io.Reader, out io.Writer) int {
	return virtual.Main(func(t *testing.T) {
		w := &workerLoop{out: json.NewEncoder(out)}
		orders := make(chan workerOrder)
		go func() {
			defer close(orders)
			lines := bufio.NewScanner(in)
			lines.Buffer(nil, 64<<20)
			for lines.Scan() {
				var o workerOrder
				if json.Unmarshal(lines.Bytes(), &o) != nil {
					continue
				}
				if o.Stop {
					w.stop()
					continue
				}
				orders <- o
			}
			w.stop() // simrun has gone
		}()
		for o := range orders {
			w.answer(t, o)
		}
		if w.x != nil {
			if err := w.x.close(); err != nil {
				fmt.Fprintln(os.Stderr, "worker:", err)
			}
		}
	})
}

type workerLoop struct {
	out *json.Encoder
	x   *local

	mu     sync.Mutex
	cancel context.CancelFunc
}

func (w *workerLoop) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
	}
}

// setUp starts the worker's server and engine.
func (w *workerLoop) setUp(ctx context.Context, t *testing.T, o workerSetup, a *workerAnswer) error {
	// The engine and its server take turns; on one processor that costs half.
	if _, err := proc.PinToFree(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err) // only slower
	}
	run, err := proc.NewRun()
	if err != nil {
		return &sim.EnvironmentError{Problem: "no private directory for a worker", Err: err}
	}
	server, err := pg.Start(ctx, pg.Options{Run: run, Backend: o.Postgres, DSN: os.Getenv("SIMRUN_DSN"), LogDir: o.Logs})
	if err != nil {
		return errors.Join(err, run.Close())
	}
	engine, err := virtual.New(t, virtual.Config{Run: run, Server: server, LogDir: o.Logs})
	if err != nil {
		return errors.Join(err, server.Stop(), run.Close())
	}
	a.Postgres, a.Backend = server.Version(), server.Backend()
	w.x = &local{engine: engine, lookup: implementation, end: func() error { return errors.Join(server.Stop(), run.Close()) }}
	return nil
}

func (w *workerLoop) answer(t *testing.T, o workerOrder) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.mu.Lock()
	w.cancel = cancel
	w.mu.Unlock()
	a := workerAnswer{Done: true}
	progress := func(s stage) { _ = w.out.Encode(workerAnswer{Progress: &s}) }
	switch {
	case o.Setup != nil:
		a.fail(w.setUp(ctx, t, *o.Setup, &a))
	case o.Entry != nil:
		entry, err := w.x.entry(ctx, *o.Entry, progress)
		a.Entry = entry
		a.fail(err)
		if a.Broken {
			a.Error, a.Status = "", 0 // the entry says what happened, and the others can go on in another worker
		}
	case o.Replay != nil:
		got, err := w.x.replay(ctx, *o.Replay, progress)
		a.Replayed = &got
		a.fail(err)
	}
	if err := w.out.Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, "worker: answer:", err)
	}
}

package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Serve is the other end of the protocol: it runs one of our implementations as a replica process. in is standard
// input, out descriptor sim.ReportFD. It returns when the replica has stopped.
func Serve(ctx context.Context, in io.Reader, out io.Writer, lookup func(string) (sim.Implementation, bool)) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	var start sim.Start
	if !lines.Scan() {
		return errors.New("replica: no start line on standard input: a replica is started by simrun itself")
	}
	if err := json.Unmarshal(lines.Bytes(), &start); err != nil {
		return fmt.Errorf("replica: read the start line: %w", err)
	}
	if start.Protocol != sim.ProtocolVersion {
		return fmt.Errorf("replica: the engine speaks protocol %d, this program %d", start.Protocol, sim.ProtocolVersion)
	}
	impl, ok := lookup(start.Impl)
	if !ok {
		return fmt.Errorf("replica: no implementation %q", start.Impl)
	}
	r := &reporter{w: out}
	r.line(sim.Report{Hello: sim.ProtocolVersion})

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	commands := make(chan sim.Command, 8)
	tasks := &sim.Tasks{Hit: func(kind sim.FaultKind, row int64) {
		r.line(sim.Report{UNIX: time.Now().UnixNano(), Event: sim.Event{Kind: sim.EvNote, Reason: string(kind), Row: row, Text: "the task met the order " + string(kind)}})
	}}
	leases := &leasePool{open: map[*pooledConn]bool{}}
	go func() {
		defer stop() // the engine has gone: stop like on an order
		for lines.Scan() {
			var o sim.Order
			if json.Unmarshal(lines.Bytes(), &o) != nil {
				continue
			}
			switch o.Order {
			case sim.OrderStop:
				return
			case sim.OrderRecycle:
				leases.recycle()
			case sim.OrderTaskFailure:
				tasks.Fail()
			case sim.OrderSlowTask:
				tasks.Slow(o.For.D())
			case sim.OrderStepDown:
				select {
				case commands <- sim.CommandStepDown:
				default: // it has not even looked at the last eight
				}
			}
		}
	}()
	began := time.Unix(0, start.StartUnixNS)
	env := &sim.Env{
		Replica: start.Replica, Incarnation: start.Incarnation, Version: start.Version, Replicas: start.Replicas, Role: start.Role,
		DSN: start.DSN, ExecMode: start.ExecMode, Intervals: start.Intervals, Start: began,
		Dial:     leases.dial,
		Now:      time.Now,
		Rand:     rand.New(rand.NewPCG(start.Seed, uint64(start.Replica)<<16|uint64(start.Incarnation))),
		Commands: commands,
		Tasks:    tasks,
		Emit: func(e sim.Event) {
			r.line(sim.Report{UNIX: time.Now().UnixNano(), Event: e})
		},
	}
	if err := impl.Run(ctx, env); err != nil && ctx.Err() == nil {
		return fmt.Errorf("replica %d: %w", start.Replica, err)
	}
	return r.err
}

// reporter writes lines unbuffered, so that a kill loses none that happened.
type reporter struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

func (r *reporter) line(v sim.Report) {
	b, err := json.Marshal(v)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.err == nil {
		_, err = r.w.Write(append(b, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

package sim

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Tasks is how faults reach what a replica does while it leads: an engine gives orders, the replica asks at the start of each
// task. A nil *Tasks has none.
type Tasks struct {
	// Hit is told of each order that was carried out, before it is. It may be nil.
	Hit func(kind FaultKind, row int64)

	mu     sync.Mutex
	orders []taskOrder
}

type taskOrder struct {
	kind FaultKind
	by   time.Duration
}

// ErrTaskFailed is what a task returns that was made to fail.
var ErrTaskFailed = errors.New("the task failed, as the fault task-failure has it")

// Fail makes the next task fail.
func (t *Tasks) Fail() { t.order(taskOrder{kind: TaskFailure}) }

// Slow makes the next task take longer by d.
func (t *Tasks) Slow(d time.Duration) { t.order(taskOrder{SlowTask, d}) }

func (t *Tasks) order(o taskOrder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orders = append(t.orders, o)
}

// Begin carries out the oldest order, if there is one, on the task for a row. Its error is the task's.
func (t *Tasks) Begin(ctx context.Context, row int64) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	if len(t.orders) == 0 {
		t.mu.Unlock()
		return nil
	}
	o := t.orders[0]
	t.orders = t.orders[1:]
	t.mu.Unlock()
	if t.Hit != nil {
		t.Hit(o.kind, row)
	}
	if o.kind == TaskFailure {
		return ErrTaskFailed
	}
	// Which of two timers that are due at one instant is first is Go's choice, in virtual time too. Deadlines are round numbers; a task that
	// is slow for as long as its deadline allows is late.
	wait := time.NewTimer(o.by + time.Nanosecond)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

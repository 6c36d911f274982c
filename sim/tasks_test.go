package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestTasks(t *testing.T) {
	if err := (*Tasks)(nil).Begin(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var hits []string
		tasks := &Tasks{Hit: func(kind FaultKind, row int64) { hits = append(hits, fmt.Sprint(kind, " ", row)) }}
		began := time.Now()
		begin := func(ctx context.Context, row int64, want error, took time.Duration) {
			t.Helper()
			at := time.Now()
			if err := tasks.Begin(ctx, row); !errors.Is(err, want) || time.Since(at) != took {
				t.Fatalf("row %d: %v after %s, want %v after %s", row, err, time.Since(at), want, took)
			}
		}
		begin(context.Background(), 1, nil, 0)
		tasks.Fail()
		tasks.Slow(3 * time.Second)
		tasks.Slow(time.Hour)
		begin(context.Background(), 2, ErrTaskFailed, 0)
		begin(context.Background(), 3, nil, 3*time.Second+1)
		ctx, cancel := context.WithDeadline(context.Background(), began.Add(5*time.Second))
		defer cancel()
		begin(ctx, 4, context.DeadlineExceeded, 2*time.Second-1)
		begin(context.Background(), 5, nil, 0)
		if got := fmt.Sprint(hits); got != "[task-failure 2 slow-task 3 slow-task 4]" {
			t.Fatal(got)
		}
	})
}

// A task that is slow for as long as its deadline allows is late, each time.
func TestSlowUntilTheDeadline(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			tasks := &Tasks{}
			tasks.Slow(5 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := tasks.Begin(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		})
	}
}

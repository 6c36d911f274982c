package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl"
)

// connect opens the effect connection, unless there is one that works.
func (w *worker) connect(ctx context.Context) error {
	if w.conn != nil && !w.conn.IsClosed() {
		return nil
	}
	w.close("lost")
	if !w.c.Steps.Heed {
		ctx = context.WithoutCancel(ctx)
	}
	limit, cancel := context.WithTimeout(ctx, w.c.Deadline)
	defer cancel()
	conn, err := w.c.Connect(limit)
	if err != nil {
		w.c.Log.Warn("no connection for effects", "error", err)
		return fmt.Errorf("effect connection: %w", err)
	}
	w.conn, w.session = conn, conn.Config().RuntimeParams["application_name"]
	w.observe(lockimpl.Event{Kind: lockimpl.EventSession, Op: lockimpl.OpOpen, Use: lockimpl.UseEffect, Session: w.session})
	var set string
	if d := w.c.IdleInTransaction; d > 0 {
		set += fmt.Sprintf("set idle_in_transaction_session_timeout = %d; ", max(1, d.Milliseconds()))
	}
	if d := w.c.StatementTimeout; d > 0 {
		set += fmt.Sprintf("set statement_timeout = %d; ", max(1, d.Milliseconds()))
	}
	if set == "" {
		return nil
	}
	if _, err := conn.Exec(limit, set); err != nil {
		w.close("session settings")
		return fmt.Errorf("effect connection: %w", err)
	}
	return nil
}

func (w *worker) close(reason string) {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.Close(ctx)
	w.conn = nil
	w.observe(lockimpl.Event{Kind: lockimpl.EventSession, Op: lockimpl.OpClose, Use: lockimpl.UseEffect, Session: w.session, Reason: reason})
}

// limited runs f with a deadline. When ctx ends, what f has in hand may be finished, for a while: cut off in the middle, a COMMIT
// would be neither done nor refused as far as anybody knows.
func (w *worker) limited(ctx context.Context, f func(context.Context) error) error {
	if !w.c.Steps.Heed {
		return f(context.WithoutCancel(ctx))
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.c.Deadline)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(w.c.Finish)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-limit.Done():
		}
	})
	defer stop()
	return f(limit)
}

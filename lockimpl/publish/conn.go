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
	ctx, cancel := context.WithTimeout(w.finish, time.Second)
	defer cancel()
	_ = w.conn.Close(ctx)
	w.conn = nil
	w.observe(lockimpl.Event{Kind: lockimpl.EventSession, Op: lockimpl.OpClose, Use: lockimpl.UseEffect, Session: w.session, Reason: reason})
}

// outlive makes a context that ends a while after ctx: cut off in the middle, a COMMIT would be neither done nor refused as far as
// anybody knows.
func outlive(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(while)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// limited runs f with a deadline. When the term ends, what f has in hand may be finished, together with all that must follow
// from it, for as long as Finish says from then on.
func (w *worker) limited(f func(context.Context) error) error {
	if !w.c.Steps.Heed {
		return f(context.WithoutCancel(w.finish))
	}
	limit, cancel := context.WithTimeout(w.finish, w.c.Deadline)
	defer cancel()
	return f(limit)
}

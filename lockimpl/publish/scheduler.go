package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
)

// A Row is what is to be published: one unit.
type Row struct{ ID, ScheduleNo int64 }

// A Task publishes a row by statements in tx, and returns. What it writes is committed together with the row's new
// status, or not at all. It must not commit, and it should not reach outside: that is what the outbox is for.
type Task func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row Row) error

// A Config says how to publish. Connect and Task must be set; a zero value is the default.
type Config struct {
	// Connect opens a connection for effects. The scheduler keeps one, and opens another when it breaks.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	Task    Task

	Tick  time.Duration // start of a tick to the start of the next; 10 s
	Batch int           // rows a tick; 25
	// Deadline bounds a unit's transaction, the list of due rows, and a connect; 5 s.
	Deadline time.Duration
	// Finish is how long after the end of the term the transaction in hand, and all that follows from it, may take; it should be less
	// than the lease's StopGrace. 2.5 s.
	Finish time.Duration
	// IdleInTransaction is the server's idle_in_transaction_session_timeout on effect sessions, StatementTimeout its statement_timeout:
	// they free what a silent process has locked. 0 or negative: the server's own.
	IdleInTransaction time.Duration
	StatementTimeout  time.Duration

	Now     func() time.Time     // the local clock; nil: time.Now
	Observe func(lockimpl.Event) // see lockimpl.Config; nil: nobody is told
	Log     *slog.Logger         // nil: nowhere

	// Steps is for the wrong twins of this module's own tests. nil: the reference.
	Steps *steps.Publish
}

// A Scheduler publishes due rows for as long as its process leads: hand Work to lockimpl's Lease.Run.
type Scheduler struct {
	cfg Config
}

// New checks cfg and makes a Scheduler.
func New(cfg Config) (*Scheduler, error) {
	if cfg.Connect == nil || cfg.Task == nil {
		return nil, errors.New("publish: Connect and Task must be set")
	}
	fill := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	fill(&cfg.Tick, 10*time.Second)
	fill(&cfg.Deadline, 5*time.Second)
	fill(&cfg.Finish, 2500*time.Millisecond)
	if cfg.Batch <= 0 {
		cfg.Batch = 25
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observe == nil {
		cfg.Observe = func(lockimpl.Event) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Steps == nil {
		cfg.Steps = reference()
	}
	return &Scheduler{cfg: cfg}, nil
}

// Work ticks until ctx ends: at once, since a failover has just taken its time, and then from start to start.
func (p *Scheduler) Work(ctx context.Context, t *lockimpl.Term) error {
	finish, cancel := outlive(ctx, p.cfg.Finish)
	defer cancel()
	w := &worker{c: p.cfg, t: t, finish: finish, failures: map[Row]*failure{}}
	defer w.close("done")
	if err := p.cfg.Steps.Ready(ctx, p.cfg.Tick); err != nil {
		return nil
	}
	for {
		start := p.cfg.Now()
		w.tick(ctx)
		next := start.Add(p.cfg.Tick)
		wait, cancel := context.WithTimeout(ctx, next.Sub(p.cfg.Now()))
		<-wait.Done()
		cancel()
		if ctx.Err() != nil && (p.cfg.Steps.Heed || p.cfg.Now().Before(next)) {
			return nil
		}
	}
}

// A worker publishes in one term.
type worker struct {
	c        Config
	t        *lockimpl.Term
	finish   context.Context // ends when the term has, and Finish has passed
	conn     *pgx.Conn
	session  string
	ticks    int
	failures map[Row]*failure
}

// tick publishes what is due. It goes on with the next row after a failure, as long as there is a connection and the term lasts.
func (w *worker) tick(ctx context.Context) {
	w.ticks++
	w.observe(lockimpl.Event{Kind: lockimpl.EventTick, Op: lockimpl.OpBegin})
	done, outcome := w.publishDue(ctx)
	w.observe(lockimpl.Event{Kind: lockimpl.EventTick, Op: lockimpl.OpEnd, Outcome: outcome, N: done})
}

// Outcomes of a tick.
const (
	TickOK       = "ok"
	TickError    = "error"
	TickTermOver = "term-over"
)

func (w *worker) publishDue(ctx context.Context) (published int, outcome string) {
	rows, err := w.list(ctx)
	if err != nil {
		w.c.Log.Warn("list of due rows", "term", w.t.Number(), "error", err)
		return 0, TickError
	}
	w.observe(lockimpl.Event{Kind: lockimpl.EventTick, Op: lockimpl.OpListed, N: len(rows)})
	outcome = TickOK
	for _, row := range rows {
		if ctx.Err() != nil && w.c.Steps.Heed {
			return published, TickTermOver
		}
		if err := w.connect(ctx); err != nil {
			return published, TickError
		}
		ok, err := w.publish(ctx, row)
		if err == nil {
			if ok {
				published++
				w.succeeded(row)
			}
			continue
		}
		class := w.classify(err)
		if class == TermOver {
			return published, TickTermOver
		}
		switch task := class == TaskFailure; {
		case w.c.Steps.Blame(task), !task && w.failed(row):
			if w.cancel(ctx, row, err) != nil {
				outcome = TickError
			}
		default:
			outcome = TickError
		}
	}
	return published, outcome
}

// Outcomes of an effect.
const (
	EffectDone    = "done"
	EffectRefused = "refused" // certainly not committed
	EffectUnknown = "unknown"
)

// publish publishes one unit. It reports false, and no error, when there was nothing to do any more.
func (w *worker) publish(ctx context.Context, row Row) (published bool, err error) {
	effect := lockimpl.Event{Kind: lockimpl.EventEffect, Session: w.session, Row: row.ID, Unit: row.ScheduleNo}
	begin := effect
	begin.Op = lockimpl.OpBegin
	w.observe(begin)
	effect.Op, effect.Outcome = lockimpl.OpEnd, EffectDone
	err = w.limited(func(ctx context.Context) error {
		return w.t.Tx(ctx, w.conn, func(ctx context.Context, tx pgx.Tx) error {
			if ok, err := w.c.Steps.Claim(ctx, tx, row.ID, row.ScheduleNo); err != nil {
				return fmt.Errorf("claim row: %w", err)
			} else if !ok {
				return errNothing
			}
			if err := w.c.Task(ctx, tx, w.t, row); err != nil {
				return &taskError{err}
			}
			if _, err := tx.Exec(ctx, outboxSQL, row.ID, row.ScheduleNo); err != nil {
				return fmt.Errorf("outbox: %w", err)
			}
			return nil
		})
	})
	switch {
	case err == nil:
	case errors.Is(err, errNothing):
		effect.Outcome, effect.Reason, err = EffectRefused, "nothing to do any more", nil
	case errors.Is(err, lockimpl.ErrUnknownCommit):
		effect.Outcome, effect.Reason = EffectUnknown, InfrastructureFailure.String()
	default:
		effect.Outcome, effect.Reason = EffectRefused, w.classify(err).String()
	}
	effect.Err = err
	w.observe(effect)
	if err != nil {
		w.c.Log.Warn("publish", "row", row.ID, "schedule", row.ScheduleNo, "term", w.t.Number(), "error", err)
	}
	return effect.Outcome == EffectDone, err
}

func (w *worker) classify(err error) Failure {
	return Classify(err, w.conn == nil || w.conn.IsClosed())
}

// errNothing rolls back a transaction that found nothing to do: the row is published, cancelled, rescheduled, or
// somebody else has it in hand. None of that is a failure.
var errNothing = errors.New("nothing to do")

// cancel takes back the schedule of a unit whose task failed. It must not touch what has happened since: a row that was published after
// all, or scheduled anew.
func (w *worker) cancel(ctx context.Context, row Row, cause error) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	err := w.limited(func(ctx context.Context) error {
		return w.t.Tx(ctx, w.conn, func(ctx context.Context, tx pgx.Tx) error {
			return w.c.Steps.Cancel(ctx, tx, row.ID, row.ScheduleNo)
		})
	})
	if err != nil {
		w.c.Log.Warn("cancel a schedule whose task failed", "row", row.ID, "schedule", row.ScheduleNo, "error", err)
		return err
	}
	w.succeeded(row)
	w.observe(lockimpl.Event{Kind: lockimpl.EventCancel, Row: row.ID, Unit: row.ScheduleNo, Reason: TaskFailure.String()})
	w.c.Log.Error("schedule cancelled: its task failed", "row", row.ID, "schedule", row.ScheduleNo, "error", cause)
	return nil
}

func (w *worker) list(ctx context.Context) (rows []Row, err error) {
	if err := w.connect(ctx); err != nil {
		return nil, err
	}
	skip := w.skipped()
	err = w.limited(func(ctx context.Context) error {
		r, err := w.conn.Query(ctx, listSQL, skip, w.c.Batch)
		if err != nil {
			return fmt.Errorf("list due rows: %w", err)
		}
		rows, err = pgx.CollectRows(r, func(r pgx.CollectableRow) (row Row, err error) {
			err = r.Scan(&row.ID, &row.ScheduleNo)
			return row, err
		})
		if err != nil {
			return fmt.Errorf("list due rows: %w", err)
		}
		return nil
	})
	if err == nil && len(rows) < w.c.Batch {
		w.forget(rows)
	}
	return rows, err
}

func (w *worker) observe(e lockimpl.Event) {
	e.Term, e.Key = w.t, w.t.Key()
	w.c.Observe(e)
}

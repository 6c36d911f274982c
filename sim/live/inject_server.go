package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
)

func (w *world) terminateBackend(ctx context.Context, r *replica, _ int) (injection, error) {
	names, err := w.sessions(ctx, r, sim.UseLease)
	if err != nil {
		return injection{}, err
	}
	if len(names) == 0 {
		return injection{}, errMoot("it had no lease session on the server")
	}
	for _, name := range names {
		gone, err := w.e.cfg.Server.TerminateSession(ctx, w.database, name)
		if err != nil {
			return injection{}, err
		}
		if !gone {
			return injection{}, errMoot("its lease session went away by itself")
		}
	}
	return injection{proof: fmt.Sprintf("%d backend gone from pg_stat_activity", len(names))}, nil
}

// idleTimeout ends lease sessions that are idle. The timer itself belongs to the session and cannot be set by another one, so the
// replica is told 57P01 and not 57P05.
func (w *world) idleTimeout(ctx context.Context, r *replica, _ int) (injection, error) {
	all, err := w.e.cfg.Server.Sessions(ctx, w.database)
	if err != nil {
		return injection{}, err
	}
	var ended []string
	for _, s := range all {
		id, inc, use, ok := sim.ParseSession(s.AppName)
		if !ok || id != r.id || inc != r.inc || use != sim.UseLease || s.State != "idle" {
			continue
		}
		gone, err := w.e.cfg.Server.TerminateSession(ctx, w.database, s.AppName)
		if err != nil {
			return injection{}, err
		}
		if gone {
			ended = append(ended, s.AppName)
		}
	}
	if len(ended) == 0 {
		return injection{}, errMoot("it had no lease session that was idle")
	}
	return injection{proof: fmt.Sprintf("idle, ended by the server, and gone from pg_stat_activity: %s", strings.Join(ended, ", "))}, nil
}

// cancelStatement waits for a statement of the replica to be running, and cancels it. Statements here take a millisecond, so
// it asks often; the proof is the server's word that a backend was active and took the signal.
func (w *world) cancelStatement(ctx context.Context, r *replica, _ int) (injection, error) {
	conn, err := w.e.cfg.Server.Connect(ctx, w.database, "simrun cancel")
	if err != nil {
		return injection{}, err
	}
	defer conn.Close(ctx)
	for end := time.Now().Add(w.intervals.Tick.D() * 2); time.Now().Before(end) && !w.over(); {
		var n int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM (SELECT pg_cancel_backend(pid) AS sent FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'active' AND application_name LIKE $1) x WHERE sent`,
			fmt.Sprintf("r%d/%d/%%", r.id, r.inc)).Scan(&n)
		if err != nil {
			return injection{}, fmt.Errorf("cancel a statement of replica %d: %w", r.id, err)
		}
		if n > 0 {
			return injection{proof: fmt.Sprintf("%d active backend took the signal", n)}, nil
		}
	}
	return injection{}, errMoot("no statement of it was caught running")
}

// postgresRestart crashes and restarts the server. The engine's own connections end with it and are made anew.
func (w *world) postgresRestart(ctx context.Context) (injection, error) {
	if !w.e.cfg.Server.Owned() {
		return injection{}, errMoot("the server is a given one and not ours to restart")
	}
	if err := w.e.cfg.Server.Restart(ctx, "immediate"); err != nil {
		return injection{}, err
	}
	control, err := w.e.cfg.Server.Connect(ctx, w.database, "simrun control")
	if err != nil {
		return injection{}, err
	}
	old := w.control
	w.control = control
	_ = old.Close(ctx) // it is gone
	return injection{proof: "the server has ended and answers again"}, nil
}

// tooMany is the SQLSTATE of a server without room for another connection.
const tooMany = "53300"

// connectionsExhausted takes every connection the server has left for ordinary roles. Replicas that have theirs keep them.
func (w *world) connectionsExhausted(ctx context.Context) (injection, error) {
	if !w.e.cfg.Server.Owned() {
		return injection{}, errMoot("the server is a given one: its other users need their connections")
	}
	cfg, err := pgx.ParseConfig(w.e.cfg.Server.DSN(w.database))
	if err != nil {
		return injection{}, errors.New("read the server's address")
	}
	cfg.RuntimeParams["application_name"] = "simrun crowd"
	var held []*pgx.Conn
	heal := func(ctx context.Context) error {
		for _, c := range held {
			_ = c.Close(ctx)
		}
		return nil
	}
	for {
		c, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			held = append(held, c)
			continue
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == tooMany {
			return injection{fmt.Sprintf("%d connections taken; the next one was refused with %s", len(held), tooMany), heal}, nil
		}
		return injection{}, errors.Join(fmt.Errorf("take the server's connections: %w", err), heal(ctx))
	}
}

var errNoPooler = errMoot("there is no pooler on this route")

func (w *world) poolerRestart(ctx context.Context) (injection, error) {
	if w.pooler == nil {
		return injection{}, errNoPooler
	}
	if err := w.pooler.Kill(); err != nil {
		return injection{}, err
	}
	if err := w.pooler.Restart(ctx); err != nil {
		return injection{}, err
	}
	return injection{proof: "PgBouncer was killed and accepts clients again"}, nil
}

// poolerReload puts a session pool into transaction mode while everybody is connected, as an operator would by mistake.
func (w *world) poolerReload(ctx context.Context) (injection, error) {
	if w.pooler == nil {
		return injection{}, errNoPooler
	}
	if w.run.Route.PoolMode() != pgbouncer.Session {
		return injection{}, errMoot("the pooler is not in session mode")
	}
	if err := w.reload(ctx, pgbouncer.Transaction); err != nil {
		return injection{}, err
	}
	heal := func(ctx context.Context) error { return w.reload(ctx, w.run.Route.PoolMode()) }
	return injection{"PgBouncer says that its pool_mode is transaction", heal}, nil
}

func (w *world) reload(ctx context.Context, mode string) error {
	o, err := w.e.poolerOptions(w.run.Route, w.run.Scenario.Pool)
	if err != nil {
		return err
	}
	o.Mode = mode
	return w.pooler.Reload(ctx, o)
}

// noiseClients is how many other clients keep the pool busy: at four, about half of all sessions land on another backend
// (pooler-facts.md, A).
const noiseClients = 4

func (w *world) poolerNoise(ctx context.Context) (injection, error) {
	if w.pooler == nil {
		return injection{}, errNoPooler
	}
	dsn, err := w.e.poolerDSN(w.pooler, w.database)
	if err != nil {
		return injection{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	heal := func(context.Context) error { stop(); clients.Wait(); return nil }
	for i := range noiseClients {
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			stop()
			return injection{}, errors.New("read the pooler's address")
		}
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
		cfg.RuntimeParams["application_name"] = "simrun noise"
		c, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			return injection{}, errors.Join(fmt.Errorf("connect client %d of the noise: %w", i+1, err), heal(ctx))
		}
		clients.Go(func() {
			defer c.Close(context.WithoutCancel(ctx))
			for ctx.Err() == nil {
				if _, err := c.Exec(ctx, "SELECT pg_sleep(0.0005)"); err != nil {
					return
				}
				w.sleepUntil(ctx, w.since()+time.Millisecond)
			}
		})
	}
	return injection{fmt.Sprintf("%d other clients work in the pool", noiseClients), heal}, nil
}

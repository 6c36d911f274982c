package live

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

// samplingPause is the time between two looks at pg_locks: a hold shorter than it can be missed, so its absence proves nothing.
const samplingPause = 4 * time.Millisecond

// maxWatched is how many keys are watched at most: a program that reports more has lost its way.
const maxWatched = 64

// watch adds a key to those whose holder is recorded.
func (w *world) watch(key int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key != 0 && !slices.Contains(w.watched, key) && len(w.watched) < maxWatched {
		w.watched = append(w.watched, key)
	}
}

// observe records who holds the keys of the roles, as the server knows it, whenever that changed. When the server is restarted under
// it, it connects again: what was held before is free then.
func (w *world) observe(ctx context.Context, conn *pgx.Conn) {
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	last, lastSent := map[int64]string{}, time.Duration(0)
	for ctx.Err() == nil {
		w.mu.Lock()
		keys := slices.Clone(w.watched)
		w.mu.Unlock()
		sent := w.since()
		holders, err := pg.Holders(context.WithoutCancel(ctx), conn, w.database, keys...)
		got := w.since()
		if err != nil {
			if conn, err = w.reconnect(ctx, conn, err); err != nil {
				if ctx.Err() == nil {
					w.fail(err)
				}
				return
			}
			continue
		}
		for _, key := range keys {
			name := ""
			if i := slices.IndexFunc(holders, func(h pg.Holder) bool { return h.Key == key }); i >= 0 {
				name = cmp.Or(holders[i].AppName, "?")
			}
			before, seen := last[key]
			if seen && name == before {
				continue
			}
			e := sim.Event{At: sim.Duration(got), AtHi: sim.Duration(got), Source: sim.FromObserver, Kind: sim.EvHeld, Key: key, Role: w.roleOf(key), Session: name}
			if seen {
				e.AtLo = sim.Duration(lastSent)
			}
			w.rec.Add(e)
			last[key] = name
		}
		lastSent = sent
		w.sleepUntil(ctx, got+samplingPause)
	}
}

// roleOf is the role that a key is for; each further key of a program is a role of its own.
func (w *world) roleOf(key int64) string {
	if role := w.run.Impl.Role; key == role.Key {
		return role.Name
	}
	return fmt.Sprintf("key %d", key)
}

// reconnectPatience is how long a restart of the server may take.
const reconnectPatience = 20 * time.Second

// reconnect replaces a connection that the server ended; why is returned when the server does not come back.
func (w *world) reconnect(ctx context.Context, old *pgx.Conn, why error) (*pgx.Conn, error) {
	if !old.IsClosed() {
		return old, why // the server answered; a new connection would hear the same
	}
	for end := w.since() + reconnectPatience; w.since() < end; {
		conn, err := w.e.cfg.Server.Connect(ctx, w.database, "simrun observer")
		if err == nil {
			return conn, nil
		}
		if !w.sleepUntil(ctx, w.since()+samplingPause) {
			break
		}
	}
	return old, why
}

// watchStalls measures how much later than asked this process gets the processor: the best sign that replicas were kept waiting as well.
func (w *world) watchStalls(ctx context.Context) {
	const step = 5 * time.Millisecond
	for {
		want := w.since() + step
		if !w.sleepUntil(ctx, want) {
			return
		}
		w.rec.Stalled(sim.Duration(w.since() - want))
	}
}

// sessions names the replica's sessions of a use that the server has now.
func (w *world) sessions(ctx context.Context, r *replica, use string) ([]string, error) {
	all, err := w.e.cfg.Server.Sessions(ctx, w.database)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if id, inc, u, ok := sim.ParseSession(s.AppName); ok && id == r.id && inc == r.inc && u == use {
			names = append(names, s.AppName)
		}
	}
	return names, nil
}

package replica

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/lockimpl/flawed"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

func TestAll(t *testing.T) {
	t.Parallel()
	all := All()
	require.Equal(t, Reference, all[0].Name)
	require.Empty(t, all[0].Models)
	require.Len(t, all, 1+len(flawed.All()))
	for _, impl := range all {
		found, ok := ByName(impl.Name)
		require.True(t, ok)
		require.Equal(t, impl.Name, found.Name)
		require.Equal(t, sim.Role{Name: "publish", Key: 982410937}, impl.Role)
		require.Equal(t, impl.Name != Reference, impl.Models != "", impl.Name)
	}
	_, ok := ByName("no-such")
	require.False(t, ok)
}

// A whole life, as a judge reads it: every event that it needs, in order, with its fields.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := setup(t, Reference)
	w.load(1, -1)
	a := w.boot(1, nil)
	a.until(1, is("effect end done"))
	a.until(1, is("beat ok"))
	a.commands <- sim.CommandStepDown
	a.until(1, is("unlock end unlocked"))
	a.until(2, is("lead"))
	a.end()
	words := slices.DeleteFunc(a.words(), func(w string) bool { return w == "beat ok" })
	require.Equal(t, []string{
		"probe begin", "probe end stable", "attempt begin", "attempt end acquired", "lead", "effect begin", "effect end done",
		"end", "idle", "unlock begin", "unlock end unlocked",
		"probe begin", "probe end stable", "attempt begin", "attempt end acquired", "lead", "end", "idle", "unlock begin", "unlock end unlocked",
	}, words)

	lead := a.until(1, is("lead"))
	require.Equal(t, "publish", lead.Role)
	require.EqualValues(t, 982410937, lead.Key)
	require.EqualValues(t, 1, lead.Term)
	require.NotEmpty(t, lead.Token)
	require.Equal(t, sim.SessionName(1, 1, sim.UseLease, 1), lead.Session)
	require.Greater(t, lead.Trusted, lead.At)
	require.Less(t, lead.Trusted, lead.At+quick.Beat+quick.BeatDeadline)
	require.Greater(t, a.until(1, is("beat ok")).Trusted, lead.Trusted)
	effect := a.until(1, is("effect end done"))
	require.EqualValues(t, 1, effect.Row)
	require.EqualValues(t, 1, effect.Unit)
	require.EqualValues(t, 1, effect.Term)
	require.Equal(t, sim.SessionName(1, 1, sim.UseEffect, 1), effect.Session)
	require.Equal(t, "step-down", a.until(1, is("end")).Reason)
	require.Equal(t, "stopped", a.until(2, is("end")).Reason)
	require.Equal(t, 1, a.until(1, func(e sim.Event) bool { return word(e) == "tick listed" && e.N > 0 }).N)
	require.Equal(t, 1, a.until(1, func(e sim.Event) bool { return word(e) == "tick end ok" && e.N > 0 }).N)

	// All sessions that were opened were closed.
	open := map[string]bool{}
	for _, e := range w.events {
		if e.Kind == sim.EvSession {
			require.NotEqual(t, e.Op == sim.OpOpen, open[e.Session], "%v", e)
			open[e.Session] = e.Op == sim.OpOpen
		}
	}
	for session, is := range open {
		require.False(t, is, session)
	}

	// The ledger agrees.
	ledger, err := pg.ReadLedger(context.Background(), w.control, w.start)
	require.NoError(t, err)
	require.Len(t, ledger, 3)
	require.Equal(t, []sim.EventKind{sim.EvTerm, sim.EvEffect, sim.EvTerm}, []sim.EventKind{ledger[0].Kind, ledger[1].Kind, ledger[2].Kind})
	require.Equal(t, effect.Session, ledger[1].Session)
	require.Equal(t, lead.Token, ledger[0].Token)
}

func TestReferencePublishesOnTwoReplicas(t *testing.T) {
	t.Parallel()
	w := setup(t, Reference)
	a := w.boot(1, nil)
	a.until(1, is("lead"))
	b := w.boot(2, nil)
	b.until(1, is("attempt end busy"))
	for id := range 20 {
		w.load(id+1, 0)
	}
	a.until(10, is("effect end done"))
	w.terminate(a.until(1, is("lead")).Session)
	require.Eventually(t, func() bool { return w.value("select count(*) from data_rows where status = 'published'") == 20 }, patience, 10*time.Millisecond)
	require.EqualValues(t, 20, w.value("select count(*) from simrun.ledger where kind = 'effect'"))
}

func TestNaivePooled(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Reference, "naive-pooled"} {
		w := setup(t, name)
		w.behind(pgbouncer.Transaction)
		a, b := w.boot(1, nil), w.boot(2, nil)
		if name == Reference {
			a.until(1, is("probe end unstable"))
			b.until(1, is("probe end unstable"))
			require.Empty(t, w.holder())
			continue
		}
		a.until(1, is("lead"))
		b.until(1, is("lead"))
	}
}

func TestRunbookProbe(t *testing.T) {
	t.Parallel()
	w := setup(t, "runbook-probe")
	w.behind(pgbouncer.Transaction)
	a := w.boot(1, nil)
	a.until(1, is("probe end stable"))
	a.until(1, is("lead"))
}

func TestPidProbe(t *testing.T) {
	t.Parallel()
	w := setup(t, "pid-probe")
	w.behind(pgbouncer.Session)
	w.boot(1, nil).until(1, is("probe end unstable"))
	w = setup(t, "pid-probe")
	w.boot(1, nil).until(1, is("lead"))
}

// Its session has been ended, another one leads, and it believes for ever.
func TestNoHeartbeat(t *testing.T) {
	t.Parallel()
	w := setup(t, "no-heartbeat")
	a := w.boot(1, nil)
	lead := a.until(1, is("lead"))
	require.Zero(t, lead.Trusted)
	b := w.boot(2, nil)
	b.until(1, is("attempt end busy"))
	w.terminate(lead.Session)
	b.until(1, is("lead"))
	a.until(20, is("tick end ok"))
	require.NotContains(t, a.words(), "end")
}

// A later term has begun, and it publishes.
func TestNoFence(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Reference, "no-fence"} {
		w := setup(t, name)
		a := w.boot(1, func(env *sim.Env) { env.Intervals.Beat = sim.Duration(time.Hour) })
		a.until(1, is("lead"))
		w.exec("update lock_terms set term = term + 1")
		w.load(1, -1)
		if name == Reference {
			a.until(1, is("effect end refused"))
			continue
		}
		a.until(1, is("effect end done"))
		require.EqualValues(t, 1, w.value("select count(*) from simrun.ledger where kind = 'effect' and term = 1"))
	}
}

// Stepping down leaves the lock behind, and nobody can lead.
func TestLocksLeftBehind(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"unpinned": "not held", "lock-leak": "error"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, name)
			a := w.boot(1, nil)
			lead := a.until(1, is("lead"))
			b := w.boot(2, nil)
			b.until(1, is("attempt end busy"))
			a.commands <- sim.CommandStepDown
			a.until(1, is("unlock end "+answer))
			a.until(1, is("attempt end busy"))
			b.until(20, is("attempt end busy"))
			require.Equal(t, lead.Session, w.holder())
			a.end() // the process ends, and its sessions with it
			b.until(1, is("lead"))
		})
	}
}

func TestWorkOutlivesLock(t *testing.T) {
	t.Parallel()
	w := setup(t, "work-outlives-lock")
	a := w.boot(1, nil)
	a.until(1, is("lead"))
	a.commands <- sim.CommandStepDown
	a.until(1, is("idle"))
	words := a.words()
	require.Less(t, slices.Index(words, "unlock end unlocked"), slices.Index(words, "end"))
}

// The answer to its question is lost, and it leads.
func TestErrorIsLeader(t *testing.T) {
	t.Parallel()
	w := setup(t, "error-is-leader")
	a := w.boot(1, nil)
	a.until(1, is("lead"))
	link, through := w.link()
	b := w.boot(2, through)
	b.until(2, is("attempt end busy"))
	require.NotContains(t, b.words(), "lead")
	trap := link.Trap(netfault.After, "pg_try_advisory_lock", 1)
	<-trap.Done()
	trap.Cut(netfault.RST)
	require.Zero(t, b.until(1, is("lead")).Term)
	require.NotContains(t, a.words(), "end")
}

// It leads, and does not work.
func TestIdleLeader(t *testing.T) {
	t.Parallel()
	w := setup(t, "idle-leader")
	a := w.boot(1, func(env *sim.Env) { env.Intervals.Tick = sim.Duration(time.Hour) })
	a.until(3, is("beat ok"))
	a.commands <- sim.CommandStepDown
	a.until(1, is("idle"))
	w.mu.Lock()
	defer w.mu.Unlock()
	require.False(t, slices.ContainsFunc(w.events, func(e sim.Event) bool { return e.Kind == sim.EvTick }))
}

// The connection breaks, and the schedule is gone.
func TestCancelOnInfra(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]string{Reference: "published", "cancel-on-infra": "draft"} {
		w := setup(t, name)
		link, through := w.link()
		trap := link.Trap(netfault.Before, "simrun.ledger", 1)
		w.load(1, -1)
		w.boot(1, through)
		<-trap.Done()
		trap.Cut(netfault.RST)
		require.Eventually(t, func() bool { return w.value("select count(*) from data_rows where status <> 'scheduled'") == 1 }, patience, 10*time.Millisecond)
		require.EqualValues(t, 1, w.value("select count(*) from data_rows where status = $1", status), name)
	}
}

// Nothing goes wrong, and it changes its leader.
func TestRecycledLease(t *testing.T) {
	t.Parallel()
	w := setup(t, "recycled-lease")
	a := w.boot(1, nil)
	a.until(1, is("end"))
	a.until(2, is("lead"))
}

func TestKeyMismatch(t *testing.T) {
	t.Parallel()
	w := setup(t, "key-mismatch")
	a, b := w.boot(1, nil), w.boot(2, nil)
	require.NotEqual(t, a.until(1, is("lead")).Key, b.until(1, is("lead")).Key)
	require.Equal(t, a.until(1, is("lead")).Role, b.until(1, is("lead")).Role)
}

// The old version and the new one lead side by side.
func TestRekeyed(t *testing.T) {
	t.Parallel()
	w := setup(t, "rekeyed")
	old, deployed := w.boot(1, func(e *sim.Env) { e.Version = 1 }), w.boot(2, func(e *sim.Env) { e.Version = 2 })
	require.NotEqual(t, old.until(1, is("lead")).Key, deployed.until(1, is("lead")).Key)
}

// A holeConn is a connection whose packets get lost once it is deaf, in both directions.
type holeConn struct {
	net.Conn
	deaf, closed atomic.Bool
}

func (c *holeConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

func (c *holeConn) Write(b []byte) (int, error) {
	if c.deaf.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *holeConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// The heartbeat has no answer. The reference closes the socket before it does anything else; the twin has given up its lease, opens
// another session, and still holds the socket, and with it the lock.
func TestKeepsSocket(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Reference, "keeps-socket"} {
		w := setup(t, name)
		var lease *holeConn // the first connection
		a := w.boot(1, func(env *sim.Env) {
			env.Intervals.BeatDeadline = sim.Duration(3 * time.Second) // what is late on a busy machine shall not end the session before we do
			env.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil || lease != nil {
					return conn, err
				}
				lease = &holeConn{Conn: conn}
				return lease, nil
			}
		})
		first := a.until(1, is("lead"))
		lease.deaf.Store(true)
		a.until(1, is("end"))
		a.until(1, func(e sim.Event) bool {
			return e.Kind == sim.EvSession && e.Op == sim.OpOpen && e.Use == sim.UseLease && e.Session != first.Session
		})
		require.Equal(t, name == Reference, lease.closed.Load(), name)
	}
}

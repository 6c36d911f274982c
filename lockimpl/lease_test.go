package lockimpl_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

func isBusy(e lockimpl.Event) bool {
	return e.Kind == lockimpl.EventAttempt && e.Op == lockimpl.OpEnd && e.Answer == lockimpl.Busy
}

func TestOneOfTwoLeads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.start("a", nil, nil, nil)
	term := p.leads()
	require.EqualValues(t, 1, term.Number())
	require.EqualValues(t, 1840000001, term.Key())
	require.Positive(t, term.Token())
	require.Equal(t, "a/lease/1", term.Session())
	require.NoError(t, term.Err())
	q := b.start("b", nil, nil, nil)
	q.until(isBusy)
	beat := func(e lockimpl.Event) bool { return e.Kind == lockimpl.EventBeat }
	e := p.until(beat)
	require.Equal(t, lockimpl.BeatOK, e.Answer, e.Reason)
	require.NotEmpty(t, e.Trusted)
	require.Nil(t, q.lease.Term())
	require.Same(t, term, p.lease.Term())
	require.EqualValues(t, 1, b.holders())
	require.EqualValues(t, 1, b.value("select count(*) from lock_terms where holder = 'a' and term = 1 and token = $1", term.Token()))
}

func TestFailoverAfterTheSessionWasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// Between heartbeats, which are far apart: the pending read notices.
	p := b.start("a", func(c *lockimpl.Config) { c.Beat, c.Retry = time.Hour, time.Hour }, nil, nil)
	first := p.leads()
	q := b.start("b", nil, nil, nil)
	q.until(isBusy)
	b.terminate(first.Session())
	second := q.leads()
	require.Greater(t, second.Number(), first.Number())
	require.NotEqual(t, second.Token(), first.Token())
	require.Equal(t, lockimpl.ReasonConnection, p.ended(first))
	require.ErrorIs(t, first.Err(), lockimpl.ErrTermOver)
	p.until(func(e lockimpl.Event) bool {
		return e.Kind == lockimpl.EventSession && e.Op == lockimpl.OpClose && e.Use == lockimpl.UseLease
	})
	require.Equal(t, []string{"end", "idle", "session close"}, p.after("lead")[:3])
}

func TestStepDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	working := make(chan struct{})
	release := make(chan struct{})
	p := b.start("a", func(c *lockimpl.Config) { c.Beat, c.Retry = time.Hour, time.Hour }, nil, func(ctx context.Context, _ *lockimpl.Term) error {
		<-ctx.Done()
		close(working)
		<-release // it takes its time to stop
		return nil
	})
	first := p.leads()
	q := b.start("b", nil, nil, nil)
	q.until(isBusy)
	p.lease.StepDown()
	<-working
	require.EqualValues(t, 1, b.holders(), "the lock was given back before the work had stopped")
	close(release)
	second := q.leads()
	require.Greater(t, second.Number(), first.Number())
	require.Equal(t, lockimpl.ReasonStepDown, p.ended(first))
	p.until(func(e lockimpl.Event) bool {
		return e.Kind == lockimpl.EventSession && e.Op == lockimpl.OpClose && e.Use == lockimpl.UseLease
	})
	require.Equal(t, []string{"end", "idle", "unlock begin", "unlock end unlocked", "session close"}, p.after("lead"))
}

// Work that does not stop within its grace costs the session, at a step-down as at any other end: the lock is not unlocked under it.
func TestNoUnlockUnderRunningWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	p := b.start("a", func(c *lockimpl.Config) { c.Beat, c.Retry, c.StopGrace = time.Hour, time.Hour, 50*time.Millisecond }, nil,
		func(context.Context, *lockimpl.Term) error {
			<-release
			return nil
		})
	first := p.leads()
	p.lease.StepDown()
	p.until(func(e lockimpl.Event) bool {
		return e.Kind == lockimpl.EventSession && e.Op == lockimpl.OpClose && e.Use == lockimpl.UseLease
	})
	require.Equal(t, []string{"end", "session close"}, p.after("lead"))
	close(release)
	require.Equal(t, lockimpl.ReasonStepDown, p.ended(first))
	require.NotContains(t, p.words(), "unlock begin")
}

func TestStopGivesTheLockBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.start("a", nil, nil, nil)
	first := p.leads()
	p.end()
	require.Equal(t, lockimpl.ReasonStopped, p.ended(first))
	require.Zero(t, b.holders())
	require.Contains(t, p.words(), "unlock end unlocked")
}

func TestLeadershipEndsWhenTheWorkReturns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.start("a", nil, nil, func(context.Context, *lockimpl.Term) error { return errors.New("no more") })
	first := p.leads()
	require.Equal(t, lockimpl.ReasonReturned, p.ended(first))
	require.Greater(t, p.leads().Number(), first.Number(), "it competes again")
}

// Work that does not stop keeps neither the lock for ever nor gets company in its own process.
func TestWorkThatDoesNotStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	p := b.start("a", func(c *lockimpl.Config) { c.StopGrace = 50 * time.Millisecond }, nil, func(context.Context, *lockimpl.Term) error {
		<-release
		return nil
	})
	first := p.leads()
	b.terminate(first.Session())
	p.until(func(e lockimpl.Event) bool {
		return e.Kind == lockimpl.EventSession && e.Op == lockimpl.OpClose && e.Use == lockimpl.UseLease
	})
	require.Equal(t, "end", p.after("lead")[0])
	require.NotContains(t, p.words(), "idle")
	q := b.start("b", nil, nil, nil)
	require.Greater(t, q.leads().Number(), first.Number())
	require.Empty(t, p.terms, "it leads again beside its own work")
	close(release)
	p.ended(first)
	p.until(isBusy)
}

func TestBeatNoticesALaterTerm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.start("a", nil, nil, nil)
	first := p.leads()
	b.exec("update lock_terms set term = term + 1, token = token + 1")
	require.Equal(t, lockimpl.ReasonTermOver, p.ended(first))
	lost := p.until(func(e lockimpl.Event) bool { return e.Kind == lockimpl.EventBeat && e.Answer == lockimpl.BeatLost })
	require.Equal(t, lockimpl.ReasonTermOver, lost.Reason)
	require.EqualValues(t, 3, p.leads().Number(), "terms grow")
}

// A black hole: the heartbeat has no answer. The work stops first, then the socket is closed, and no driver keeps it open.
func TestBeatDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	link := b.link()
	p := b.start("a", func(c *lockimpl.Config) { c.BeatDeadline = 200 * time.Millisecond }, link, nil)
	first := p.leads()
	link.Set(netfault.Down, netfault.Hold)
	require.Equal(t, lockimpl.ReasonDeadline, p.ended(first))
	p.until(func(e lockimpl.Event) bool {
		return e.Kind == lockimpl.EventSession && e.Op == lockimpl.OpClose && e.Use == lockimpl.UseLease
	})
	require.Equal(t, []string{"beat lost", "end", "idle", "session close"}, p.after("lead")[:4])
	q := b.start("b", nil, nil, nil)
	require.Greater(t, q.leads().Number(), first.Number(), "the server was told that the session is over")
	link.Set(netfault.Both, netfault.Pass)
}

// The server frees the lock of a leader that is silent and connected, and the leader has given up before.
func TestTTL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	link := b.link()
	p := b.start("a", func(c *lockimpl.Config) {
		c.BeatDeadline, c.StopGrace, c.TTL = 100*time.Millisecond, 100*time.Millisecond, 500*time.Millisecond
	}, link, nil)
	first := p.leads()
	link.Set(netfault.Both, netfault.Hold) // its FIN does not get through
	p.ended(first)
	require.EqualValues(t, 1, b.holders(), "the server gave up first")
	q := b.start("b", nil, nil, nil)
	require.Greater(t, q.leads().Number(), first.Number())
	link.Set(netfault.Both, netfault.Pass)
}

// A pooler is reconfigured to transaction mode under a sitting leader: same socket, same backend, the lock still
// there. Only the repeated notification shows it.
func TestReloadToTransactionModeEndsTheTerm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pooler := b.pooler(pgbouncer.Options{Mode: pgbouncer.Session})
	p := b.start("a", func(c *lockimpl.Config) { c.BeatDeadline = 500 * time.Millisecond }, nil, nil)
	first := p.leads()
	p.until(func(e lockimpl.Event) bool { return e.Kind == lockimpl.EventBeat && e.Answer == lockimpl.BeatOK })
	require.NoError(t, pooler.Reload(context.Background(), pgbouncer.Options{Mode: pgbouncer.Transaction}))
	require.Contains(t, []string{lockimpl.ReasonNotHeard, lockimpl.ReasonOneBackend}, p.ended(first))
	p.until(func(e lockimpl.Event) bool { return e.Kind == lockimpl.EventProbe && e.Answer == lockimpl.Unstable })
	require.Empty(t, p.terms)
}

func TestTransactionPoolIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pooler(pgbouncer.Options{Mode: pgbouncer.Transaction})
	p := b.start("a", nil, nil, nil)
	p.until(func(e lockimpl.Event) bool { return e.Kind == lockimpl.EventProbe && e.Answer == lockimpl.Unstable })
	p.end()
	require.Empty(t, p.terms)
	require.NotContains(t, p.words(), "attempt begin")
	require.Zero(t, b.holders())
}

// The connection breaks on the way back: the lock was granted, and nobody knows. It must not stay taken.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"pg_try_advisory_lock", "insert into lock_terms", "pg_advisory_unlock"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			link := b.link()
			trap := link.Trap(netfault.After, statement, 1)
			p := b.start("a", nil, link, nil)
			if statement == "pg_advisory_unlock" {
				p.leads()
				p.lease.StepDown()
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			require.NoError(t, trap.Wait(ctx))
			trap.Cut(netfault.RST)
			term := p.leads()
			require.EqualValues(t, 1, b.holders())
			require.NoError(t, term.Err())
		})
	}
}

// Nobody hears of the standby's session until it is needed, unless it reads.
func TestStandbyReplacesABrokenSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.start("a", nil, nil, nil)
	p.leads()
	q := b.start("b", nil, nil, nil)
	q.until(isBusy)
	b.terminate("b/lease/1")
	q.until(func(e lockimpl.Event) bool { return isBusy(e) && e.Session != "b/lease/1" })
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := quick()
	good.Holder = "a"
	good.Connect = func(context.Context, lockimpl.Use) (*pgx.Conn, error) { return nil, errors.New("not here") }
	_, err := lockimpl.New(good)
	require.NoError(t, err)
	for name, change := range map[string]func(*lockimpl.Config){
		"no connect":   func(c *lockimpl.Config) { c.Connect = nil },
		"no holder":    func(c *lockimpl.Config) { c.Holder = "" },
		"unknown role": func(c *lockimpl.Config) { c.Role.Name = "pollr" },
		"another key":  func(c *lockimpl.Config) { c.Role.Key++ },
		"one key twice": func(c *lockimpl.Config) {
			c.Keys = lockimpl.DefaultKeys().With(lockimpl.Role{Name: "mine", Key: c.Role.Key})
		},
		"one role twice":    func(c *lockimpl.Config) { c.Keys = lockimpl.DefaultKeys().With(lockimpl.Role{Name: "poller", Key: 7}) },
		"a key without one": func(c *lockimpl.Config) { c.Keys = lockimpl.DefaultKeys().With(lockimpl.Role{Key: 7}) },
		"negative":          func(c *lockimpl.Config) { c.Retry = -1 },
		"jitter":            func(c *lockimpl.Config) { c.Jitter = 1.5 },
		"TTL below trust":   func(c *lockimpl.Config) { c.TTL = c.Beat + c.BeatDeadline },
		"TTL below retry":   func(c *lockimpl.Config) { c.TTL, c.Retry = time.Minute, time.Minute },
	} {
		c := good
		change(&c)
		_, err := lockimpl.New(c)
		require.Error(t, err, name)
	}
	own := good
	own.Role = lockimpl.Role{Name: "mine", Key: -7}
	own.Keys = lockimpl.DefaultKeys().With(own.Role)
	_, err = lockimpl.New(own)
	require.NoError(t, err)
}

// The keys are a deployment API: a change of one of these numbers makes two leaders during a rolling deploy.
func TestKeysNeverChange(t *testing.T) {
	t.Parallel()
	require.Equal(t, lockimpl.Keys{
		{Name: "poller", Key: 1840000001}, {Name: "scheduler", Key: 1840000002}, {Name: "reconciler", Key: 1840000003},
		{Name: "publish", Key: 982410937}, {Name: "plugin", Key: 712830541},
	}, lockimpl.DefaultKeys())
}

// link is a way to the database that can be broken.
func (b *bench) link() *netfault.Link {
	b.t.Helper()
	host, port := pgtest.Server(b.t).HostPort()
	l, err := netfault.New("lease", hostPort(host, port))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = l.Close() })
	return l
}

// pooler puts a PgBouncer between the processes and the database.
func (b *bench) pooler(o pgbouncer.Options) *pgbouncer.Pooler {
	b.t.Helper()
	s := pgtest.Server(b.t)
	run, err := proc.NewRun()
	require.NoError(b.t, err)
	o.Run, o.User = run, s.User()
	o.Host, o.Port = s.HostPort()
	p, err := pgbouncer.Start(context.Background(), o)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		require.NoError(b.t, p.Stop())
		require.NoError(b.t, run.Close())
	})
	b.dsn = "postgres://" + s.User() + "@" + hostPort(p.HostPort()) + "/" + b.database + "?sslmode=disable&default_query_exec_mode=exec"
	return p
}

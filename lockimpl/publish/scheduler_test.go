package publish_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/publish"
	"github.com/seed-aafb3a99/simrun/sim/netfault"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
)

const patience = 30 * time.Second

// A bench is a database with one process that leads and publishes in it.
type bench struct {
	t       *testing.T
	dsn     string
	control *pgx.Conn
	link    *netfault.Link // the way of the effects
	lease   *lockimpl.Lease
	stop    context.CancelFunc
	done    chan struct{}
	ticks   chan lockimpl.Event // the end of each tick
	grace   time.Duration       // StopGrace; 0: the default

	mu     sync.Mutex
	events []lockimpl.Event
}

func setup(t *testing.T) *bench {
	t.Helper()
	s := pgtest.Server(t)
	database := pgtest.DatabaseIn(t, s, lockimpl.SchemaSQL+publish.SchemaSQL+"CREATE TABLE published (id bigint, unit bigint, term bigint)")
	b := &bench{t: t, dsn: s.DSN(database), ticks: make(chan lockimpl.Event, 1000), done: make(chan struct{})}
	var err error
	b.control, err = s.Connect(context.Background(), database, "control")
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.control.Close(context.Background()) })
	host, port := s.HostPort()
	b.link, err = netfault.New("effects", net.JoinHostPort(host, fmt.Sprint(port)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.link.Close() })
	return b
}

func write(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
	_, err := tx.Exec(ctx, "insert into published values ($1, $2, $3)", row.ID, row.ScheduleNo, t.Number())
	return err
}

// start starts the process. change may change the scheduler's configuration.
func (b *bench) start(task publish.Task, change func(*publish.Config)) {
	b.t.Helper()
	connect := func(ctx context.Context, link *netfault.Link) (*pgx.Conn, error) {
		cfg, err := pgx.ParseConfig(b.dsn)
		if err != nil {
			return nil, err
		}
		if link != nil {
			cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, link.Addr())
			}
		}
		return pgx.ConnectConfig(ctx, cfg)
	}
	cfg := publish.Config{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return connect(ctx, b.link) },
		Task:    task, Tick: 20 * time.Millisecond, Deadline: 10 * time.Second,
		Observe: func(e lockimpl.Event) {
			b.record(e)
			if e.Kind == lockimpl.EventTick && e.Op == lockimpl.OpEnd {
				b.ticks <- e
			}
		},
	}
	if change != nil {
		change(&cfg)
	}
	scheduler, err := publish.New(cfg)
	require.NoError(b.t, err)
	b.lease, err = lockimpl.New(lockimpl.Config{
		Connect: func(ctx context.Context, _ lockimpl.Use) (*pgx.Conn, error) { return connect(ctx, nil) },
		Role:    lockimpl.Role{Name: "publish", Key: 982410937}, Holder: "test", Beat: time.Hour, TTL: -1, Retry: 20 * time.Millisecond,
		StopGrace: b.grace, Observe: b.record,
	})
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() {
		defer close(b.done)
		_ = b.lease.Run(ctx, scheduler.Work)
	}()
	b.t.Cleanup(func() {
		cancel()
		<-b.done
	})
}

func (b *bench) record(e lockimpl.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// words are the kinds of events so far, with op and answer.
func (b *bench) words() (words []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		words = append(words, strings.Join(strings.Fields(fmt.Sprint(e.Kind, " ", e.Op, " ", e.Answer)), " "))
	}
	return words
}

// tick waits for the end of a tick and returns it.
func (b *bench) tick() lockimpl.Event {
	b.t.Helper()
	select {
	case e := <-b.ticks:
		return e
	case <-time.After(patience):
		require.FailNow(b.t, "no tick")
		return lockimpl.Event{}
	}
}

// eventually ticks until the condition holds.
func (b *bench) eventually(condition func() bool, what string) {
	b.t.Helper()
	for late := time.Now().Add(patience); !condition(); b.tick() {
		if time.Now().After(late) {
			require.FailNow(b.t, what)
		}
	}
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.control.Exec(context.Background(), sql, args...)
	require.NoError(b.t, err)
}

func (b *bench) value(sql string, args ...any) (n int64) {
	b.t.Helper()
	require.NoError(b.t, b.control.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

func (b *bench) schedule(id int64, seconds float64) { b.exec(publish.ScheduleSQL, id, seconds) }

func (b *bench) status(id int64) (status string) {
	b.t.Helper()
	require.NoError(b.t, b.control.QueryRow(context.Background(), "select status from data_rows where id = $1", id).Scan(&status))
	return status
}

// effects are the outcomes of a row's effects.
func (b *bench) effects(id int64) (outcomes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == lockimpl.EventEffect && e.Op == lockimpl.OpEnd && e.Row == id {
			outcomes = append(outcomes, e.Outcome)
		}
	}
	return outcomes
}

// cancels are the rows whose schedule was reported cancelled.
func (b *bench) cancels() (rows []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == lockimpl.EventCancel {
			rows = append(rows, e.Row)
		}
	}
	return rows
}

func TestPublishesWhatIsDueOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for id := range int64(30) { // more than a batch
		b.schedule(id+1, -float64(id))
	}
	b.schedule(100, 3600)
	b.start(write, func(c *publish.Config) { c.Tick = time.Hour })
	first := b.tick() // at once after the election
	require.Equal(t, publish.TickOK, first.Outcome)
	require.Equal(t, 25, first.N)
	require.EqualValues(t, 25, b.value("select count(*) from data_rows where status = 'published' and published_at is not null"))
	require.EqualValues(t, 25, b.value("select count(*) from published where term = 1 and unit = 1"))
	require.EqualValues(t, 25, b.value("select count(*) from outbox where kind = 'published'"))
	require.EqualValues(t, 0, b.value("select count(*) from published where id < 6"), "the longest due come first")
	require.Equal(t, "scheduled", b.status(100))
	require.Equal(t, []string{publish.EffectDone}, b.effects(30))
}

func TestRescheduledIsAnotherUnit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(1, -1)
	b.start(write, nil)
	b.eventually(func() bool { return b.value("select count(*) from published") == 1 }, "not published")
	b.schedule(1, -1)
	b.eventually(func() bool { return b.value("select count(*) from published") == 2 }, "not published again")
	b.tick()
	require.EqualValues(t, 2, b.value("select count(distinct unit) from published"))
	require.EqualValues(t, 2, b.value("select count(*) from outbox"))
}

// What somebody else has in hand, or has just done, is no failure and is not waited for.
func TestLockedRowIsSkipped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(1, -10)
	b.schedule(2, -1)
	ctx := context.Background()
	tx, err := b.control.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "update data_rows set status = 'draft' where id = 1")
	require.NoError(t, err)
	b.start(write, nil)
	tick := b.tick()
	require.Equal(t, publish.TickOK, tick.Outcome)
	require.Equal(t, 1, tick.N)
	require.Equal(t, []string{publish.EffectRefused}, b.effects(1))
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, "published", b.status(2))
}

func TestTaskFailureCancels(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context, pgx.Tx) error{
		"its own error": func(context.Context, pgx.Tx) error { return errors.New("no such template") },
		"bad data": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "select 1/0")
			return err
		},
		"an error it made light of": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "select 1/0")
			return nil
		},
		"refused at commit": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into published values (-1, 1, 1)")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '23514'; end $$;
				create constraint trigger refuse after insert on published deferrable initially deferred for each row when (new.id < 0) execute function refuse()`)
			b.schedule(1, -1)
			b.schedule(2, -1)
			b.start(func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
				if row.ID == 1 {
					return fail(ctx, tx)
				}
				return write(ctx, tx, t, row)
			}, nil)
			b.tick()
			require.Equal(t, "draft", b.status(1))
			require.EqualValues(t, 2, b.value("select schedule_no from data_rows where id = 1"))
			require.Equal(t, "published", b.status(2))
			require.Equal(t, []int64{1}, b.cancels())
			b.tick()
			require.Len(t, b.effects(1), 1)
		})
	}
}

// The answer to COMMIT is lost, and it was executed: nobody may cancel now, nor publish again.
func TestLostAnswerToCommit(t *testing.T) {
	t.Parallel()
	for when, want := range map[netfault.When][]string{
		netfault.After:  {publish.EffectUnknown},
		netfault.Before: {publish.EffectUnknown, publish.EffectDone},
	} {
		b := setup(t)
		b.schedule(1, -1)
		trap := b.link.Trap(when, "lock_guard", 1)
		go func() {
			<-trap.Done()
			trap.Cut(netfault.RST)
		}()
		b.start(write, nil)
		require.Equal(t, publish.TickError, b.tick().Outcome)
		b.eventually(func() bool { return len(b.effects(1)) == len(want) }, "not tried again")
		b.tick()
		require.Equal(t, want, b.effects(1))
		require.Equal(t, "published", b.status(1))
		require.EqualValues(t, 1, b.value("select count(*) from published"))
	}
}

// A connection that breaks in the middle is replaced, and the row is left for the next tick.
func TestInfrastructureFailureLeavesTheRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(1, -2)
	b.schedule(2, -1)
	trap := b.link.Trap(netfault.Before, "into published", 1)
	go func() {
		<-trap.Done()
		trap.Cut(netfault.RST)
	}()
	b.start(write, nil)
	tick := b.tick()
	require.Equal(t, publish.TickError, tick.Outcome)
	require.Equal(t, 1, tick.N, "the other row is published all the same")
	b.eventually(func() bool { return b.status(1) == "published" }, "the row was lost")
	require.EqualValues(t, 2, b.value("select count(*) from published"))
	require.EqualValues(t, 2, b.value("select id from published order by ctid limit 1"), "row 1 came with a later tick, which may be over by now")
}

// Rows that fail as if by the infrastructure, again and again, do not fill every list, and in the end they are cancelled, once
// others have succeeded meanwhile.
func TestRowsThatAlwaysFail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for id := range int64(30) {
		b.schedule(id+1, -100)
	}
	b.start(func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
		if row.ID <= 30 {
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'busy' using errcode = '55P03'; end $$")
			return err
		}
		return write(ctx, tx, t, row)
	}, nil)
	b.tick()
	b.schedule(31, -1)
	b.eventually(func() bool { return b.status(31) == "published" }, "rows that fail keep the others out")
	b.eventually(func() bool { return b.value("select count(*) from data_rows where status = 'scheduled'") == 0 }, "they are tried for ever")
	require.EqualValues(t, 30, b.value("select count(*) from data_rows where status = 'draft'"))
}

// While nothing succeeds it is the infrastructure, however long it takes.
func TestNothingIsCancelledWhileNothingSucceeds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(1, -1)
	b.start(func(context.Context, pgx.Tx, *lockimpl.Term, publish.Row) error { return context.DeadlineExceeded }, func(c *publish.Config) { c.Tick = time.Millisecond })
	b.eventually(func() bool { return len(b.effects(1)) >= 7 }, "not tried")
	require.Equal(t, "scheduled", b.status(1))
}

func TestTermOverEndsTheTick(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(1, -2)
	b.schedule(2, -1)
	once := sync.Once{}
	b.start(func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
		once.Do(func() { b.exec("update lock_terms set term = term + 1") })
		return write(ctx, tx, t, row)
	}, nil)
	require.Equal(t, publish.TickTermOver, b.tick().Outcome)
	require.Empty(t, b.effects(2))
	b.eventually(func() bool { return b.value("select count(*) from published where term = 3") == 2 }, "the next term does not publish")
	require.EqualValues(t, 2, b.value("select count(*) from published"))
}

// A stop in the middle of a transaction lets it finish, and begins no other.
func TestStopFinishesWhatIsInHand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(1, -2)
	b.schedule(2, -1)
	b.start(func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
		b.stop()
		for b.lease.Term() != nil { // until the term is being ended
			time.Sleep(time.Millisecond)
		}
		return write(ctx, tx, t, row)
	}, func(c *publish.Config) { c.Finish = patience })
	<-b.done
	require.Equal(t, []string{publish.EffectDone}, b.effects(1))
	require.Empty(t, b.effects(2))
	require.Equal(t, "published", b.status(1))
	require.Equal(t, "scheduled", b.status(2))
}

// Unless it takes too long.
func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.schedule(1, -2)
	b.start(func(ctx context.Context, tx pgx.Tx, _ *lockimpl.Term, _ publish.Row) error {
		b.stop()
		_, err := tx.Exec(ctx, "select pg_sleep(60)")
		return err
	}, func(c *publish.Config) { c.Finish = 50 * time.Millisecond })
	<-b.done
	require.Equal(t, []string{publish.EffectRefused}, b.effects(1))
	require.Equal(t, "scheduled", b.status(1))
}

// A server that has gone silent does not keep the work from ending within the grace, whatever the work was at: not the goodbye to
// a transaction, nor the next one that would have to follow, nor a connection that is accepted and then left without a word.
func TestWorkEndsBesideASilentServer(t *testing.T) {
	t.Parallel()
	silent := func(b *bench) { b.link.Set(netfault.Both, netfault.Hold) }
	reached := make([]chan struct{}, 5)
	for i := range reached {
		reached[i] = make(chan struct{})
	}
	for i, c := range []struct {
		name string
		task func(b *bench, reached chan struct{}) publish.Task
	}{
		{"rollback", func(b *bench, reached chan struct{}) publish.Task {
			return func(ctx context.Context, _ pgx.Tx, t *lockimpl.Term, _ publish.Row) error {
				silent(b)
				close(reached)
				<-ctx.Done() // it heeds its context
				return ctx.Err()
			}
		}},
		{"rollback, then the cancel of the schedule", func(b *bench, reached chan struct{}) publish.Task {
			return func(ctx context.Context, _ pgx.Tx, t *lockimpl.Term, _ publish.Row) error {
				silent(b)
				close(reached)
				<-ctx.Done()
				return errors.New("the task failed")
			}
		}},
		{"statement", func(b *bench, reached chan struct{}) publish.Task {
			return func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
				silent(b)
				close(reached)
				return write(ctx, tx, t, row)
			}
		}},
		{"commit", func(b *bench, reached chan struct{}) publish.Task {
			return func(ctx context.Context, tx pgx.Tx, t *lockimpl.Term, row publish.Row) error {
				err := write(ctx, tx, t, row)
				silent(b)
				close(reached)
				return err
			}
		}},
		{"connect", func(b *bench, reached chan struct{}) publish.Task {
			once := sync.OnceFunc(func() { close(reached) })
			return func(ctx context.Context, tx pgx.Tx, _ *lockimpl.Term, _ publish.Row) error {
				silent(b)
				_ = tx.Conn().PgConn().Conn().Close()
				once()
				return errors.New("the connection is gone")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.grace = 2 * time.Second
			b.schedule(1, 0)
			b.schedule(2, 0)
			b.start(c.task(b, reached[i]), func(c *publish.Config) { c.Finish = 20 * time.Millisecond })
			<-reached[i]
			b.stop()
			<-b.done
			words := b.words()
			require.Contains(t, words, "unlock end unlocked", "%v", words)
			require.Less(t, slices.Index(words, "idle"), slices.Index(words, "unlock begin"), "the grace was over before the work was: %v", words)
			b.link.Set(netfault.Both, netfault.Pass)
		})
	}
}

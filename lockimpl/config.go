package lockimpl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
)

// A Config says how to compete for a role. Connect, Role and Holder must be set; a zero interval is the default.
type Config struct {
	// Connect opens a connection for a use, and gives up when ctx ends. A lease connection must not come from a pool, which may recycle
	// it; ConnectOnce opens one that keeps to itself. Use target_session_attrs=read-write where there are standby servers: on one of them
	// the lock is another lock.
	Connect func(ctx context.Context, use Use) (*pgx.Conn, error)
	Role    Role
	Keys    Keys   // nil: DefaultKeys
	Holder  string // names this process in lock_terms, for people

	Retry        time.Duration // start of an attempt to the start of the next; 5 s
	Jitter       float64       // share of Retry by which an attempt may be early, never late; 0.1, negative: none
	Beat         time.Duration // start of a heartbeat to the start of the next; 15 s
	BeatDeadline time.Duration // how long a heartbeat, or any statement on the lease, may take; 5 s
	ProbeWait    time.Duration // how long the probe waits for its notification; 3 s
	StopGrace    time.Duration // how long work may go on after its term has ended; 5 s

	// TTL is the server's idle_session_timeout on the lease session, and the only thing that frees the lock of a process that is
	// silent but connected (paused, cut off). It must be at least Beat + BeatDeadline + StopGrace, so that the leader gives up before
	// the server does, and more than Retry. 30 s; negative: off, and then a paused leader keeps the lock for as long as it is paused.
	TTL time.Duration
	// StatementTimeout is the server's statement_timeout on the lease session. BeatDeadline; negative: off.
	StatementTimeout time.Duration

	Rand    *rand.Rand       // chance: channel names, tokens, jitter; nil: the runtime's
	Now     func() time.Time // the local monotonic clock; nil: time.Now
	Observe func(Event)      // is told what happens, as it happens, by several goroutines, and must not block; nil: nobody is
	Log     *slog.Logger     // nil: nowhere

	// Steps is for the wrong twins of this module's own tests. nil: the reference.
	Steps *steps.Lease
}

func (c Config) withDefaults() Config {
	fill := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	fill(&c.Retry, 5*time.Second)
	fill(&c.Beat, 15*time.Second)
	fill(&c.BeatDeadline, 5*time.Second)
	fill(&c.ProbeWait, 3*time.Second)
	fill(&c.StopGrace, 5*time.Second)
	fill(&c.TTL, 30*time.Second)
	fill(&c.StatementTimeout, c.BeatDeadline)
	switch {
	case c.Jitter == 0:
		c.Jitter = 0.1
	case c.Jitter < 0:
		c.Jitter = 0
	}
	if c.Keys == nil {
		c.Keys = DefaultKeys()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Steps == nil {
		s := steps.Reference()
		c.Steps = &s
	}
	return c
}

// check is for a Config with its defaults.
func (c Config) check() error {
	if c.Connect == nil {
		return errors.New("lockimpl: Connect is missing")
	}
	if c.Holder == "" {
		return errors.New("lockimpl: Holder is missing")
	}
	if err := c.Keys.check(c.Role); err != nil {
		return fmt.Errorf("lockimpl: %w", err)
	}
	for _, v := range []struct {
		name string
		d    time.Duration
	}{{"Retry", c.Retry}, {"Beat", c.Beat}, {"BeatDeadline", c.BeatDeadline}, {"ProbeWait", c.ProbeWait}, {"StopGrace", c.StopGrace}} {
		if v.d < 0 {
			return fmt.Errorf("lockimpl: %s is negative: %s", v.name, v.d)
		}
	}
	if c.Jitter > 1 {
		return fmt.Errorf("lockimpl: Jitter is a share of Retry, and %g is more than all of it", c.Jitter)
	}
	if c.TTL > 0 {
		if least := c.Beat + c.BeatDeadline + c.StopGrace; c.TTL < least {
			return fmt.Errorf("lockimpl: TTL %s is less than Beat + BeatDeadline + StopGrace = %s: the server would free the lock under running work", c.TTL, least)
		}
		if c.TTL <= c.Retry {
			return fmt.Errorf("lockimpl: TTL %s is not above Retry %s: the server would end standbys between two attempts", c.TTL, c.Retry)
		}
	}
	return nil
}

func (c Config) uint64() uint64 {
	if c.Rand != nil {
		return c.Rand.Uint64()
	}
	return rand.Uint64()
}

// unit is drawn from [0,1).
func (c Config) unit() float64 { return float64(c.uint64()>>11) / (1 << 53) }

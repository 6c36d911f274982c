package lockimpl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/seed-aafb3a99/simrun/lockimpl/internal/session"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
)

// ErrTermOver is in the chain of an error that says that a term is over: nothing was done, and nothing will be in this term.
var ErrTermOver = errors.New("the term is over")

// A Term is one stretch of leadership. It is a value with an identity: whoever holds it can prove to the database, in the
// transaction of an effect, that nobody has led since (see Tx). It says nothing about the outside world: to a mail server or an
// HTTP service send Number along, and let it refuse a lower one than it has seen.
type Term struct {
	id      session.ID
	session string
	since   time.Time
	now     func() time.Time
	steps   steps.Tx

	trusted atomic.Int64 // nanoseconds after since
	over    func()       // is told, once or more, that an effect was refused
	ctx     context.Context
	end     context.CancelCauseFunc
}

// forever is a trust without limit.
const forever = math.MaxInt64

// Key is the key of the role's lock.
func (t *Term) Key() int64 { return t.id.Key }

// Number grows with each election of a role, not always by one.
func (t *Term) Number() int64 { return t.id.Term }

// Token is a random number that tells this term from any other of the same number.
func (t *Term) Token() int64 { return t.id.Token }

// Session is the application_name of the session that holds the lock.
func (t *Term) Session() string { return t.session }

// Since is when leadership began, on the local clock.
func (t *Term) Since() time.Time { return t.since }

// TrustedUntil is when the term ends by itself unless a further heartbeat succeeds, on the local clock: the start of the
// last good one, plus interval and deadline. Zero is never.
func (t *Term) TrustedUntil() time.Time {
	if d := t.trusted.Load(); d != forever {
		return t.since.Add(time.Duration(d))
	}
	return time.Time{}
}

func (t *Term) trust(until time.Time) {
	if until.IsZero() {
		t.trusted.Store(forever)
		return
	}
	t.trusted.Store(int64(until.Sub(t.since)))
}

// Err is nil while the term may be acted upon, as far as this process knows; otherwise it wraps ErrTermOver. A process
// that wakes up late finds out here, before it has heard of anything.
func (t *Term) Err() error {
	if t.ctx.Err() != nil {
		return fmt.Errorf("term %d: %w: %w", t.id.Term, ErrTermOver, context.Cause(t.ctx))
	}
	return t.stale()
}

// stale is about time only: work in hand may be finished in a term that is being ended in good order.
func (t *Term) stale() error {
	if d := t.trusted.Load(); d != forever && t.now().Sub(t.since) >= time.Duration(d) {
		return fmt.Errorf("term %d: %w: no heartbeat in time", t.id.Term, ErrTermOver)
	}
	return nil
}

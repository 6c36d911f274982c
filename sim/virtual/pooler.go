package virtual

import (
	"context"
	"errors"

	"github.com/seed-aafb3a99/simrun/sim"
)

type poolerState struct{}

func (p *poolerState) address() string { return "" }
func (p *poolerState) close() error    { return nil }

func (e *Engine) enterRoute(ctx context.Context, run sim.Run) error {
	if run.Route.Pooled() {
		return errors.New("not yet")
	}
	return nil
}
func (e *Engine) closePools()                            {}
func (e *Engine) pooledWaits() (waits, error)            { return nil, nil }
func (e *Engine) pooledPID(g *gate) int                  { return g.serverPID }
func (e *Engine) pooledExists(name string) (bool, error) { return false, nil }
func (w *world) awaitUnpinned()                          {}
func (w *world) refuses(*replica) bool                   { return false }

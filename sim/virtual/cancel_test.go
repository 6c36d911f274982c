package virtual_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/gen"
	"github.com/seed-aafb3a99/simrun/sim/pg/pgtest"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/seed-aafb3a99/simrun/sim/virtual"
)

// TestACancelledRunLeavesNothing breaks runs off in the middle, as shrinking does when its time is up. The next run of the same
// engine is as if nothing had been.
func TestACancelledRunLeavesNothing(t *testing.T) {
	e, err := virtual.New(t, virtual.Config{Server: pgtest.Server(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	for _, c := range []struct {
		route      sim.Route
		impl, name string
	}{
		{sim.PgBouncerTransaction, "runbook-probe", "pooler-transaction-idle"}, {sim.PgBouncerTransaction, "naive-pooled", "two-leaders-pooler"},
		{sim.PgBouncerSession, replica.Reference, "pooler-reload"}, {sim.Direct, replica.Reference, "stormy"}, {sim.PgBouncerStatement, replica.Reference, "pooler-transaction"},
	} {
		t.Run(string(c.route)+" "+c.impl, func(t *testing.T) {
			impl, ok := replica.ByName(c.impl)
			require.True(t, ok)
			sc, ok := scenarios.ByName(c.name)
			require.True(t, ok)
			run := sim.Run{Scenario: sc, Plan: gen.Plan(sc, 1, 0), Route: c.route, Impl: impl, Seed: 1}
			want, err := carry(t, e, run)
			require.NoError(t, err)
			for i := range 3 {
				rec, err := sim.NewRecorder(&bytes.Buffer{}, e.Header(run))
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(15+160*i)*time.Millisecond)
				err = e.Run(ctx, run, rec)
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					require.NoError(t, err)
				}
				again, err := carry(t, e, run)
				require.NoError(t, err)
				same(t, want, again)
			}
		})
	}
}

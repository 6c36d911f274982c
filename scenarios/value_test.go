package scenarios

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

func TestCheckTakesWhatFilesMaySay(t *testing.T) {
	t.Parallel()
	for _, s := range All() {
		require.NoError(t, Check(s), s.Name)
		require.NoError(t, Check(Resolve(s)), "%s, resolved", s.Name)
	}
	s, err := Parse("everything.yaml", []byte(everything))
	require.NoError(t, err)
	require.NoError(t, Check(*s))
}

func TestCheckNamesTheField(t *testing.T) {
	t.Parallel()
	second := sim.Duration(time.Second)
	window := sim.Range{From: 10 * second, To: 20 * second}
	for _, c := range []struct {
		change func(*sim.Scenario)
		want   string
	}{
		{func(s *sim.Scenario) { s.Invariants = []string{"one-leadr"} }, `invariants[0]: unknown invariant "one-leadr" (did you mean "one-leader"?)`},
		{func(s *sim.Scenario) { s.Invariants = nil }, "invariants is missing"},
		{func(s *sim.Scenario) { s.Routes = []sim.Route{"pgbouncer-transactions"} }, `routes[0]: unknown route "pgbouncer-transactions" (did you mean "pgbouncer-transaction"?)`},
		{func(s *sim.Scenario) { s.Replicas = 33 }, "replicas must be from 1 to 32, not 33"},
		{func(s *sim.Scenario) { s.Replicas = -1 }, "replicas must be from 1 to 32, not -1"},
		{func(s *sim.Scenario) { s.Duration = 0 }, "duration is missing"},
		{func(s *sim.Scenario) { s.Duration = -second }, "duration must be more than 0 and at most 24h, not -1s"},
		{func(s *sim.Scenario) {
			s.Faults = []sim.FaultSpec{{Kind: "disconect", Target: "leader", Window: window}}
		}, `faults[0].kind: unknown fault "disconect" (did you mean "disconnect"?)`},
		{func(s *sim.Scenario) {
			s.Faults = []sim.FaultSpec{{Kind: sim.Disconnect, Target: "follower", Window: window}}
		}, `faults[0].target: unknown target "follower" (known: leader, standby, all, a replica's number)`},
		{func(s *sim.Scenario) { s.Faults = []sim.FaultSpec{{Kind: sim.Disconnect, Target: "3", Window: window}} }, "faults[0].target: there is no replica 3; they are numbered from 1 to 2"},
		{func(s *sim.Scenario) {
			s.Faults = []sim.FaultSpec{{Kind: sim.Disconnect, Target: "1", Window: sim.Range{From: second}}}
		}, `faults[0].window: window: "1s..0s" is not a range`},
		{func(s *sim.Scenario) {
			s.Faults = []sim.FaultSpec{{Kind: sim.Disconnect, Target: "1", Window: sim.Range{To: 200 * second}}}
		}, "faults[0].window: the window reaches 3m20s, but the run ends at 1m"},
		{func(s *sim.Scenario) { s.Require = []sim.Require{{What: "election", AtLeast: 1}} }, `require[0].what: unknown metric "election" (did you mean "elections"?)`},
	} {
		s := sim.Scenario{Name: "TestOf/my lock", Replicas: 2, Duration: 60 * second, Routes: []sim.Route{sim.Direct}, Invariants: []string{"one-leader"}}
		require.NoError(t, Check(s))
		c.change(&s)
		require.ErrorContains(t, Check(s, Invariants("one-leader", "failover")), c.want)
	}
}

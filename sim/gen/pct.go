package gen

import (
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"pgregory.net/rapid"
)

// Probabilistic concurrency testing after Burckhardt, Kothari, Musuvathi and Nagarakatte (ASPLOS 2010): every replica gets a priority,
// the one with the highest runs whenever it can, and at d-1 points, drawn from the first k requests, a replica's priority falls below
// all others. A bug that needs d ordered events among n replicas is then hit with a probability of at least 1/(n*k^(d-1)) a plan.
//
// Here a priority is a delay: the first runs at once, each further one takes pctStep more each way, so that a replica gets
// through several statements while one of lower priority gets through one. The bound holds for orders within what the
// delays can turn round, and given the right faults at the right instants; it says nothing of orders that timers decide.
const (
	pctStep     = 15 * time.Millisecond
	pctRequests = 48 // k: the list of delays wraps round after it
	pctChanges  = 2  // at most: d is 3
)

// priorities draws the delays of n replicas.
func priorities(t *rapid.T, n int) [][]sim.Delay {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	order = rapid.Permutation(order).Draw(t, "priorities")
	type change struct{ replica, request int }
	changes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) change {
		return change{rapid.IntRange(0, n-1).Draw(t, "replica"), rapid.IntRange(0, pctRequests-1).Draw(t, "request")}
	}), 0, pctChanges).Draw(t, "changes")
	delays := make([][]sim.Delay, n)
	for rank, r := range order {
		for k := range pctRequests {
			level := rank
			for i, c := range changes {
				if c.replica == r && k >= c.request {
					level = n + i
				}
			}
			d := sim.Duration(time.Duration(level) * pctStep)
			delays[r] = append(delays[r], sim.Delay{Req: d, Resp: d})
		}
	}
	return delays
}

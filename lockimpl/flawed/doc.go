// Package flawed holds deliberately wrong variants of the reference lease and publish scheduler. Each is the reference with one
// step replaced by what somebody, somewhere, really shipped. They are the yardstick of a test harness: one that cannot
// catch them is worth nothing. Use them for nothing else.
package flawed

import (
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/lockimpl"
	"github.com/seed-aafb3a99/simrun/lockimpl/internal/steps"
	"github.com/seed-aafb3a99/simrun/lockimpl/publish"
)

// A Flaw is one wrong variant.
type Flaw struct {
	Name   string
	Models string // what it does wrong, and who was bitten by it
	Terms  bool   // it begins terms, so that lock_terms tells its elections
	Probes bool   // it looks at its session before it trusts it, however badly
	Driver bool   // its lease connections are the driver's own, which dial again to cancel (see lockimpl.ConnectOnce)

	make func(v *variant)
}

// A variant is what a flaw changes.
type variant struct {
	lease   *lockimpl.Config
	publish *publish.Config
	l       *steps.Lease   // the lease's
	p       *steps.Publish // the scheduler's
	replica int            // from 1
	version int            // from 1
}

// Break puts the flaw into the configurations of one process: of its number and of its program's version, both from 1.
func (f Flaw) Break(replica, version int, lease *lockimpl.Config, pub *publish.Config) {
	l := steps.Reference()
	v := &variant{lease: lease, publish: pub, l: &l, p: publish.Steps(), replica: replica, version: version}
	f.make(v)
	lease.Steps, pub.Steps = v.l, v.p
}

// All is every flaw, by name.
func All() []Flaw {
	all := slices.Clone(flaws)
	slices.SortFunc(all, func(a, b Flaw) int { return strings.Compare(a.Name, b.Name) })
	return all
}

var flaws = []Flaw{
	naivePooled, runbookProbe, noHeartbeat, noFence,
	unpinned, noGuard, selectOneHeartbeat, pidProbe, workOutlivesLock, errorIsLeader, lockLeak, idleLeader, cancelOnInfra,
	recycledLease, slowRetry, noDeadline, keepsSocket, keyMismatch, rekeyed,
	checkThenAct, forKeyShare, shareFirst, xactLock, pooledClose, leavesElection,
}

package scenarios

import (
	"embed"
	"fmt"
	"slices"
	"sync"

	"github.com/seed-aafb3a99/simrun/sim"
)

//go:embed *.yaml
var files embed.FS

// order is how the scenarios that come with simrun are listed: the plain ones first, each pooler one after the one it varies.
var order = []string{
	"steady", "kill-leader", "pause-leader-terminated", "disconnect-leader",
	"pooler-session", "pooler-transaction", "pooler-transaction-idle", "two-leaders-pooler",

	"restart-leader", "step-down", "step-down-in-beat", "cancelled-unlock", "rolling-deploy", "slow-task", "task-failure",
	"pause-leader", "pause-in-transaction", "pause-before-term", "terminate-leader", "idle-timeout", "recycled-session", "standby-loses-session",
	"black-hole-leader", "half-open-leader", "slow-network", "slow-heartbeat", "commit-reply-lost", "grant-reply-lost", "cancelled-statements", "cancelled-attempt",
	"postgres-restart", "connections-exhausted", "stranded-lock-pooler", "pooler-restart", "pooler-reload", "long-steady", "stormy",
}

// suites are named sets of scenarios. core is the first eight: what every change should pass.
var suites = map[string][]string{"core": order[:8]}

var builtin = sync.OnceValue(func() []sim.Scenario {
	list := make([]sim.Scenario, len(order))
	for i, name := range order {
		src, err := files.ReadFile(name + ".yaml")
		if err != nil {
			panic(err) // the files are part of the program, and a test reads every one
		}
		s, err := Parse(name+".yaml", src)
		if err != nil {
			panic(fmt.Sprintf("a scenario that comes with simrun is wrong:\n%v", err))
		}
		list[i] = *s
	}
	return list
})

// All is every scenario that comes with simrun, as written.
func All() []sim.Scenario { return slices.Clone(builtin()) }

// ByName finds a scenario that comes with simrun.
func ByName(name string) (sim.Scenario, bool) {
	i := slices.Index(order, name)
	if i < 0 {
		return sim.Scenario{}, false
	}
	return builtin()[i], true
}

// Names lists the scenarios that come with simrun.
func Names() []string { return slices.Clone(order) }

// Source is the YAML text of a scenario that comes with simrun.
func Source(name string) ([]byte, bool) {
	if !slices.Contains(order, name) {
		return nil, false
	}
	src, err := files.ReadFile(name + ".yaml")
	return src, err == nil
}

// Suites lists the suites: named sets of scenarios.
func Suites() []string {
	var list []string
	for name := range suites {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// Suite is the scenarios of a suite, in order; nil where there is no such suite.
func Suite(name string) (list []sim.Scenario) {
	for _, n := range suites[name] {
		if s, ok := ByName(n); ok {
			list = append(list, s)
		}
	}
	return list
}

package invariants

import (
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// An Info describes an invariant to people.
type Info struct {
	Name  string `json:"name"`
	Holds string `json:"holds"` // "holds when ...", without those two words
}

// A judge is an invariant and the function that examines it.
type judge struct {
	Info
	examine func(*world) finding
}

// All describes every invariant, in the order they are shown.
func All() []Info {
	var infos []Info
	for _, j := range judges {
		infos = append(infos, j.Info)
	}
	return infos
}

// Known reports whether an invariant of that name exists.
func Known(name string) bool {
	return slices.ContainsFunc(judges, func(j judge) bool { return j.Name == name })
}

// Check judges a history: one verdict per name, in the order given. It never panics, whatever the history holds; an unknown
// name, a history that cannot be read as one, and a judge that panics are inconclusive with a reason. The history is not changed.
func Check(names []string, h *sim.History) []sim.Verdict {
	w, err := reconstruct(h)
	var verdicts []sim.Verdict
	for _, name := range names {
		i := slices.IndexFunc(judges, func(j judge) bool { return j.Name == name })
		switch {
		case i < 0:
			verdicts = append(verdicts, sim.Verdict{Invariant: name, Reason: fmt.Sprintf("there is no invariant named %q", name)})
		case err != nil:
			verdicts = append(verdicts, sim.Verdict{Invariant: name, Reason: err.Error()})
		default:
			verdicts = append(verdicts, ask(judges[i], w))
		}
	}
	return verdicts
}

// ask runs one judge; a panic is a bug of the judge's and no verdict on the history.
func ask(j judge, w *world) (v sim.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			v = sim.Verdict{Invariant: j.Name, Reason: panicked("the judge of "+j.Name, p)}
		}
	}()
	f := j.examine(w)
	return f.verdict(j.Name, w.h)
}

func panicked(who string, p any) string {
	return fmt.Sprintf("%s failed, which is a bug of simrun: %v", who, p)
}

func reconstruct(h *sim.History) (w *world, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s", panicked("reading the history", p))
		}
	}()
	return newWorld(h), nil
}

package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// termsGrow: in commit order the terms of a key grow strictly, and no two share a token. Gaps are normal: the answer to a bump
// may have been lost.
func termsGrow(w *world) (f finding) {
	f.nothing = "no term was committed"
	if !w.h.Header.Terms {
		f.nothing = "this implementation keeps no terms"
	}
	last := map[int64]*bump{}
	tokens := map[string]*bump{}
	for _, b := range w.bumps {
		f.examined++
		if p := last[b.Key]; p != nil && b.Term <= p.Term {
			f.violated(sim.Violation{At: b.At, Replicas: replicas(b.replica(), p.replica()), Events: seqs(p.Event, b.Event),
				Text:  fmt.Sprintf("%s committed term %d of key %d at %s, after term %d had been committed at %s", b.name(), b.Term, b.Key, sec(b.At), p.Term, sec(p.At)),
				Cause: "The next term is read in one statement and written in another, or kept outside the database. Let one statement add to the row and return the result."})
		}
		last[b.Key] = b
		if b.Token == "" {
			continue
		}
		if p := tokens[b.Token]; p != nil {
			f.violated(sim.Violation{At: b.At, Replicas: replicas(b.replica(), p.replica()), Events: seqs(p.Event, b.Event),
				Text:  fmt.Sprintf("term %d of key %d, committed by %s at %s, has the token of term %d of key %d", b.Term, b.Key, b.name(), sec(b.At), p.Term, p.Key),
				Cause: "The token is not drawn afresh for each election, so that it cannot tell a term from another that was issued again after a failover of the server."})
		}
		tokens[b.Token] = b
	}
	return f
}

func (b *bump) replica() int {
	r, _, _, _ := sim.ParseSession(b.Session)
	return r
}

func (b *bump) name() string {
	if r, i, _, ok := sim.ParseSession(b.Session); ok {
		return sim.Who(r, i)
	}
	return "a session without a name of ours"
}

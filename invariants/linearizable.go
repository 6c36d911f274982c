package invariants

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-aafb3a99/simrun/sim"
)

// searchLimit bounds the search for an order of the operations on one key; over it the verdict is inconclusive. It is the only
// use of a clock in this package, and can only make a verdict weaker.
const searchLimit = 2 * time.Second

// lockLinearizable asks, per key, whether some order of the operations explains all answers, if the lock is a mutex that is
// let go when its session ends. An operation takes effect between its beginning and its answer. One whose answer was lost may
// have taken effect at any time since, or not. A session that was closed, cut off or killed lets go at any time since, or never:
// when the server notices is not known. "shared" and "moved" have no effect.
func lockLinearizable(w *world) (f finding) {
	f.nothing = "no operation on a lock was reported"
	for _, key := range w.keysAsked() {
		ops := w.operations(key)
		f.examined += len(ops)
		switch porcupine.CheckOperationsTimeout(mutex, ops, searchLimit) {
		case porcupine.Illegal:
			f.violated(w.unexplained(key, ops))
		case porcupine.Unknown:
			f.doubt("no order of the %d operations on key %d was found or ruled out in %s", len(ops), key, searchLimit)
		}
	}
	return f
}

// The operations of the model.
const (
	opTry    = "try"
	opUnlock = "unlock"
	opLetGo  = "let go" // of a session that has ended, or may have
)

// An input is an operation of a session; answer "" is a lost one.
type input struct {
	op, session, answer string
	event               *sim.Event
}

// A held is the state of the mutex: who holds it and how often; "" when it is free.
type held struct {
	session string
	n       int
}

var mutex = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{held{}} },
	Step: func(state, in, _ any) []any {
		var next []any
		for _, s := range in.(input).step(state.(held)) {
			next = append(next, s)
		}
		return next
	},
}).ToModel()

// step is the states that may follow; none: the answer is impossible.
func (in input) step(s held) []held {
	free, mine := s.session == "", s.session == in.session
	taken, left := held{in.session, s.n + 1}, held{s.session, s.n - 1}
	if left.n <= 0 {
		left = held{}
	}
	switch {
	case in.op == opLetGo && mine:
		return []held{s, {}}
	case in.op == opLetGo:
		return []held{s}
	case in.op == opTry && in.answer == sim.Acquired && (free || mine):
		return []held{taken}
	case in.op == opTry && in.answer == sim.Busy && !free && !mine:
		return []held{s}
	case in.op == opTry && in.answer == "" && (free || mine):
		return []held{s, taken}
	case in.op == opUnlock && in.answer == sim.Unlocked && mine:
		return []held{left}
	case in.op == opUnlock && in.answer == sim.NotHeld && !mine:
		return []held{s}
	case in.op == opUnlock && in.answer == "" && mine:
		return []held{s, left}
	case in.answer == "":
		return []held{s}
	}
	return nil
}

func (w *world) keysAsked() (keys []int64) {
	for _, a := range w.attempts {
		if !slices.Contains(keys, a.key) {
			keys = append(keys, a.key)
		}
	}
	slices.Sort(keys)
	return keys
}

const never = int64(math.MaxInt64)

// operations are the operations on one key, in the order of their beginnings.
func (w *world) operations(key int64) (ops []porcupine.Operation) {
	add := func(op, session string, begin, end *sim.Event, answer string) {
		o := porcupine.Operation{Input: input{op, session, answer, cmp.Or(end, begin)}, Call: int64(cmp.Or(begin, end).At), Return: never}
		if answer != "" {
			o.Return = max(o.Call, int64(end.At))
		}
		ops = append(ops, o)
	}
	taken := map[string]*attempt{} // the first time each session took the lock, or may have
	for _, a := range w.attempts {
		if a.key != key {
			continue
		}
		switch answer := a.answer(); answer {
		case sim.Acquired, sim.Busy:
			add(opTry, a.session, a.begin, a.end, answer)
		case "", sim.Failed:
			add(opTry, a.session, a.begin, a.end, "")
		default:
			continue
		}
		if a.answer() != sim.Busy && taken[a.session] == nil {
			taken[a.session] = a
		}
	}
	for _, u := range w.unlocks {
		if taken[u.session] == nil && !w.asked(key, u.session) {
			continue
		}
		switch {
		case u.end == nil || u.end.Answer == "" || u.end.Answer == sim.Failed:
			add(opUnlock, u.session, u.begin, u.end, "")
		case u.end.Answer == sim.Unlocked || u.end.Answer == sim.NotHeld:
			add(opUnlock, u.session, u.begin, u.end, u.end.Answer)
		}
	}
	for session, a := range taken {
		if at, ended := w.mayEnd(key, a); ended {
			ops = append(ops, porcupine.Operation{Input: input{opLetGo, session, "", cmp.Or(a.end, a.begin)}, Call: int64(at), Return: never})
		}
	}
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Input.(input).session, b.Input.(input).session))
	})
	for i := range ops {
		ops[i].ClientId = i
	}
	return ops
}

func (w *world) asked(key int64, session string) bool {
	return slices.ContainsFunc(w.attempts, func(a *attempt) bool { return a.key == key && a.session == session })
}

// mayEnd is the earliest instant from which the session that took the lock may have ended: a fault that ends sessions, the end of
// its leadership (a close is reported after it was done), its process's death, or the observer's word that it holds no more.
func (w *world) mayEnd(key int64, a *attempt) (at sim.Duration, ended bool) {
	from := cmp.Or(a.begin, a.end).At
	earliest := func(t sim.Duration) {
		if t = max(t, from); !ended || t < at {
			at, ended = t, true
		}
	}
	for _, f := range w.faults {
		if f.hits(a.replica) && (f.nature.session || f.nature.silent) && f.span.to >= from {
			earliest(f.span.from)
		}
	}
	if s := w.sessions[a.session]; s != nil && s.closed != nil {
		led := false
		for _, l := range w.leaderships {
			if l.session == a.session && l.over != nil {
				earliest(l.over.At)
				led = true
			}
		}
		if !led {
			earliest(from)
		}
	}
	if l := w.lives[a.who]; l != nil && l.down != nil {
		died, _ := l.died(w)
		earliest(died)
	}
	if w.route(a.session).Stable() {
		for _, h := range w.holds[key] {
			if h.session == a.session && h.until != nil {
				earliest(h.until.Earliest())
			}
		}
	}
	return at, ended
}

// unexplained names the first answer that no order explains: what was answered up to then is impossible, what was answered
// before it is not.
func (w *world) unexplained(key int64, ops []porcupine.Operation) sim.Violation {
	var returns []int64
	for _, o := range ops {
		if o.Return != never {
			returns = append(returns, o.Return)
		}
	}
	slices.Sort(returns)
	returns = slices.Compact(returns)
	i, _ := slices.BinarySearchFunc(returns, 0, func(t int64, _ int) int {
		if porcupine.CheckOperationsTimeout(mutex, until(ops, t), searchLimit/4) == porcupine.Illegal {
			return 1
		}
		return -1
	})
	i = min(i, len(returns)-1)
	var culprit porcupine.Operation
	for _, o := range ops {
		if o.Return == returns[i] {
			culprit = o
		}
	}
	in := culprit.Input.(input)
	v := sim.Violation{At: in.event.At, Replicas: replicas(in.event.Replica), Events: seqs(in.event), Cause: causeShared}
	v.Text = fmt.Sprintf("%s was told %q by its %s of key %d at %s, which no order of the operations explains", in.event.Who(), in.answer, in.op, key, sec(in.event.At))
	if h := holderBefore(ops, culprit); h != nil && h.session != in.session {
		v.Text += fmt.Sprintf(": %s had acquired the key at %s and could not have let it go", h.event.Who(), sec(h.event.At))
		v.Replicas = replicas(append(v.Replicas, h.event.Replica)...)
		v.Events = append(seqs(h.event), v.Events...)
	}
	if w.route(in.session).Stable() {
		v.Cause = "A lock that two sessions hold at once, or that is let go by one that does not hold it: two servers, two databases, or an answer that was invented."
	}
	return v
}

// until is what was known at an instant: an operation without its answer may end either way.
func until(ops []porcupine.Operation, t int64) (known []porcupine.Operation) {
	for _, o := range ops {
		if o.Call > t {
			continue
		}
		if o.Return > t {
			in := o.Input.(input)
			in.answer = ""
			o.Input, o.Return = in, never
		}
		known = append(known, o)
	}
	return known
}

// holderBefore is the last other that was told that it has the lock before the operation was answered.
func holderBefore(ops []porcupine.Operation, o porcupine.Operation) (last *input) {
	for _, p := range ops {
		in := p.Input.(input)
		if in.op == opTry && in.answer == sim.Acquired && p.Return <= o.Return && p.ClientId != o.ClientId {
			last = &in
		}
	}
	return last
}

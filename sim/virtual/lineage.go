package virtual

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Of goroutines of one replica that ask for something at one instant nobody knows which runs first. Here they get an order all the same: by where
// they are, then by what started them.

// An asker is a goroutine that waits for the stepper's answer.
type asker struct {
	rep  *replica
	id   int
	from string // where it is
}

// asking is the calling goroutine.
func (r *replica) asking() asker {
	a := asker{rep: r}
	a.id, a.from, _ = readTrace(string(debug.Stack()))
	return a
}

// sortAskers orders what goroutines ask for, by replica and then as above; what nobody waits for (no asker) stays in its order before.
func sortAskers[T any](in []T, by func(T) *asker) {
	var all map[int]goroutine
	lines := map[*asker][]ancestor{}
	line := func(a *asker) []ancestor {
		if all == nil {
			all = goroutines()
		}
		if lines[a] == nil {
			lines[a] = lineage(all, a.id)
		}
		return lines[a]
	}
	slices.SortStableFunc(in, func(x, y T) int {
		a, b := by(x), by(y)
		if a == nil || b == nil {
			return cmp.Compare(btoi(a != nil), btoi(b != nil))
		}
		if c := cmp.Or(cmp.Compare(a.rep.num, b.rep.num), cmp.Compare(a.rep.inc, b.rep.inc), cmp.Compare(a.from, b.from)); c != 0 {
			return c
		}
		return byLineage(line(a), line(b))
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A goroutine is where one is, and who started it.
type goroutine struct {
	where  string // the functions and lines that led there, without addresses
	parent int
}

// allStacks is the runtime's text about each goroutine. Everything else stands still meanwhile, so that it is for ties and for what went wrong.
func allStacks() []string {
	for buf := make([]byte, 1<<18); ; buf = make([]byte, 2*len(buf)) {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return strings.Split(string(buf[:n]), "\n\n")
		}
	}
}

// goroutines are all there are, by number.
func goroutines() map[int]goroutine {
	all := map[int]goroutine{}
	for _, text := range allStacks() {
		id, where, parent := readTrace(text)
		all[id] = goroutine{where, parent}
	}
	return all
}

// readTrace reads the runtime's text about one goroutine: its number, where it is, and the number of the one that started it (0 when none is
// named). Addresses are left out, and folders, which differ from one checkout to the next.
func readTrace(text string) (id int, where string, parent int) {
	_, rest, _ := strings.Cut(text, "\n")
	id = goroutineID(text)
	var b strings.Builder
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if place, ok := strings.CutPrefix(line, "\t"); ok {
			place, _, _ = strings.Cut(place[strings.LastIndexByte(place, '/')+1:], " +")
			b.WriteString(place)
			b.WriteByte('\n')
			continue
		}
		f, by, started := strings.Cut(strings.TrimPrefix(line, "created by "), " in goroutine ")
		if started {
			parent = leadingNumber(by)
		}
		if args := strings.LastIndexByte(f, '('); args > 0 && strings.HasSuffix(f, ")") {
			f = f[:args]
		}
		b.WriteString(f)
		b.WriteByte(' ')
	}
	return id, b.String(), parent
}

// goroutineID is the number in a stack's first line.
func goroutineID(stack string) int { return leadingNumber(strings.TrimPrefix(stack, "goroutine ")) }

// leadingNumber is the one that s begins with.
func leadingNumber(s string) int {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(s)
	}
	n, _ := strconv.Atoi(s[:end])
	return n
}

// An ancestor is one of those that a goroutine descends from, itself included.
type ancestor struct {
	where string
	id    int
}

// lineage is the line of a goroutine's ancestors, as far as they are still there, the oldest first.
func lineage(all map[int]goroutine, id int) []ancestor {
	var line []ancestor
	for id != 0 && len(line) < 100 {
		g, there := all[id]
		line = append(line, ancestor{g.where, id})
		if !there {
			break
		}
		id = g.parent
	}
	slices.Reverse(line)
	return line
}

// byLineage orders goroutines whose own functions are the same by what the first ancestors that they do not share are doing, and by when
// those were started: on one processor (simrun's workers have one) goroutines are numbered upwards, on several nearly always. Which of them runs
// first is the runtime's choice, and must not matter.
func byLineage(a, b []ancestor) int {
	return slices.CompareFunc(a, b, func(a, b ancestor) int { return cmp.Or(cmp.Compare(a.where, b.where), cmp.Compare(a.id, b.id)) })
}

// A naming is a session that is to have a number before it is dialled: a pool may dial several in one instant, and which goroutine has which of
// them must not be the runtime's choice.
type naming struct {
	asker
	use    string
	number chan int
}

// nextSession is env.NextSession. It returns when everybody else has come to rest.
func (r *replica) nextSession(use string) int {
	n := &naming{asker: r.asking(), use: use, number: make(chan int, 1)}
	r.w.mu.Lock()
	r.w.namings = append(r.w.namings, n)
	r.w.mu.Unlock()
	r.w.poke()
	return <-n.number
}

// nameSessions gives sessions their numbers, and reports whether any wanted one.
func (w *world) nameSessions() bool {
	w.mu.Lock()
	in := w.namings
	w.namings = nil
	w.mu.Unlock()
	if len(in) > 1 {
		sortAskers(in, func(n *naming) *asker { return &n.asker })
	}
	for _, n := range in {
		n.rep.sessions[n.use]++
		n.number <- n.rep.sessions[n.use]
	}
	return len(in) > 0
}

package gen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
	"pgregory.net/rapid"
)

// A program is what each of several sessions does, step by step: the name of what a step touches, or "?".
type program [][]string

// runs carries a program out in every order that x asks for, and returns the orders seen to the end.
func (p program) runs(x *Explorer) (orders [][]string) {
	for x.Next() {
		at := make([]int, len(p))
		var order []string
		for !x.Redundant() {
			var next []sim.Step
			for r, steps := range p {
				if at[r] < len(steps) {
					s := sim.Step{Replica: r + 1, Session: fmt.Sprint(r + 1)}
					if steps[at[r]] != "-" {
						s.Touches = []string{steps[at[r]]}
					}
					s.Unknown = steps[at[r]] == "?"
					next = append(next, s)
				}
			}
			if len(next) == 0 {
				break
			}
			s := next[x.Choose(next)]
			if x.Redundant() {
				break
			}
			order = append(order, fmt.Sprintf("%d.%d", s.Replica, at[s.Replica-1]))
			at[s.Replica-1]++
		}
		if !x.Redundant() {
			orders = append(orders, order)
		}
	}
	return orders
}

// class names the equivalence class of an order: for each pair of dependent steps, which came first.
func (p program) class(order []string) string {
	var pairs []string
	for i, a := range order {
		for _, b := range order[i+1:] {
			var ra, ia, rb, ib int
			fmt.Sscanf(a, "%d.%d", &ra, &ia)
			fmt.Sscanf(b, "%d.%d", &rb, &ib)
			if ta, tb := p[ra-1][ia], p[rb-1][ib]; ra != rb && ta != "-" && tb != "-" && (ta == tb || ta == "?" || tb == "?") {
				pairs = append(pairs, a+"<"+b)
			}
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, " ")
}

func classes(p program, orders [][]string) map[string]int {
	out := map[string]int{}
	for _, o := range orders {
		out[p.class(o)]++
	}
	return out
}

func TestEveryOrderOfDependentSteps(t *testing.T) {
	t.Parallel()
	p := program{{"?", "?"}, {"?", "?"}, {"?", "?"}}
	x := NewExplorer(sim.Plan{}, 100)
	require.Len(t, classes(p, p.runs(x)), 90) // 6! / (2! 2! 2!)
	require.Equal(t, 90, x.Runs)
	require.Zero(t, x.Skipped)
	require.False(t, x.Bounded)
	require.NoError(t, x.Err())
}

func TestOneOrderOfIndependentSteps(t *testing.T) {
	t.Parallel()
	p := program{{"a", "a", "a"}, {"b", "b"}, {"c"}}
	require.Len(t, p.runs(NewExplorer(sim.Plan{}, 100)), 1)
	p = program{{"-", "a"}, {"-", "a"}, {"-"}}
	x := NewExplorer(sim.Plan{}, 100)
	require.Len(t, p.runs(x), 2)
	require.Zero(t, x.Skipped, "no run was begun in vain")
}

// TestOneOrderOfEachClass compares, for programs of all kinds, with all orders there are: none is missing, none comes twice.
func TestOneOrderOfEachClass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := program(rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "-", "?"}), 1, 3), 2, 3).Draw(t, "program"))
		blind := make(program, len(p))
		for i := range p {
			blind[i] = slices.Repeat([]string{"?"}, len(p[i]))
		}
		want := classes(p, blind.runs(NewExplorer(sim.Plan{}, 100)))
		got := classes(p, p.runs(NewExplorer(sim.Plan{}, 100)))
		for c, n := range got {
			if n != 1 || want[c] == 0 {
				t.Fatalf("class %q came %d times", c, n)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d classes of %d", len(got), len(want))
		}
	})
}

func TestTheBoundIsSaid(t *testing.T) {
	t.Parallel()
	p := program{{"?", "?", "?"}, {"?", "?", "?"}}
	x := NewExplorer(sim.Plan{}, 2)
	require.Len(t, p.runs(x), 4)
	require.True(t, x.Bounded)
}

func TestThePlanHoldsThePicks(t *testing.T) {
	t.Parallel()
	p := program{{"?", "?"}, {"?", "?"}}
	x := NewExplorer(sim.Plan{Delays: [][]sim.Delay{{{Req: 1}}}, Picks: []int{3}}, 100)
	var last sim.Plan
	for n := 1; x.Next(); n++ {
		require.Nil(t, x.Plan().Delays)
		for at := []int{0, 0}; ; {
			var next []sim.Step
			for r := range p {
				if at[r] < 2 {
					next = append(next, sim.Step{Replica: r + 1, Session: fmt.Sprint(r), Unknown: true})
				}
			}
			if len(next) == 0 {
				break
			}
			at[next[x.Choose(next)].Replica-1]++
		}
		last = x.Plan()
	}
	require.Equal(t, []int{1, 1}, last.Picks) // the second session first, and then alone
}

func TestOtherStepsAreAnError(t *testing.T) {
	t.Parallel()
	x := NewExplorer(sim.Plan{}, 100)
	steps := func(names ...string) (out []sim.Step) {
		for _, n := range names {
			out = append(out, sim.Step{Session: n, Unknown: true})
		}
		return out
	}
	require.True(t, x.Next())
	x.Choose(steps("a", "b"))
	require.True(t, x.Next())
	x.Choose(steps("a", "c"))
	require.Error(t, x.Err())
	require.False(t, x.Next())
}

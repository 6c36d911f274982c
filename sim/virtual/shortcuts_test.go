package virtual

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-aafb3a99/simrun/sim"
)

// TestShortcutsChangeNothing carries worlds that wait for locks in all ways out twice: once with the answers the engine gives
// itself where it need not ask the server who waits for whom, and who holds the key; once with every question asked.
func TestShortcutsChangeNothing(t *testing.T) {
	outer, e := t, newEngine(t)
	steps := []string{
		"SELECT pg_advisory_lock(982410937)", "SELECT pg_advisory_unlock(982410937)", "SELECT pg_advisory_lock(8)", "SELECT pg_advisory_unlock(8)",
		"SELECT pg_advisory_lock($1::bigint)", "SELECT pg_advisory_unlock($1::bigint)", "SELECT pg_advisory_lock_shared(982410937)",
		"SELECT pg_advisory_unlock_shared(982410937)", "SELECT pg_try_advisory_lock(982410937)", "SELECT pg_advisory_xact_lock(982410937)",
		"SELECT pg_advisory_unlock_all()", "BEGIN", "COMMIT", "UPDATE counters SET n = n + 1 WHERE id = 1", "UPDATE counters SET n = n + 1, at = clock_timestamp() WHERE id = 2",
	}
	waited := 0
	compare := func(t interface {
		require.TestingT
		Fatalf(string, ...any)
	}, programs [][]int, picks []int) *sim.History {
		plan := sim.Plan{
			Horizon: 20 * sec, Phase: []sim.Duration{0, 2 * ms, 3 * ms}, Delays: [][]sim.Delay{{{Req: 1 * ms, Resp: 1 * ms}, {Req: 2 * ms, Resp: 1 * ms}}}, Picks: picks,
		}
		run := world1(len(programs), plan, script(func(ctx context.Context, env *sim.Env) error {
			c, err := dial(ctx, env, "lease")
			if err != nil {
				return err
			}
			defer c.Close(context.WithoutCancel(ctx))
			for _, i := range programs[env.Replica-1] {
				var args []any
				if strings.Contains(steps[i], "$1") {
					args = []any{int64(982410937)}
				}
				_, err := c.Exec(ctx, steps[i], args...) // a deadlock's victim goes on, in a transaction that has failed
				env.Emit(sim.Event{Kind: sim.EvNote, Text: fmt.Sprint(i, err == nil)})
				if ctx.Err() != nil {
					return nil
				}
			}
			return nil
		}, "CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL, at timestamptz); INSERT INTO counters VALUES (1, 0), (2, 0);"))
		run.Scenario.Workload = sim.Workload{}
		short, err := carry(outer, e, run)
		require.NoError(t, err)
		e.askAll = true
		long, err := carry(outer, e, run)
		e.askAll = false
		require.NoError(t, err)
		if a, b := text(short), text(long); a != b {
			t.Fatalf("the histories differ:\n%s\n--- with every question asked\n%s", a, b)
		}
		for _, ev := range short.Events {
			waited += len(ev.BlockedBy)
		}
		return short
	}

	// A transaction's lock that COMMIT passes on; a lock that two share; a cycle, which the one who closes it pays for.
	h := compare(t, [][]int{{5, 4}, {11, 9, 2, 12, 10}}, nil)
	require.Contains(t, text(h), "0.016 r0 held | r1/1/lease/1")
	compare(t, [][]int{{6, 7}, {6, 6, 7}, {6, 10}}, []int{1, 2, 1, 1, 2})
	h = compare(t, [][]int{{0, 8, 8, 8, 13}, {11, 13, 0, 12}}, nil)
	require.Contains(t, text(h), "40P01")

	rapid.Check(t, func(rt *rapid.T) {
		programs := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, len(steps)-1), 2, 8), 2, 4).Draw(rt, "programs")
		compare(rt, programs, rapid.SliceOfN(rapid.IntRange(0, 3), 0, 20).Draw(rt, "picks"))
	})
	require.Positive(t, waited)
}

// TestKeysOfARequest says when it is plain which advisory locks a request is about.
func TestKeysOfARequest(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]int64{
		"SELECT pg_advisory_lock(7)":                                       {7},
		"select pg_try_advisory_xact_lock( -7::bigint ) AS got":            {-7},
		"SELECT pg_advisory_lock(7); SELECT pg_advisory_unlock_shared(8);": {7, 8},
		"SELECT 1": {},
	} {
		s := statements{lib: library{}}
		s.request(message('Q', sql))
		require.True(t, s.keysKnown, sql)
		require.ElementsMatch(t, want, s.keys, sql)
		require.False(t, s.mayLock(9), sql)
	}
	for _, sql := range []string{
		"SELECT pg_advisory_lock(1, 2)", "SELECT pg_advisory_lock(hashtext('a'))", "SELECT pg_advisory_unlock_all()", "DISCARD ALL", "SELECT pg_advisory_lock(7), mine()",
		"SELECT pg_advisory_lock(id) FROM jobs", "SELECT pg_advisory_lock(7); EXECUTE lock_all", "UPDATE t SET n = 1 WHERE pg_try_advisory_lock(7)",
		"SELECT pg_advisory_lock(9223372036854775808)",
	} {
		s := statements{lib: library{}}
		s.request(message('Q', sql))
		require.True(t, s.mayLock(9), sql)
	}
	s := statements{lib: library{}}
	parse := append([]byte("one\x00SELECT pg_advisory_lock($1)\x00"), 0, 0)
	s.request(rawMessage('P', parse))
	s.request(bindExecute("one", []string{"7"}))
	require.Equal(t, []int64{7}, s.keys)
	require.False(t, s.mayLock(9))
	s.request(bindExecute("two", []string{"7"})) // prepared by SQL
	require.True(t, s.mayLock(9))
}

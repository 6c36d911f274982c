package virtual

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFootprints(t *testing.T) {
	t.Parallel()
	plain := map[string][]string{"jobs": {"table public.jobs"}, "public.jobs": {"table public.jobs"}, "terms": {"table public.terms", "table simrun.ledger"}}
	for sql, want := range map[string][]string{
		"select 1": nil, "BEGIN": nil, "begin isolation level read committed": nil, "COMMIT": nil, "rollback;": nil, "set statement_timeout = 5": nil,
		"SELECT n FROM jobs WHERE id = 1":                                                {"table public.jobs"},
		"insert into public.jobs (id, at) values (1, now()) on conflict (id) do nothing": {"table public.jobs"},
		"insert into terms as t (k) values (1)":                                          {"table public.terms", "table simrun.ledger"},
		"with due as materialized (select id from jobs for update skip locked) update jobs set n = 1 from due where jobs.id = due.id": {"table public.jobs"},
		"select pg_try_advisory_lock($1)":                       {advisoryLocks},
		"select exists (select from pg_locks where pid = 1)":    {advisoryLocks},
		"listen wake; select pg_backend_pid()":                  {"channel wake"},
		"select pg_notify('wake', 'x')":                         {"channel wake"},
		"notify wake":                                           {"channel wake"},
		"select pg_advisory_unlock(1); update jobs set n = n+1": {advisoryLocks, "table public.jobs"},
	} {
		require.Equal(t, footprint{touches: want}, footprintOf(analyse(sql).lower, plain), sql)
	}
	for _, sql := range []string{
		"select f(1)", "select * from other", "select * from jobs, other", "select * from jobs join other on true", "do $$ begin end $$", "call p()", "truncate jobs", "lock table jobs",
		"select pg_notify($1, '')", "listen \"Odd\"", "begin isolation level repeatable read", "set default_transaction_isolation = 'serializable'", "vacuum", "copy jobs from stdin",
		"select lock_guard(1, 2, 3); commit", "update jobs set n = nextval('s')", "select 'a;b'; select f(1)", "prepare transaction 'x'",
	} {
		f := footprintOf(analyse(sql).lower, plain)
		require.True(t, f.unknown, sql)
	}
}

// What is no SQL, or SQL that is not known, may touch anything.
func TestRequestsWithoutSQL(t *testing.T) {
	t.Parallel()
	bind := func(name string) []byte {
		return rawMessage('B', append(append([]byte{0}, name...), 0, 0, 0, 0, 0, 0, 0))
	}
	parse := rawMessage('P', []byte("s\x00SELECT 1\x00\x00\x00"))
	sync := rawMessage('S', nil)
	for name, c := range map[string]struct {
		requests [][]byte
		foreign  bool
	}{
		"a function call":        {[][]byte{functionCall(oidSetval, []byte{0, 0, 0, 1})}, true},
		"prepared by SQL":        {[][]byte{append(bind("p"), sync...)}, true},
		"copy data":              {[][]byte{rawMessage('d', []byte("1"))}, true},
		"prepared and executed":  {[][]byte{append(parse, sync...), append(bind("s"), sync...)}, false},
		"prepared":               {[][]byte{append(parse, sync...)}, false},
		"a query":                {[][]byte{message('Q', "SELECT 1")}, false},
		"nothing but an end":     {[][]byte{sync}, false},
		"a query and a function": {[][]byte{append(message('Q', "SELECT 1"), functionCall(oidSetval, []byte{0, 0, 0, 1})...)}, true},
	} {
		s := statements{lib: library{}}
		var info *sqlInfo
		for _, r := range c.requests {
			_, info = s.request(r)
		}
		require.Equal(t, c.foreign, info.foreign, name)
		require.Equal(t, c.foreign, info.holds && info.writes && info.releases, name)
	}
}

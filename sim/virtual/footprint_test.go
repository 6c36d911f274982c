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

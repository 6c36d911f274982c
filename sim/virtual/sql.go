package virtual

import (
	"regexp"
	"strconv"
	"strings"
)

// A sqlInfo is what the engine needs to know about a statement's text. It errs on the side of "may".
type sqlInfo struct {
	text      string // as the history shows it: white space folded
	lower     string
	notifies  bool // it may send a notification
	listens   bool // it may begin or end listening
	holds     bool // it may change who holds an advisory lock
	shares    bool // it may take one in shared mode, or end another session
	releases  bool // it may let another session go on, though no transaction ends with it
	writes    bool // it may write
	calls     bool // it calls functions whose effects are not known
	stops     bool // it may end another session, or a statement of one
	timers    bool // it may set a timeout of the server
	clock     bool // it may read the database's clock
	path      bool // it may change search_path, on which the virtual clock rests
	wall      bool // it reads a clock that cannot be redirected
	volatile  bool // its answer may hold pids, transaction ids and the like
	letsGo    bool // it lets go of locks and takes none, unless a deferred constraint does
	foreign   bool // it does more than its text says
	ends      bool // it ends a transaction, and nothing else
	locksOnly bool // it takes an advisory lock of the session's, and nothing else
	waited    bool // when it was last sent, it waited for a lock
	// What the numbers of the advisory locks it takes or lets go of are, where that is plain from the text.
	locks      []lockArgument
	locksKnown bool
}

// A lockArgument is a number, or the place of the parameter that holds it, from 1.
type lockArgument struct {
	number    int64
	parameter int
}

var (
	spaces   = regexp.MustCompile(`\s+`)
	calls    = regexp.MustCompile(`([a-z_][a-z0-9_.]*)\s*\(`)
	wallTime = regexp.MustCompile(`\b(current_timestamp|current_time|current_date|localtimestamp|localtime|timeofday)\b|pg_catalog\.(now|clock_timestamp)|'(now|today|tomorrow|yesterday)'`)
	mayTell  = regexp.MustCompile(`\b(insert|update|delete|merge|call|do|execute|commit|now|time|timestamp|date|refresh|copy|fetch)\b`)
	endWord  = regexp.MustCompile(`\bend\b`)
	caseWord = regexp.MustCompile(`\bcase\b`)
	dml      = regexp.MustCompile(`\b(insert|update|delete|merge|call|copy|do)\b`)
	unstable = regexp.MustCompile(`pid|xid|xact|oid|ctid|xmin|xmax|pg_stat|pg_locks|inet_|random|uuid|version|txid|pg_settings|lsn|advisory`)
	oneLock  = regexp.MustCompile(`\bpg_(?:try_)?advisory_(?:xact_)?(?:un)?lock(?:_shared)?\s*\(\s*(\$?)(-?\d{1,18})(?:\s*::\s*(?:bigint|int8))?\s*\)`)
	unlocks  = regexp.MustCompile(`^select pg_advisory_unlock(_shared|_all)?\s*\([^()]*\)( as [a-z0-9_]+)?\s*;?$`)
	takes    = regexp.MustCompile(`^select pg_(try_)?advisory_lock(_shared)?\s*\([^()]*\)( as [a-z0-9_]+)?\s*;?$`)
	endsTx   = regexp.MustCompile(`^(commit|end|rollback|abort)( work| transaction)?\s*;?$`)
	// timeless are functions that read no clock.
	timeless = map[string]bool{}
)

func init() {
	for _, f := range strings.Fields(`pg_try_advisory_lock pg_try_advisory_lock_shared pg_advisory_lock pg_advisory_unlock pg_advisory_unlock_all
		pg_advisory_xact_lock pg_try_advisory_xact_lock pg_advisory_lock_shared pg_advisory_unlock_shared pg_backend_pid pg_notify exists count coalesce
		any all in and or not as sum min max from where select set_config current_setting hashtext hashtextextended unnest array_agg greatest least
		values when then else case on join lateral over with materialized pg_listening_channels generate_series pg_blocking_pids`) {
		timeless[f] = true
	}
}

func analyse(sql string) *sqlInfo {
	i := &sqlInfo{text: strings.TrimSpace(spaces.ReplaceAllString(sql, " "))}
	i.lower = strings.ToLower(i.text)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(i.lower, p) {
				return true
			}
		}
		return false
	}
	i.notifies = has("notify", "execute")
	i.stops = has("pg_terminate", "pg_cancel", "execute")
	i.listens = has("listen", "discard")
	i.holds = has("advisory", "discard")
	i.shares = has("_shared", "pg_terminate", "execute", "call ", "do ")
	i.releases = has("unlock", "discard", "rollback", "commit", "abort", "end", "prepare transaction", "pg_terminate", "pg_cancel")
	i.writes = dml.MatchString(i.lower)
	i.timers = has("_timeout", "set_config", "reset", "discard", "execute")
	i.path = has("search_path")
	i.wall = wallTime.MatchString(i.lower)
	i.volatile = unstable.MatchString(i.lower)
	i.ends = endsTx.MatchString(i.lower)
	i.locksOnly = takes.MatchString(i.lower)
	i.letsGo = i.ends || unlocks.MatchString(i.lower)
	// An END that closes no CASE is a COMMIT.
	i.clock = mayTell.MatchString(i.lower) || len(endWord.FindAllString(i.lower, -1)) > len(caseWord.FindAllString(i.lower, -1))
	for _, c := range calls.FindAllStringSubmatch(i.lower, -1) {
		i.calls = i.calls || !timeless[c[1]]
	}
	i.clock = i.clock || i.calls
	// A function of somebody's, or a trigger, may lock whatever it likes.
	if found := oneLock.FindAllStringSubmatch(i.lower, -1); !i.clock && !has("discard", "execute") && len(found) == strings.Count(i.lower, "advisory_") {
		i.locksKnown = true
		for _, f := range found {
			n, err := strconv.ParseInt(f[2], 10, 64)
			switch i.locksKnown = i.locksKnown && err == nil; f[1] {
			case "$":
				i.locks = append(i.locks, lockArgument{parameter: int(n)})
			default:
				i.locks = append(i.locks, lockArgument{number: n})
			}
		}
	}
	return i
}

// anything is what is known of a request whose SQL is not: it may do all that matters. Nothing but SQL begins to listen, sets a
// timeout or the search path.
func anything() *sqlInfo {
	return &sqlInfo{notifies: true, calls: true, stops: true, holds: true, shares: true, releases: true, writes: true, clock: true, volatile: true, foreign: true}
}

// merge is what several statements in one request may do together.
func merge(a, b *sqlInfo) *sqlInfo {
	if a == nil || a == b {
		return b
	}
	return &sqlInfo{
		text: a.text + "; " + b.text, lower: a.lower + "; " + b.lower,
		notifies: a.notifies || b.notifies, listens: a.listens || b.listens, holds: a.holds || b.holds, shares: a.shares || b.shares,
		releases: a.releases || b.releases, timers: a.timers || b.timers, writes: a.writes || b.writes, clock: a.clock || b.clock, path: a.path || b.path,
		wall: a.wall || b.wall, volatile: a.volatile || b.volatile, foreign: a.foreign || b.foreign, calls: a.calls || b.calls, stops: a.stops || b.stops,
	}
}

// A library remembers what was found out about statements, since few texts are sent often.
type library map[string]*sqlInfo

func (l library) info(sql string) *sqlInfo {
	if i, ok := l[sql]; ok {
		return i
	}
	if len(l) > 10_000 {
		clear(l) // the code under test builds its texts with values in them
	}
	i := analyse(sql)
	l[sql] = i
	return i
}

package virtual

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/sim"
)

// What a step may touch in the database, for strategies that leave out interleavings which only change the order of steps
// that have nothing to do with each other. Unless everything about a statement is understood, it may touch anything:
// tables without triggers, rules, children or foreign keys are understood, and so are channels and advisory locks. What
// a transaction has touched, its end touches again, since others see it then.

var (
	mentions  = regexp.MustCompile(`\b(?:from|join|into|update|table|only)\s+((?:"[^"]*"|[a-z_][a-z0-9_$]*)(?:\.(?:"[^"]*"|[a-z_][a-z0-9_$]*))?)`)
	callNames = regexp.MustCompile(`\b(?:into\s+[a-z_][a-z0-9_.]*(?:\s+as\s+[a-z_][a-z0-9_]*)?|[a-z_][a-z0-9_.]*)\s*\(`)
	ctes      = regexp.MustCompile(`\b([a-z_][a-z0-9_]*)\s+as\s+(?:not\s+)?(?:materialized\s+)?\(`)
	commas    = regexp.MustCompile(`\bfrom\s+\S+(?:\s+(?:as\s+)?[a-z_][a-z0-9_]*)?\s*,`)
	listened  = regexp.MustCompile(`^(?:un)?listen\s+([a-z_][a-z0-9_]*)$`)
	notified  = regexp.MustCompile(`\bpg_notify\s*\(\s*'([^']*)'|^notify\s+([a-z_][a-z0-9_]*)`)
	setting   = regexp.MustCompile(`^(set|show|reset)\s`)
	snapshot  = regexp.MustCompile(`repeatable read|serializable`)
	harmless  = map[string]bool{}
)

func init() {
	for _, f := range strings.Fields(`now clock_timestamp statement_timestamp transaction_timestamp conflict limit interval row extract
		lower upper length nullif exists any using on returning set`) {
		harmless[f] = true
	}
}

// A footprint is what a statement may touch, by name. unknown: anything.
type footprint struct {
	touches []string
	unknown bool
}

func (f *footprint) add(o footprint) {
	f.unknown = f.unknown || o.unknown
	for _, t := range o.touches {
		if !slices.Contains(f.touches, t) {
			f.touches = append(f.touches, t)
		}
	}
}

const advisoryLocks = "advisory locks"

// footprintOf looks at a request's text, folded and in lower case. plain are the tables without consequences of their own, with
// what our triggers on them write to.
func footprintOf(lower string, plain map[string][]string) (f footprint) {
	for _, sql := range strings.Split(lower, ";") { // a semicolon inside a literal makes parts that are not understood
		sql = strings.TrimSpace(sql)
		switch {
		case sql == "" || strings.HasPrefix(sql, "begin") || strings.HasPrefix(sql, "start transaction") || endsTx.MatchString(sql):
			f.unknown = f.unknown || snapshot.MatchString(sql)
			continue
		case setting.MatchString(sql):
			f.unknown = f.unknown || snapshot.MatchString(sql)
			continue
		case listened.MatchString(sql):
			f.add(footprint{touches: []string{"channel " + listened.FindStringSubmatch(sql)[1]}})
			continue
		}
		verb, _, _ := strings.Cut(sql, " ")
		if !slices.Contains([]string{"select", "insert", "update", "delete", "with", "notify"}, verb) || commas.MatchString(sql) {
			return footprint{unknown: true}
		}
		if strings.Contains(sql, "notify") {
			m := notified.FindStringSubmatch(sql)
			if m == nil || strings.Count(sql, "notify") > 1 {
				return footprint{unknown: true}
			}
			f.add(footprint{touches: []string{"channel " + m[1] + m[2]}})
		}
		if strings.Contains(sql, "advisory") || strings.Contains(sql, "pg_locks") {
			f.add(footprint{touches: []string{advisoryLocks}})
		}
		temporary := map[string]bool{"pg_locks": true, "unnest": true, "generate_series": true}
		for _, m := range ctes.FindAllStringSubmatch(sql, -1) {
			temporary[m[1]] = true
		}
		for _, m := range mentions.FindAllStringSubmatch(sql, -1) {
			name := m[1]
			if temporary[name] || slices.Contains([]string{"set", "of", "skip", "nowait"}, name) { // the latter of FOR UPDATE and DO UPDATE
				continue
			}
			tables, known := plain[name]
			if !known {
				return footprint{unknown: true}
			}
			f.add(footprint{touches: tables})
		}
		for _, m := range callNames.FindAllString(sql, -1) {
			name, _, _ := strings.Cut(m, "(")
			if name = strings.TrimSpace(name); !harmless[name] && !timeless[name] && !strings.HasPrefix(name, "into ") {
				return footprint{unknown: true}
			}
		}
	}
	slices.Sort(f.touches)
	return f
}

// plainTables are the tables whose changes have no consequences but ours: under the names a statement may give them, what a
// change of them touches.
func (d *database) plainTables(ctx context.Context) (map[string][]string, error) {
	rows, err := d.owner.Query(ctx, `WITH trigger AS (SELECT t.tgrelid, f.pronamespace = 'simrun'::regnamespace AS ours FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid)
		SELECT n.nspname, c.relname, EXISTS (SELECT FROM trigger t WHERE t.tgrelid = c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'simclock') AND NOT c.relhasrules AND NOT c.relhassubclass
		AND NOT c.relispartition AND NOT c.relrowsecurity AND NOT EXISTS (SELECT FROM trigger t WHERE t.tgrelid = c.oid AND NOT ours)
		AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)`)
	if err != nil {
		return nil, fmt.Errorf("look for plain tables: %w", err)
	}
	type table struct {
		Schema, Name string
		Ours         bool
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		return nil, fmt.Errorf("look for plain tables: %w", err)
	}
	plain := map[string][]string{}
	for _, t := range tables {
		name := t.Schema + "." + t.Name
		touches := []string{"table " + name}
		if t.Ours && name != "simrun.ledger" {
			touches = append(touches, "table simrun.ledger")
		}
		plain[name] = touches
		if t.Schema == "public" {
			plain[t.Name] = touches
		}
	}
	return plain, nil
}

// step is what a strategy may know of something that arrives at the server.
func (w *world) step(g *gate, q *request) sim.Step {
	s := sim.Step{Replica: g.rep.num, Session: fmt.Sprintf("%d/%d/%d", g.rep.num, g.rep.inc, g.ord)}
	f := footprint{}
	f.add(g.footprint) // of its transaction, and of the channels it hears
	switch q.kind {
	case sendDial, sendStartup:
		f.unknown = f.unknown || w.crowded > 0
	case sendCancel:
		f.unknown = true
	case sendGoodbye, sendClose:
		if w.holdsLocks(g) {
			f.add(footprint{touches: []string{advisoryLocks}})
		}
	case sendRequest:
		f.add(w.footprint(g, q))
	}
	if s.Unknown = f.unknown || w.triggered; !s.Unknown {
		s.Touches = slices.Clone(f.touches)
	}
	return s
}

// holdsLocks reports whether the end of g's session lets go of advisory locks.
func (w *world) holdsLocks(g *gate) bool {
	if g.link == nil || !g.mayHold {
		return false
	}
	rows, err := w.eng.ask("holds", itoa(w.eng.pidOf(w.run.Route, g)))
	w.fail(err)
	return len(rows) == 1 && rows[0][0] == "t"
}

func (w *world) footprint(g *gate, q *request) footprint {
	if !w.pinned() {
		return footprint{unknown: true} // sessions share what belongs to the server's
	}
	if q.touches == nil {
		st := g.stmts // a copy: the request is really taken apart when it arrives
		st.named, st.keys = maps.Clone(st.named), nil
		_, info := st.request(q.data)
		f := footprintOf(info.lower, w.eng.db.plain)
		f.unknown = f.unknown || info.foreign
		q.touches = &f
	}
	return *q.touches
}

// touched notes what g's transaction has touched, until it ends; and what it listens to, for good.
func (w *world) touched(g *gate, q *request) {
	if w.run.Choose == nil {
		return
	}
	f := w.footprint(g, q)
	keep := footprint{}
	for _, t := range f.touches {
		if strings.HasPrefix(t, "channel ") && strings.Contains(q.info.lower, "listen") {
			keep.touches = append(keep.touches, t)
		}
	}
	if g.tx == 'I' {
		g.footprint = footprint{}
		g.footprint.add(g.hears)
	} else {
		g.footprint.add(f)
	}
	g.hears.add(keep)
	g.footprint.add(keep)
}

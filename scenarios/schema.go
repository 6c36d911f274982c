package scenarios

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Schema is the JSON Schema (draft 2020-12) of scenario files, for editors. It is derived from the types that the reader fills, and says
// of them what a schema can: what is a matter of sums, such as the quiet time at the end, only Parse knows. Whatever Parse accepts
// it accepts.
func Schema(opts ...Option) ([]byte, error) {
	var opt options
	for _, o := range opts {
		o(&opt)
	}
	b := &schemaBuilder{opt: opt}
	root := b.object(reflect.TypeFor[sim.Scenario](), "")
	if b.err != nil {
		return nil, b.err
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "A scenario of simrun"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return append(text, '\n'), nil
}

type schema = map[string]any

type schemaBuilder struct {
	opt options
	err error
}

// The forms of values that are written as text. A number without a unit is no duration, except 0.
const (
	durationForm = `[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0`
	amountForm   = `\+?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0`
)

// special is the schema of types that are not told by their kind.
func (b *schemaBuilder) special(t reflect.Type) (schema, bool) {
	switch t {
	case reflect.TypeFor[sim.Duration]():
		return schema{"anyOf": []schema{{"type": "string", "pattern": `^\s*(` + durationForm + `)\s*$`}, {"const": 0}}}, true
	case reflect.TypeFor[sim.Range]():
		return schema{"anyOf": []schema{{"type": "string", "pattern": `^\s*(` + amountForm + `)\s*(\.\.\s*(` + amountForm + `)\s*)?$`}, {"const": 0}}}, true
	case reflect.TypeFor[sim.IntRange]():
		return schema{"anyOf": []schema{{"type": "string", "pattern": `^\s*\+?\d+(\.\.\+?\d+)?\s*$`}, {"type": "integer", "minimum": 0}}}, true
	case reflect.TypeFor[sim.Route]():
		return schema{"enum": names(sim.Routes)}, true
	case reflect.TypeFor[sim.Metric]():
		return schema{"enum": names(sim.Metrics)}, true
	case reflect.TypeFor[sim.FaultKind]():
		return schema{"enum": faultNames()}, true
	case reflect.TypeFor[sim.Target]():
		return schema{"anyOf": []schema{
			{"enum": []sim.Target{sim.TargetLeader, sim.TargetStandby, sim.TargetAll}},
			{"type": "integer", "minimum": 1, "maximum": sim.MaxReplicas}, {"type": "string", "pattern": `^\+?0*[1-9]\d*$`},
		}}, true
	}
	return nil, false
}

// value is the schema of the field that is called path, without the numbers of list entries.
func (b *schemaBuilder) value(t reflect.Type, path string) schema {
	if s, ok := b.special(t); ok {
		return s
	}
	if path == "impl" { // a name, or a program with what belongs to it, as the reader takes them
		return schema{"anyOf": []schema{b.implementation(), b.object(reflect.TypeFor[sim.Program](), path)}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(t.Elem(), path)
	case reflect.Struct:
		return b.object(t, path)
	case reflect.Slice:
		return schema{"type": "array", "items": b.value(t.Elem(), path+"[]")}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Int:
		return schema{"type": "integer"}
	case reflect.Int64:
		return schema{"type": "integer", "minimum": math.MinInt64, "maximum": math.MaxInt64}
	case reflect.Bool:
		return schema{"type": "boolean"}
	}
	b.err = fmt.Errorf("write the schema: %s has a type that it does not know: %s", path, t)
	return nil
}

// object is the schema of a group of fields: the same fields that the reader knows, and no others.
func (b *schemaBuilder) object(t reflect.Type, path string) schema {
	properties := schema{}
	index, list := fieldsOf(t)
	for _, name := range list {
		at := join(path, name)
		p := b.value(t.Field(index[name]).Type, at)
		about, ok := fieldText[at]
		if !ok {
			b.err = fmt.Errorf("write the schema: nothing is said about the field %s", at)
			return nil
		}
		p["description"] = about
		for k, v := range limits[at] {
			p[k] = v
		}
		properties[name] = p
	}
	s := schema{"type": "object", "additionalProperties": false, "properties": properties}
	for k, v := range shapes[path] {
		s[k] = v
	}
	b.named(path, properties)
	if path == "faults[]" || path == "plan.faults[]" {
		s["allOf"] = kindRules(path == "faults[]")
	}
	return s
}

// named narrows names to those that are known.
func (b *schemaBuilder) named(path string, properties schema) {
	narrow := func(field, rest string, known []string, more ...schema) {
		p, ok := properties[field].(schema)
		if !ok || known == nil {
			return
		}
		target := p
		if rest == "[]" {
			target = p["items"].(schema)
		}
		delete(target, "type")
		target["anyOf"] = append([]schema{{"enum": known}}, more...)
	}
	switch path {
	case "":
		narrow("impls", "[]", b.opt.impls, command)
		narrow("invariants", "[]", b.opt.invariants)
	case "require[]", "expect[]":
		narrow("impl", "", b.opt.impls, command, schema{"const": "any"}, schema{"const": ""})
	}
	if path == "expect[]" {
		narrow("invariant", "", b.opt.invariants)
	}
}

var command = schema{"type": "string", "pattern": "^exec:[\\s\\S]"}

// implementation is the schema of an implementation's name.
func (b *schemaBuilder) implementation() schema {
	if b.opt.impls == nil {
		return schema{"type": "string"}
	}
	return schema{"anyOf": []schema{{"enum": b.opt.impls}, command}}
}

// kindRules say which faults are aimed at somebody, and which heal.
func kindRules(windows bool) (rules []schema) {
	var aimed, unaimed, healing, momentary []sim.FaultKind
	for _, f := range sim.Faults {
		if f.Targets {
			aimed = append(aimed, f.Kind)
		} else {
			unaimed = append(unaimed, f.Kind)
		}
		if f.Heals {
			healing = append(healing, f.Kind)
		} else {
			momentary = append(momentary, f.Kind)
		}
	}
	rule := func(kinds []sim.FaultKind, then schema) {
		rules = append(rules, schema{"if": schema{"properties": schema{"kind": schema{"enum": kinds}}, "required": []string{"kind"}}, "then": then})
	}
	rule(aimed, schema{"required": []string{"target"}})
	rule(unaimed, schema{"properties": schema{"target": schema{"const": ""}}})
	if windows {
		rule(healing, schema{"required": []string{"for"}})
		rule(momentary, schema{"properties": schema{"for": false}})
	}
	return rules
}

// limits are what the checker says of single fields.
var limits = map[string]schema{
	"name":                         {"pattern": kebab.String(), "maxLength": 64},
	"shows":                        {"pattern": `\S`},
	"replicas":                     {"minimum": 1, "maximum": sim.MaxReplicas},
	"routes":                       {"minItems": 1, "uniqueItems": true},
	"impls":                        {"uniqueItems": true},
	"invariants":                   {"minItems": 1, "uniqueItems": true},
	"pool.size":                    {"minimum": 0, "maximum": maxPool},
	"workload.rows":                {"minimum": 0, "maximum": maxRows},
	"faults[].weight":              {"minimum": 1, "maximum": 10},
	"faults[].before.pattern":      {"pattern": `\S`},
	"faults[].after.pattern":       {"pattern": `\S`},
	"plan.faults[].before.pattern": {"pattern": `\S`},
	"plan.faults[].after.pattern":  {"pattern": `\S`},
	"plan.faults[].before.nth":     {"minimum": 1},
	"plan.faults[].after.nth":      {"minimum": 1},
	"require[].at_least":           {"minimum": 1},
	"impl.exec":                    {"minItems": 1, "prefixItems": []schema{{"type": "string", "minLength": 1}}},
	"impl.keys":                    {"minItems": 1, "maxItems": maxKeys, "uniqueItems": true, "not": schema{"contains": schema{"const": 0}}},
	"impl.migrations":              {"pattern": `\S`},
	"impl.ledger":                  {"pattern": `\S`},
	"impl.load":                    {"allOf": []schema{{"pattern": `\$1`}, {"pattern": `\$2`}}},
	"plan.v":                       {"const": sim.PlanVersion},
	"plan.picks":                   {"items": schema{"type": "integer", "minimum": 0}},
}

// shapes are what the checker says of groups: what must be there, and what goes together.
var shapes = map[string]schema{
	"": {"required": []string{"name", "shows", "replicas", "routes", "duration", "invariants"},
		"not": schema{"required": []string{"impl", "impls"}, "properties": schema{"impl": schema{"not": schema{"const": ""}}, "impls": schema{"minItems": 1}}}},
	"faults[]": {"required": []string{"kind"},
		"anyOf": []schema{{"required": []string{"window"}}, {"required": []string{"before"}}, {"required": []string{"after"}}},
		"not":   schema{"required": []string{"before", "after"}}},
	"faults[].before":      {"required": []string{"pattern"}},
	"faults[].after":       {"required": []string{"pattern"}},
	"require[]":            {"required": []string{"what", "at_least"}},
	"expect[]":             {"required": []string{"invariant"}},
	"impl":                 {"required": []string{"exec"}},
	"plan":                 {"required": []string{"v", "horizon"}},
	"plan.faults[]":        {"required": []string{"kind"}, "not": schema{"required": []string{"before", "after"}}},
	"plan.faults[].before": {"required": []string{"pattern", "nth"}},
	"plan.faults[].after":  {"required": []string{"pattern", "nth"}},
}

// fieldText says what each field is, for an editor that shows it.
var fieldText = map[string]string{
	"name":           "The scenario's name, in small letters with hyphens. Results are told apart by it.",
	"shows":          "What the scenario shows, in one sentence.",
	"seed_document":  "The document in which the promise was made.",
	"promise":        "The promise that is checked.",
	"replicas":       "How many replicas run.",
	"phase":          "When each replica starts, drawn for each: 0s..5s. Default: within one retry interval.",
	"routes":         "The ways to Postgres that it is run over, each by itself.",
	"impl":           "The implementation that is run when none is named: reference, a flawed one of simrun list, exec:COMMAND, or a program with its tables and keys.",
	"impls":          "Several implementations, each run by itself.",
	"intervals":      "Timings of the implementation.",
	"pool":           "The PgBouncer of a pooled route.",
	"workload":       "What there is to do.",
	"faults":         "What may go wrong. A seed draws from it.",
	"duration":       "The whole run, with quiet time after the last fault: beat + beat_deadline + retry.",
	"belief_overlap": "How long two replicas may believe to lead, instead of what the fault in play makes unavoidable.",
	"invariants":     "What must hold.",
	"require":        "What must have happened for a pass to mean something.",
	"expect":         "The violations that the scenario is there to find. Finding them is the pass.",
	"plan":           "The first schedule, whatever the seed is. Written by simrun new --from.",
	"starts_at":      "The database's date at the start, as 2026-03-08T01:30:00-05:00. Virtual engine only.",

	"impl.exec":       "The program and its arguments; no shell reads them. A relative name is relative to this file's folder.",
	"impl.keys":       "The advisory locks that are its own: the first is handed to it, all are watched. Default: the key of the role publish.",
	"impl.migrations": "The SQL file that creates its tables, relative to this file's folder. Default: the tables of the reference.",
	"impl.load":       "SQL that adds one unit of work: $1 is its id, $2 the seconds until it is due.",
	"impl.ledger":     "A query over its tables that says what was committed.",

	"intervals.retry":         "From the start of one attempt of a standby to the next. Default: 5s.",
	"intervals.beat":          "Between heartbeats of a leader. Default: 15s.",
	"intervals.beat_deadline": "How long a heartbeat may take. Default: 5s.",
	"intervals.probe_wait":    "How long the session probe waits for its notification. Default: 3s.",
	"intervals.tick":          "From the start of one tick of the scheduler to the next. Default: 10s.",
	"intervals.ttl":           "The server ends a lease session that is silent for so long; negative: never. Default: 30s.",
	"intervals.stop_grace":    "How long work may go on after its term has ended. Default: 5s.",

	"pool.size":        "Server connections for each database. Default: 20.",
	"pool.round_robin": "Hand them out in turn, instead of the one used last.",
	"workload.rows":    "How many rows are to be published.",
	"workload.every":   "One falls due every so often.",

	"faults[].kind":           "What goes wrong; simrun list says what each kind does.",
	"faults[].target":         "Whom it hits: leader, standby, all, or a replica's number.",
	"faults[].weight":         "In how many of ten schedules it is drawn. Default: 10.",
	"faults[].count":          "How often in a schedule: 2, or 1..3. Default: 1.",
	"faults[].window":         "When: 10s..20s.",
	"faults[].for":            "How long until it heals: 5s..15s.",
	"faults[].before":         "Strike just before a statement, instead of at an instant.",
	"faults[].after":          "Strike just after a statement was executed, before its answer arrives.",
	"faults[].before.pattern": "A part of the statement's SQL.",
	"faults[].before.nth":     "Which of the statements, counted from the window's start: 1, or 1..3. Default: 1.",
	"faults[].after.pattern":  "A part of the statement's SQL.",
	"faults[].after.nth":      "Which of the statements, counted from the window's start: 1, or 1..3. Default: 1.",

	"require[].what":     "What is counted, over all schedules.",
	"require[].at_least": "How often it must have happened.",
	"require[].impl":     "Only with this implementation.",
	"require[].route":    "Only over this route.",
	"expect[].invariant": "The invariant that is violated.",
	"expect[].impl":      "By this implementation; any is the default.",
	"expect[].route":     "Over this route; default: all.",

	"plan.v":                       "The format of plans.",
	"plan.faults":                  "The faults, in order of time.",
	"plan.delays":                  "For each replica, the delays of its requests and answers, in turn and again from the start.",
	"plan.picks":                   "Which of several steps that are due at one instant goes first.",
	"plan.phase":                   "When each replica starts.",
	"plan.horizon":                 "The end of the run: the scenario's duration.",
	"plan.faults[].kind":           "What goes wrong.",
	"plan.faults[].target":         "Whom it hits.",
	"plan.faults[].at":             "When; with before or after, not earlier.",
	"plan.faults[].before":         "Strike just before a statement.",
	"plan.faults[].after":          "Strike just after a statement was executed.",
	"plan.faults[].for":            "How long until it heals.",
	"plan.faults[].before.pattern": "A part of the statement's SQL.",
	"plan.faults[].before.nth":     "Which of the statements, counted from 1.",
	"plan.faults[].after.pattern":  "A part of the statement's SQL.",
	"plan.faults[].after.nth":      "Which of the statements, counted from 1.",
	"plan.delays[][].req":          "How long the request is on its way.",
	"plan.delays[][].resp":         "How long the answer is.",
}

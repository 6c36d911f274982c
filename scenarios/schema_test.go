package scenarios

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

var (
	someImpls      = Implementations("reference", "no-fence", "slow-retry")
	someInvariants = Invariants("one-leader", "no-duplicate-publish", "no-lost-publish", "failover", "probe")
)

func compiled(t testing.TB, opts ...Option) *jsonschema.Schema {
	t.Helper()
	text, err := Schema(opts...)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft4) // so that its own "$schema" is what counts
	require.NoError(t, c.AddResource("scenario.json", doc))
	s, err := c.Compile("scenario.json")
	require.NoError(t, err, "it is a schema of draft 2020-12")
	return s
}

// valid asks the schema about a YAML text.
func valid(t testing.TB, s *jsonschema.Schema, src []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(src, &v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return s.Validate(doc)
}

func TestSchemaOfTheScenariosThatComeWithIt(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	for _, name := range Names() {
		src, ok := Source(name)
		require.True(t, ok)
		require.NoError(t, valid(t, s, src), name)
		require.True(t, strings.HasPrefix(string(src), "# yaml-language-server: $schema=../docs/scenario.schema.json\n"), "%s: an editor finds the schema", name)
	}
}

const sound = `name: sound
shows: A sound one.
replicas: 3
routes: [direct, pgbouncer-session]
pool: {size: 5}
intervals: {retry: 5s, ttl: -1s}
workload: {rows: 10, every: 1s}
faults:
  - {kind: kill, target: leader, window: 5s..10s, for: 5s}
  - {kind: cut-reply, target: 2, after: {pattern: commit, nth: 1..3}}
duration: 70s
invariants: [one-leader, failover]
require: [{what: elections, at_least: 1}]
expect: [{invariant: failover, impl: slow-retry}]
`

// What is broken so that a schema can see it is refused by it and by the reader; each change is made to a scenario that both accept.
func TestSchemaRefusesWhatTheReaderRefuses(t *testing.T) {
	t.Parallel()
	s := compiled(t, someImpls, someInvariants)
	_, err := Parse("sound.yaml", []byte(sound), someImpls, someInvariants)
	require.NoError(t, err)
	require.NoError(t, valid(t, s, []byte(sound)))
	for _, c := range []struct{ old, new string }{
		{"name: sound\n", ""}, {"name: sound", "name: Not Sound"}, {"name: sound", "nam: sound"}, {"name: sound", "name: 7"}, {"shows: A sound one.", `shows: " "`},
		{"replicas: 3", "replicas: 0"}, {"replicas: 3", "replicas: 33"}, {"replicas: 3", "replicas: three"}, {"replicas: 3", "replicas: 2.5"},
		{"[direct, pgbouncer-session]", "[]"}, {"[direct, pgbouncer-session]", "direct"}, {"[direct, pgbouncer-session]", "[direct, direct]"}, {"pgbouncer-session]", "pgbouncer]"},
		{"pool: {size: 5}", "pool: {size: -1}"}, {"pool: {size: 5}", "pool: {sise: 5}"}, {"pool: {size: 5}", "pool: 5"}, {"pool: {size: 5}", "pool: {round_robin: maybe}"},
		{"retry: 5s", "retry: 5"}, {"retry: 5s", "retry: soon"}, {"retry: 5s", "retry: 5 s"}, {"rows: 10", "rows: -1"},
		{"kind: kill", "kind: kil"}, {"kind: kill, ", ""}, {"target: leader, ", ""}, {"target: leader", "target: boss"}, {"target: 2", "target: 0"},
		{"window: 5s..10s, ", ""}, {"window: 5s..10s", "window: 5s-10s"}, {", for: 5s", ""}, {"after: {", "for: 5s, after: {"}, {"pattern: commit, ", ""}, {"nth: 1..3", "nth: many"},
		{"after: {", "before: {pattern: x}, after: {"}, {"kind: kill, target: leader", "kind: postgres-restart, target: leader"}, {"{kind: kill", "{weight: 11, kind: kill"}, {"{kind: kill", "{weight: 0, kind: kill"},
		{"duration: 70s\n", ""}, {"duration: 70s", "duration: 70"}, {"invariants: [one-leader, failover]", "invariants: []"}, {"[one-leader, failover]", "[one-leader, failover, one-leader]"},
		{"[one-leader, failover]", "[one-leader, failover, luck]"}, {"what: elections", "what: luck"}, {"at_least: 1", "at_least: 0"}, {", at_least: 1", ""},
		{"impl: slow-retry", "impl: nobody"}, {"invariant: failover", "invariant: luck"}, {"replicas: 3", "replicas: 3\nimpl: reference\nimpls: [no-fence]"},
		{"replicas: 3", "replicas: 3\nimpls: [no-fence, no-fence]"}, {"replicas: 3", "replicas: 3\nimpl: 'exec:'"}, {"replicas: 3", "replicas: 3\nplan: {v: 2, horizon: 70s}"},
		{"replicas: 3", "replicas: 3\nplan: {v: 1}"}, {"replicas: 3", "replicas: 3\nplan: {v: 1, horizon: 70s, picks: [-1]}"},
		{"replicas: 3", "replicas: 3\nplan: {v: 1, horizon: 70s, faults: [{kind: kill, at: 1s}]}"}, {"replicas: 3", "replicas: 3\nplan: {v: 1, horizon: 70s, delays: [{req: 1s}]}"},
	} {
		src := strings.Replace(sound, c.old, c.new, 1)
		require.NotEqual(t, sound, src, "%q", c.old)
		_, err := Parse("broken.yaml", []byte(src), someImpls, someInvariants)
		require.Error(t, err, "the reader: %+v", c)
		require.Error(t, valid(t, s, []byte(src)), "the schema: %+v", c)
	}
}

const program = `name: mine
shows: A program of ours.
replicas: 2
routes: [direct]
impl:
  exec: [./mine, --fast, ""]
  keys: [42, -9223372036854775808, 9223372036854775807]
  migrations: own.sql
  load: insert into jobs (id, due) values ($1, now() + $2 * interval '1 second')
  ledger: select * from done
duration: 70s
invariants: [one-leader]
`

// A program with what belongs to it, as sim.Program has it: each field is in the schema, and what is wrong with one both say.
func TestSchemaOfAProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "own.sql"), []byte("create table jobs (id bigint, due timestamptz)"), 0o600))
	read := func(src string) error {
		path := filepath.Join(dir, "mine.yaml")
		require.NoError(t, os.WriteFile(path, []byte(src), 0o600))
		_, err := Load(path, someImpls, someInvariants)
		return err
	}
	for name, s := range map[string]*jsonschema.Schema{"with the names": compiled(t, someImpls, someInvariants), "without": compiled(t)} {
		require.NoError(t, read(program))
		require.NoError(t, valid(t, s, []byte(program)), name)
		_, fields := fieldsOf(reflect.TypeFor[sim.Program]())
		for _, f := range fields {
			require.Contains(t, program, "\n  "+f+": ", "this test shows every field")
		}
		for _, c := range []struct{ old, new string }{
			{"  exec: [./mine, --fast, \"\"]\n", ""}, {`[./mine, --fast, ""]`, "[]"}, {"[./mine", `["", ./mine`}, {"[./mine", "[7, ./mine"}, {`[./mine, --fast, ""]`, "./mine"},
			{"keys: [42", "keys: [0"}, {"keys: [42", "keys: [42, 42"}, {"keys: [42", "keys: [4.2"}, {"keys: [42", "keys: [fourty-two"}, {"9223372036854775807]", "9223372036854775808]"},
			{"[42, -9223372036854775808, 9223372036854775807]", "[]"}, {"  keys:", "  key:"}, {"own.sql", `" "`}, {"own.sql", "[own.sql]"}, {"$2 * ", ""}, {"($1", "(1"},
			{"select * from done", `" "`}, {"duration: 70s", "duration: 70s\nimpls: [reference]"},
		} {
			src := strings.Replace(program, c.old, c.new, 1)
			require.NotEqual(t, program, src, "%q", c.old)
			require.Error(t, read(src), "the reader: %+v", c)
			require.Error(t, valid(t, s, []byte(src)), "the schema, %s: %+v", name, c)
		}
		for _, line := range strings.Split(program, "\n") {
			if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "  exec") { // each of the others may be left out
				src := strings.Replace(program, line+"\n", "", 1)
				require.NoError(t, read(src), "the reader without %q", line)
				require.NoError(t, valid(t, s, []byte(src)), "the schema without %q", line)
			}
		}
	}
}

// What the reader accepts, in all its forms, the schema does not mark as wrong.
func TestSchemaAcceptsWhatTheReaderAccepts(t *testing.T) {
	t.Parallel()
	s := compiled(t, someImpls, someInvariants)
	for _, c := range []struct{ old, new string }{
		{"retry: 5s", "retry: 0m5.5s"}, {"retry: 5s", "retry: 5000ms"}, {"window: 5s..10s", "window: 0..10s"}, {"window: 5s..10s", "window: 0"}, {"window: 5s..10s", "window: .5s"}, {"target: 2", `target: "2"`},
		{"target: 2", "target: standby"}, {"nth: 1..3", "nth: 2"}, {"nth: 1..3", `nth: "2"`}, {"{kind: kill", "{count: 1..2, weight: 1, kind: kill"}, {"{kind: kill", "{count: 2, kind: kill"},
		{"replicas: 3", "replicas: 3\nimpl: exec:./mine --fast"}, {"replicas: 3", "replicas: 3\nimpls: [no-fence, 'exec:./mine']"}, {"impl: slow-retry", "impl: any"}, {"replicas: 3", "replicas: 3\nbelief_overlap: 0s"},
		{"replicas: 3", "replicas: 3\nphase: 0s..2s\nstarts_at: 2026-03-08T01:30:00-05:00"}, {"ttl: -1s", "ttl: -0.5h"}, {"workload: {rows: 10, every: 1s}", "workload: {rows: 10, every: 0}"},
		{"replicas: 3", "replicas: 3\nplan: {v: 1, horizon: 70s, faults: [{kind: kill, target: leader, at: 1s, for: 2s}, {kind: cut-reply, target: 1, at: 0s, before: {pattern: x, nth: 2}}], delays: [[{req: 1ms, resp: 0s}], []], picks: [0, 3], phase: [0s]}"},
	} {
		src := strings.Replace(sound, c.old, c.new, 1)
		require.NotEqual(t, sound, src, "%q", c.old)
		_, err := Parse("good.yaml", []byte(src), someImpls, someInvariants)
		require.NoError(t, err, "the reader: %+v", c)
		require.NoError(t, valid(t, s, []byte(src)), "the schema: %+v", c)
	}
	open := compiled(t)
	require.NoError(t, valid(t, open, []byte(strings.Replace(sound, "slow-retry", "anybody", 1))), "without the names any is let through, as by the reader")
}

// Of the broken files that the reader is tested with, the schema finds every one in which a scenario is broken by itself. What does not go
// together, such as a fault and the routes, only the reader finds.
func TestSchemaOfTheBrokenFiles(t *testing.T) {
	t.Parallel()
	s := compiled(t, Implementations("reference", "no-fence"), Invariants("one-leader", "failover", "probe"))
	var passed []string
	files, err := filepath.Glob("testdata/problems/*.yaml")
	require.NoError(t, err)
	for _, f := range files {
		src, err := os.ReadFile(f)
		require.NoError(t, err)
		if valid(t, s, src) == nil {
			passed = append(passed, filepath.Base(f))
		}
	}
	require.Equal(t, []string{"documents.yaml", "nobody-hit.yaml"}, passed, "the first holds two, of which this test reads one")
}

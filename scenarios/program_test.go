package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

const foreign = `name: foreign
shows: A program of somebody else's, with tables of its own.
replicas: 2
routes: [direct]
impl:
  exec: [./elector, --config, it's mine.toml]
  migrations: sub/schema.sql
  keys: [42, -7]
  load: INSERT INTO jobs (id, due) VALUES ($1, now() + make_interval(secs => $2))
  ledger: |
    SELECT id AS row_id, done_at AS at FROM jobs
workload: {rows: 10, every: 1s}
duration: 60s
invariants: [one-leader]
`

func TestProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "foreign.yaml")
	require.NoError(t, os.WriteFile(file, []byte(foreign), 0o644))

	_, err := Load(file)
	require.Equal(t, file+":7:15: migrations: there is no file "+filepath.Join(dir, "sub/schema.sql")+"\n    7 |   migrations: sub/schema.sql\n      |               ^", err.Error())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/shema.sql"), []byte("CREATE TABLE jobs ();"), 0o644))
	_, err = Load(file)
	require.ErrorContains(t, err, `(did you mean "shema.sql"?)`)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub/schema.sql"), []byte("CREATE TABLE jobs ();"), 0o644))
	s, err := Load(file)
	require.NoError(t, err)
	require.Equal(t, dir, s.Dir)
	require.Equal(t, `exec:./elector --config 'it'\''s mine.toml'`, s.Impl)
	require.Equal(t, &sim.Program{
		Exec: []string{"./elector", "--config", "it's mine.toml"}, Migrations: "sub/schema.sql", MigrationsSQL: "CREATE TABLE jobs ();", Keys: []int64{42, -7},
		Load:   "INSERT INTO jobs (id, due) VALUES ($1, now() + make_interval(secs => $2))",
		Ledger: "SELECT id AS row_id, done_at AS at FROM jobs\n",
	}, s.Program)
	argv, err := ParseCommand(strings.TrimPrefix(s.Impl, sim.ExecPrefix))
	require.NoError(t, err)
	require.Equal(t, s.Program.Exec, argv, "the name is a command line that says the same")
}

// A file of migrations that is no text file of bounded size is turned away, and not waited for.
func TestMigrationsThatAreNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty.sql"), []byte(" \n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "binary.sql"), []byte("\xff\xfe\x00"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large.sql"), make([]byte, maxSQLFile+1), 0o644))
	for path, want := range map[string]string{
		"/dev/zero": "is no file", ".": "is no file", "empty.sql": "is empty", "binary.sql": "is not UTF-8 text", "large.sql": "is larger than 4 MiB", "/no/such": "there is no file /no/such",
	} {
		file := filepath.Join(dir, "s.yaml")
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(foreign, "sub/schema.sql", path, 1)), 0o644))
		_, err := Load(file)
		var p *Problems
		require.ErrorAs(t, err, &p, path)
		require.Len(t, p.List, 1)
		require.Contains(t, p.List[0].Text, want)
		require.Equal(t, 7, p.List[0].Line)
	}
}

func TestParseCommand(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"./a": {"./a"}, "  a   b\tc ": {"a", "b", "c"}, `a "b c" 'd "e"' f\ g`: {"a", "b c", `d "e"`, "f g"}, `a '' "$HOME" *`: {"a", "", "$HOME", "*"},
		`sh -c 'x | y > z; w'`: {"sh", "-c", "x | y > z; w"}, `a=b c`: {"a=b", "c"}, `a#b # c`: {"a#b", "#", "c"},
	} {
		got, err := ParseCommand(line)
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
	}
	for _, line := range []string{"", "  ", "''", "a |b", "a&", "a; b", "a > b", "a <b", "'a", `"a`, `a\`, "(a)", strings.Repeat("a", maxCommand+1), "a\x00b"} {
		_, err := ParseCommand(line)
		require.Error(t, err, line)
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
)

// tryProgram runs one replica of a shell script in steady, and sees to it that nothing of it stays.
func tryProgram(t *testing.T, script string, args ...string) (out string, status int, dir string) {
	t.Helper()
	args = append([]string{"run", "steady", "--route", "direct", "--replicas", "1", "--schedules", "1", "--seed", "1"}, args...)
	cmd, tmp, buf := started(t, append(args, "--impl", "exec:sh -c "+sim.ShellQuote(script))...)
	_ = cmd.Wait()
	requireNothingLeft(t, tmp, script)
	return buf.String(), cmd.ProcessState.ExitCode(), cmd.Dir
}

const hello = `echo '{"hello":1}' >&3; `

// say is a program that greets, reports one thing, and waits for its end.
func say(report string) string { return hello + `echo '` + report + `' >&3; read start; read order` }

// A program that breaks the protocol gets a sentence, and nothing hangs.
func TestProgramsThatAreNoReplicas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		want   string
	}{
		"no hello":              {`sleep 600`, `replica 1 did not say {"hello":1} on descriptor 3`},
		"another version":       {`echo '{"hello":2}' >&3; sleep 600`, `did not begin with {"hello":1}, which is the version spoken here, but with "{\"hello\":2}"`},
		"no hello first":        {`echo '{"kind":"lead"}' >&3; sleep 600`, `did not begin with {"hello":1}`},
		"garbage":               {hello + `echo leading now >&3; sleep 600`, `no JSON of protocol 1, invalid character 'l'`},
		"two values":            {say(`{"kind":"end"} {}`), "something follows the JSON value"},
		"over-long line":        {hello + `head -c 2000000 /dev/zero | tr '\0' x >&3; sleep 600`, "reported a line of more than 1024 KiB"},
		"endless line":          {hello + `tr '\0' x </dev/zero >&3`, "reported a line of more than 1024 KiB"},
		"unknown kind":          {say(`{"kind":"fault","op":"applied"}`), `an event of kind "fault", which a replica does not report`},
		"unknown field":         {say(`{"kind":"lead","sesion":"x"}`), `unknown field "sesion"`},
		"wrong type":            {say(`{"kind":"lead","term":"one"}`), "reported term as a string"},
		"unknown op":            {say(`{"kind":"effect","op":"commit","row":1}`), `reported an effect with the op "commit"; its op is begin or end`},
		"unknown answer":        {say(`{"kind":"attempt","op":"end","answer":"yes"}`), "it is one of acquired, busy, shared, moved, error"},
		"negative time":         {say(`{"kind":"lead","unix_ns":-5}`), "reported a lead at unix_ns -5, before it was started"},
		"seconds for ns":        {say(`{"kind":"lead","unix_ns":1764440000}`), "it counts nanoseconds since 1970"},
		"negative trust":        {say(`{"kind":"lead","trusted":"-1s"}`), "trusted until -1s"},
		"no duration":           {say(`{"kind":"lead","trusted":"soon"}`), `"soon" is not a duration`},
		"not a number":          {say(`{"kind":"lead","unix_ns":NaN}`), "no JSON of protocol 1, invalid character 'N'"},
		"term 0":                {say(`{"kind":"lead","term":0}`), "with the term 0: terms are counted from 1"},
		"row 0":                 {say(`{"kind":"effect","op":"begin"}`), "an effect without a row"},
		"another's session":     {say(`{"kind":"lead","session":"r2/1/lease/1"}`), "none of its own"},
		"no name of a session":  {say(`{"kind":"lead","session":"psql"}`), "none of its own: a session is called as its application_name is, r1/1/lease/1"},
		"descriptor closed":     {hello + `exec 3>&-; sleep 600`, "closed descriptor 3 and lived on"},
		"ends at once":          {`echo "cannot open /etc/elector.conf" >&2; exit 3`, "ended (exit status 3) without a word on descriptor 3; it wrote last: cannot open /etc/elector.conf"},
		"ends after the hello":  {hello + `echo first; echo boom >&2; exit 1`, "ended by itself (exit status 1) although no fault had struck yet; it wrote last: first | boom"},
		"ends well, but early":  {hello + `exit 0`, "ended by itself (exit status 0)"},
		"dies of a signal":      {hello + `kill -SEGV $$`, "ended by itself (signal: segmentation fault"},
		"half a line":           {hello + `printf '{"kind":"le' >&3; exit 0`, "ended (exit status 0) in the middle of a line"},
		"half a line, lives on": {hello + `printf '{"kind":"le' >&3; exec 3>&-; sleep 600`, "closed descriptor 3"},
		"a flood":               {hello + `yes '{"kind":"note","text":"x"}' >&3`, "more than 20000 events in a second"},
		"leaves a child":        {hello + `setsid sleep 600 & exit 4`, "ended by itself (exit status 4)"},
		"commands a terminal":   {`printf '\033[2J\033]0;title\007' >&2; exit 1`, "without a word"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, status, dir := tryProgram(t, c.script)
			require.Equal(t, exitEnvironment, status, out)
			require.Contains(t, out, c.want)
			require.NotContains(t, out, "\x1b")
			require.NotContains(t, out, "goroutine")
			require.Equal(t, sim.ErrorEntry, result(t, dir).Scenarios[0].Status)
		})
	}
}

// One that cannot be stopped is killed, and the history says so; that nobody led is what the judges see.
func TestProgramsThatDoNotStop(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"reads no order":     hello + `trap '' TERM; while :; do sleep 600; done`,
		"reads and does not": hello + `cat >/dev/null; sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, status, dir := tryProgram(t, script)
			require.Equal(t, exitInconclusive, status, out)
			require.Contains(t, out, "nobody led")
			e := result(t, dir).Scenarios[0]
			b, err := os.ReadFile(filepath.Join(dir, "simrun-out", "latest", e.Histories[0]))
			require.NoError(t, err)
			require.Contains(t, string(b), "did not stop within its grace and was killed")
		})
	}
}

// What is wrong with a command is said before anything starts.
func TestWrongCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), []byte("#!/bin/sh\n"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	for _, c := range []struct {
		command string
		status  int
		want    string
	}{
		{"", exitUsage, "the command is missing"},
		{"''", exitUsage, "the command is missing"},
		{"./nowhere --now", exitUsage, "there is no program ./nowhere in " + dir},
		{"no-such-program-anywhere", exitUsage, "for one in the current folder write ./no-such-program-anywhere"},
		{"data", exitUsage, "write ./data"},
		{"/no/such/program", exitUsage, "there is no program /no/such/program"},
		{"./folder", exitUsage, "there is no program ./folder"},
		{"./data", exitEnvironment, "chmod +x"},
		{"./data | tee log", exitUsage, `"|" means nothing in it: put it in quotes, or begin with sh -c`},
		{"./data > log", exitUsage, `">" means nothing`},
		{"./it's", exitUsage, "left open"},
	} {
		t.Run(c.command, func(t *testing.T) {
			t.Parallel()
			out, errs, status := simrun(t, dir, "run", "steady", "--impl", "exec:"+c.command)
			require.Equal(t, c.status, status, out+errs)
			require.Contains(t, errs, c.want)
			require.Empty(t, out)
			require.NoDirExists(t, filepath.Join(dir, "simrun-out"))
		})
	}
	for _, args := range [][]string{
		{"run", "steady", "--impl", "exec:sh", "--engine", "virtual"}, {"hunt", "exec:sh"},
	} {
		out, errs, status := simrun(t, dir, args...)
		require.Equal(t, exitUsage, status, out+errs)
		require.Regexp(t, "only the live engine|own flawed implementations", errs)
	}
}

// A script that names no interpreter is found out by the kernel only.
func TestNoProgramAtAll(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"echo hello\n":             "the first line of a script must name its interpreter",
		"#!/no/such/interpreter\n": "the interpreter that",
	} {
		dir := worldReadable(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte(content), 0o755))
		out, errs, status := simrun(t, dir, "run", "steady", "--impl", "exec:./mine", "--route", "direct", "--schedules", "1")
		require.Equal(t, exitEnvironment, status, out+errs)
		require.Contains(t, out, want)
		require.Contains(t, out, "engine live: exec: programs run as processes")
	}
}

// As root, programs run as another user, who may see less than root.
func TestAProgramOfRootsOwn(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		return // everything runs as the user that simrun runs as
	}
	dir := worldReadable(t)
	private := filepath.Join(dir, "private")
	require.NoError(t, os.Mkdir(private, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(private, "mine"), []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("#!/bin/sh\n"), 0o700))
	for _, c := range []struct{ dir, command, want string }{
		{dir, "./private/mine", "may not run " + private + "/mine"}, {dir, "./mine", "may not run"}, {private, "./mine", "cannot enter " + private}, {private, "sh", "cannot enter"},
	} {
		out, errs, status := simrun(t, c.dir, "run", "steady", "--impl", "exec:"+c.command)
		require.Equal(t, exitEnvironment, status, out+errs)
		require.Contains(t, errs, c.want)
		require.Contains(t, errs, "give that user the rights, or start simrun as an ordinary user")
	}
	out, status, _ := tryProgram(t, `id -u >&2; echo "$HOME" >&2; exit 1`)
	require.Equal(t, exitEnvironment, status)
	require.NotContains(t, out, "it wrote last: 0", "not as root")
	require.NotContains(t, out, os.Getenv("HOME")+" ")
}

// worldReadable is a folder that any user may enter.
func worldReadable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "srt")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// python is the example in Python with some of it replaced, in a folder of its own.
func python(t *testing.T, replace ...string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/examples/replica.py")
	require.NoError(t, err)
	text := strings.Replace(string(b), "#!/usr/bin/env python3", "#!"+systemPython(t), 1)
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, text, replace[i])
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	dir := worldReadable(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "replica.py"), []byte(text), 0o755))
	return dir
}

// systemPython is one that every user may run.
func systemPython(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath("python3")
	require.NoError(t, err)
	return path
}

// The programs of docs/protocol.md hold a quiet run on both stable routes, and a killed leader.
func TestTheExamples(t *testing.T) {
	t.Parallel()
	dir := python(t)
	sh, err := os.ReadFile("../../docs/examples/replica.sh")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "replica.sh"), sh, 0o755))
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "replica"), "../../docs/examples")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, name := range []string{"./replica.py", "./replica.sh", "./replica"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held(t, dir, "run", "steady", "--impl", "exec:"+name, "--schedules", "1", "--seed", "1")
			held(t, dir, "run", "kill-leader", "--impl", "exec:"+name, "--route", "direct", "--schedules", "1", "--seed", "2")
			held(t, dir, "run", "step-down", "--impl", "exec:"+name, "--route", "direct", "--schedules", "1", "--seed", "2")
		})
	}
}

// The bug that simrun began with, in any language: two leaders behind a transaction pooler.
func TestAProgramBehindAPooler(t *testing.T) {
	t.Parallel()
	dir := python(t)
	out, errs, status := simrun(t, dir, "run", "two-leaders-pooler", "--impl", "exec:./replica.py", "--schedules", "3", "--seed", "1", "--no-shrink")
	require.Equal(t, exitViolated, status, out+errs)
	// Which rule is broken first depends on who reports first: two believe, or one believes while another one's session has the lock.
	require.Regexp(t, `one-leader violated .*(both believed to lead|believed to lead from .* while a session of)`, out)
	require.Contains(t, out, "a path that does not keep a session")
}

// held is a run in which everything holds, on a machine that may be busy: times are twice as long as usual, and a run that can
// say nothing for want of the processor is had again.
func held(t *testing.T, dir string, args ...string) {
	t.Helper()
	for i := 0; ; i++ {
		out, errs, status := simrun(t, dir, append(args, "--time-scale", "0.08", "--out", t.TempDir())...)
		if status == exitInconclusive && i < 4 {
			continue
		}
		require.Zero(t, status, out+errs)
		return
	}
}

// A program with a bug of the kind that simrun is there for: it leads whatever the answer was. The counterexample holds all that its
// replay needs, from whichever folder, and the saved histories can be judged again.
func TestAProgramWithABug(t *testing.T) {
	t.Parallel()
	dir := python(t, `got = session.ask(f"SELECT pg_try_advisory_lock({key})") == [["t"]]`, `got = session.ask(f"SELECT pg_try_advisory_lock({key})") != []`)
	out, errs, status := simrun(t, dir, "run", "steady", "--impl", "exec:./replica.py '<b>'", "--route", "direct", "--schedules", "1", "--seed", "1", "--no-shrink")
	require.Equal(t, exitViolated, status, out+errs)
	require.Contains(t, out, "one-leader violated")
	e := result(t, dir).Scenarios[0]
	require.Equal(t, "exec:./replica.py '<b>'", e.Impl)
	require.Equal(t, "live", e.Engine)
	ce := filepath.Join(dir, "simrun-out", "latest", e.Counterexamples[0].File)
	require.Regexp(t, `^steady\.direct\.exec_._replica.py___b__-[0-9a-f]{6}\.one-leader\.json$`, filepath.Base(ce))
	page, err := os.ReadFile(filepath.Join(dir, "simrun-out", "latest", "report.html"))
	require.NoError(t, err)
	require.NotContains(t, string(page), "'<b>'")
	require.Contains(t, string(page), "&lt;b&gt;")

	saved, err := loadCounterexample(ce)
	require.NoError(t, err)
	require.Equal(t, sim.DefaultIntervals, saved.Scenario.Intervals, "the scenario is resolved")
	require.Equal(t, []string{"./replica.py", "<b>"}, saved.Scenario.Program.Exec)
	require.Equal(t, dir, saved.Scenario.Dir)

	elsewhere := worldReadable(t)
	out, errs, status = simrun(t, elsewhere, "replay", ce, "-n", "1")
	require.Equal(t, exitViolated, status, out+errs)
	require.Contains(t, out, "reproduced 1 of 1")
	out, errs, status = simrun(t, elsewhere, "replay", ce, "--engine", "virtual")
	require.Equal(t, exitUsage, status, out+errs)
	out, _, status = simrun(t, elsewhere, "judge", filepath.Join(dir, "simrun-out", "latest"))
	require.Equal(t, exitViolated, status)
	require.Contains(t, out, "violated     one-leader")
	require.NoError(t, os.Rename(filepath.Join(dir, "replica.py"), filepath.Join(dir, "gone.py")))
	out, errs, status = simrun(t, elsewhere, "replay", ce)
	require.Equal(t, exitUsage, status, out+errs)
	require.Contains(t, errs, "there is no program ./replica.py in "+dir)
}

// jobs is the folder of the example with tables of its own, with some of its files' text replaced.
func jobs(t *testing.T, file, old, text string) string {
	t.Helper()
	dir := worldReadable(t)
	for _, name := range []string{"jobs.yaml", "schema.sql", "worker.sh"} {
		b, err := os.ReadFile(filepath.Join("../../docs/examples/jobs", name))
		require.NoError(t, err)
		s := string(b)
		if name == file {
			require.Contains(t, s, old)
			s = strings.Replace(s, old, text, 1)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(s), 0o755))
	}
	return dir
}

// A program that writes nothing to the ledger is judged by a query over its own tables, and one that reports nothing by pg_locks.
func TestAProgramWithItsOwnTables(t *testing.T) {
	t.Parallel()
	dir := jobs(t, "", "", "")
	elsewhere := worldReadable(t)
	out, errs, status := simrun(t, elsewhere, "run", filepath.Join(dir, "jobs.yaml"), "--schedules", "1", "--seed", "1")
	require.Zero(t, status, out+errs)
	e := result(t, elsewhere).Scenarios[0]
	require.Equal(t, "exec:./worker.sh 42", e.Impl)
	require.GreaterOrEqual(t, e.Require["publishes"].Seen, 15)
	for _, v := range e.Verdicts {
		require.Equal(t, sim.StatusHeld, v.Status, v)
		require.Positive(t, v.Examined, v)
	}
	require.Contains(t, out, "one-leader: it reports no beliefs, so that it is judged by the fence alone (rule 1)")
	h, err := os.ReadFile(filepath.Join(elsewhere, "simrun-out", "latest", e.Histories[0]))
	require.NoError(t, err)
	require.Regexp(t, `"kind":"held","session":"r[12]/1/effect/1","role":"publish","key":42`, string(h))

	out, errs, status = simrun(t, dir, "explain", "jobs.yaml", "--plans", "0")
	require.Zero(t, status, errs)
	require.Contains(t, out, "impl:\n  exec:\n  - ./worker.sh\n  - \"42\"\n  keys:\n  - 42\n  migrations: schema.sql\n")
}

// Instead of a query, a trigger of the migrations may write to the ledger.
func TestAProgramWithATrigger(t *testing.T) {
	t.Parallel()
	dir := jobs(t, "jobs.yaml", "  ledger: |\n    SELECT worker AS app, job AS row_id, finished AS at FROM done ORDER BY pg_xact_commit_timestamp(xmin), finished\n", "")
	f, err := os.OpenFile(filepath.Join(dir, "schema.sql"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO simrun.ledger (kind, role, key, row_id, unit) VALUES ('effect', 'publish', 42, NEW.job, 1);
	RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT ON done FOR EACH ROW EXECUTE FUNCTION note();`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	out, errs, status := simrun(t, dir, "run", "jobs.yaml", "--schedules", "1", "--seed", "1")
	require.Zero(t, status, out+errs)
	require.GreaterOrEqual(t, result(t, dir).Scenarios[0].Require["publishes"].Seen, 15)
}

// The counterexample of such a program holds its tables and its query: it is carried out again when the files are gone.
func TestAForeignBugIsReplayed(t *testing.T) {
	t.Parallel()
	dir := jobs(t, "worker.sh", `echo "SELECT pg_advisory_lock($1);"`, `echo "SELECT 1;"`)
	out, errs, status := simrun(t, dir, "run", "jobs.yaml", "--schedules", "1", "--seed", "1", "--no-shrink")
	require.Equal(t, exitViolated, status, out+errs)
	require.Contains(t, out, "no-duplicate-publish violated")
	ce := filepath.Join("simrun-out", "latest", result(t, dir).Scenarios[0].Counterexamples[0].File)
	require.NoError(t, os.Remove(filepath.Join(dir, "schema.sql")))
	require.NoError(t, os.Remove(filepath.Join(dir, "jobs.yaml")))
	out, errs, status = simrun(t, dir, "replay", ce, "-n", "4")
	require.Equal(t, exitViolated, status, out+errs)
	require.Regexp(t, "reproduced [1-4] of 4", out)
}

// What only the server can find wrong is said with its place in the user's file.
func TestWrongSQLOfAProgram(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, old, text, want string }{
		{"schema.sql", "CREATE TABLE done (", "CREATE TABEL done (", "schema.sql:3:8: syntax error at or near \"TABEL\" (SQLSTATE 42601)"},
		{"schema.sql", "REFERENCES jobs", "REFERENCES job", "schema.sql: relation \"job\" does not exist (SQLSTATE 42P01)"},
		{"jobs.yaml", "worker AS app", "workr AS app", "the ledger query: ledger:1:8: column \"workr\" does not exist"},
		{"jobs.yaml", "worker AS app", "worker", "the ledger query yields a column worker; the ledger has kind, app,"},
		{"jobs.yaml", "INTO jobs (id, due)", "INTO jobs (id, du)", "load row 1: load:1:23: column \"du\""},
	} {
		dir := jobs(t, c.file, c.old, c.text)
		out, errs, status := simrun(t, dir, "run", "jobs.yaml", "--schedules", "1", "--seed", "1")
		require.Equal(t, exitEnvironment, status, out+errs)
		require.Contains(t, out, c.want)
	}
}

// A program that tells everybody the password it was given does not get it into any file.
func TestAProgramThatTellsThePassword(t *testing.T) {
	t.Parallel()
	dsn, password, _ := givenServer(t)
	dir := worldReadable(t)
	script := `read -r start; echo "$start" >&2; ` + hello + `printf '{"kind":"note","text":"it is %s"}\n{"kind":"end","reason":"%s"}\n' "$PGPASSWORD" "$PGPASSWORD" >&3
		printf '{"kind":"%s"}\n' "$PGPASSWORD" >&3; echo "$PGPASSWORD" >&2; env >&2; exit 1`
	cmd := exec.Command(binary, "run", "steady", "--route", "direct", "--replicas", "1", "--schedules", "1", "--seed", "1", "--postgres", "dsn", "--impl", "exec:sh -c "+sim.ShellQuote(script))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SIMRUN_DSN="+dsn)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, exitEnvironment, cmd.ProcessState.ExitCode(), string(out))
	require.Contains(t, string(out), "an event of kind \"(password)\"")
	require.NotContains(t, string(out), password)
	seen := 0
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		require.NotContains(t, string(b), password, path)
		seen += strings.Count(string(b), "(password)")
		return err
	}))
	require.GreaterOrEqual(t, seen, 3, "what it told is there, but for the password")
}

// Where a program is among the implementations and no engine was asked for, the run is live, and says so.
func TestTheEngineOfPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f        runFlags
		programs bool
		engine   string
		says     bool
		status   int
	}{
		{runFlags{engine: "virtual"}, false, "virtual", false, exitOK},
		{runFlags{engine: "virtual"}, true, "live", true, exitOK},
		{runFlags{engine: "virtual", engineAsked: true}, true, "virtual", false, exitUsage},
		{runFlags{engine: "live", engineAsked: true}, true, "live", false, exitOK},
	} {
		says, err := c.f.chooseEngine(c.programs)
		require.Equal(t, c.status, statusOf(err))
		require.Equal(t, c.engine, c.f.engine)
		require.Equal(t, c.says, says != "")
	}
	var f runFlags
	require.Equal(t, []string{"reference"}, f.asked(sim.Scenario{}))
	require.Equal(t, []string{"exec:a", "no-fence"}, f.asked(sim.Scenario{Impls: []string{"exec:a", "no-fence"}}))
	f.impls = []string{"exec:b"}
	require.Equal(t, []string{"exec:b"}, f.asked(sim.Scenario{Impl: "no-fence"}))
}

// A program of the command line takes the place of the scenario's, and keeps what belongs to both: tables, keys, the query.
func TestAnotherBuildInTheSameScenario(t *testing.T) {
	t.Parallel()
	s := sim.Scenario{Dir: "/there", Impl: "exec:./a", Program: &sim.Program{Exec: []string{"./a"}, Keys: []int64{42}, MigrationsSQL: "x"}}
	f := runFlags{}
	got, err := f.withProgram(s, "exec:./a")
	require.NoError(t, err)
	require.Equal(t, s, got)
	f.impls = []string{"exec:./b 'c d'"}
	got, err = f.withProgram(s, f.impls[0])
	require.NoError(t, err)
	here, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, here, got.Dir)
	require.Equal(t, &sim.Program{Exec: []string{"./b", "c d"}, Keys: []int64{42}, MigrationsSQL: "x"}, got.Program)
	require.Equal(t, []string{"./a"}, s.Program.Exec, "the scenario is as it was")
	got, err = f.withProgram(s, "reference")
	require.NoError(t, err)
	require.Nil(t, got.Program)
	require.Empty(t, got.Dir)
}

// Package guide runs the guide: the commands of its chapters, in order, in a folder with the files that they show.
package guide

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unrun are the lines that a chapter shows and this test does not run: they need the network or somebody's server.
var unrun = []string{
	"git clone https://github.com/seed-aafb3a99/simrun", "cd simrun", "make prerequisites build",
	"SIMRUN_DSN=postgres://me@db.example/app bin/simrun probe", "go get github.com/seed-aafb3a99/simrun@latest",
}

// A block is fenced text: its language, the file that it is the text of, and the text.
type block struct{ lang, file, text string }

var fence = regexp.MustCompile("(?ms)^```(\\w*) ?(\\S*)\n(.*?)^```$")

func blocks(text string) (list []block) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		list = append(list, block{m[1], m[2], m[3]})
	}
	return list
}

// A step is a command and what it is said to print.
type step struct{ command, want string }

func steps(console string) (list []step) {
	for line := range strings.Lines(console) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, step{command: strings.TrimSpace(command)})
		} else if len(list) > 0 {
			list[len(list)-1].want += line
		}
	}
	return list
}

func TestChapters(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "simrun")
	out, err := exec.Command("go", "build", "-o", bin, "../../cmd/simrun").CombinedOutput()
	require.NoError(t, err, string(out))
	chapters, err := filepath.Glob("[0-9]-*.md")
	require.NoError(t, err)
	require.Len(t, chapters, 4)
	for _, file := range append(chapters, "../../README.md") { // its first screen is a chapter of its own
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			dir := reader(t, bin)
			ran := 0
			for _, x := range blocks(string(b)) {
				switch x.lang {
				case "console":
					for _, s := range steps(x.text) {
						require.NoError(t, compare(s.want, run(t, dir, s.command)), "$ %s", s.command)
						ran++
					}
				case "sh":
					for line := range strings.Lines(x.text) {
						require.Contains(t, unrun, strings.TrimSpace(line), "a command that is not run")
					}
				default:
					require.NotEmpty(t, x.file, "a block of %s is the text of a file", x.lang)
					require.NoError(t, os.WriteFile(filepath.Join(dir, x.file), []byte(x.text), 0o644))
					if x.lang == "go" {
						isFile(t, string(b), x)
					}
				}
			}
			require.Positive(t, ran)
		})
	}
}

// Chapter 2 says what is left to do when its lock has passed: that is so.
func TestWhatIsLeftInChapterTwo(t *testing.T) {
	t.Parallel()
	dir := reader(t, "no simrun is needed")
	const silent = `sim.Scenario{Replicas: 2, Faults: []sim.FaultSpec{{Kind: sim.BlackHole, Target: sim.TargetLeader,
		Window: sim.Range{From: 20e9, To: 40e9}, For: sim.Range{From: 40e9, To: 60e9}}}}`
	for file, change := range map[string][2]string{
		"mylock_test.go": {"sim.Scenario{Replicas: 2}", silent},
		"mylock.go":      {"\tvar mine bool\n", "\t_, _ = conn.Exec(ctx, \"SET idle_session_timeout = '30s'\")\n\tvar mine bool\n"},
	} {
		b, err := os.ReadFile(filepath.Join("mylock", file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(b), change[0]))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(b), change[0], change[1], 1)), 0o644))
	}
	out := run(t, dir, "go test .")
	require.Regexp(t, `beliefs \(rule 4\): r\d and r\d both believed to lead`, out)
	require.Regexp(t, `(?m)^ +black-hole the leader at`, out)
}

// isFile requires that Go code is the text of the file that the line above links to; what is not below testdata is a test of its own.
func isFile(t *testing.T, chapter string, x block) {
	t.Helper()
	before, _, _ := strings.Cut(chapter, x.text)
	links := regexp.MustCompile("\\[`"+regexp.QuoteMeta(x.file)+"`\\]\\((\\S+)\\)").FindAllStringSubmatch(before, -1)
	require.NotEmpty(t, links, "a link to %s", x.file)
	want, err := os.ReadFile(links[len(links)-1][1])
	require.NoError(t, err)
	require.Equal(t, string(want), x.text)
}

// reader is the folder of somebody who reads: simrun is built, docs is there, and it is a Go module that uses simrun.
func reader(t *testing.T, bin string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "simrun-guide-") // programs under test may run as another user, who has to get in
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(bin, filepath.Join(dir, "bin/simrun")))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "docs/examples"), os.DirFS(filepath.Join(root, "docs/examples"))))
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	const module = "github.com/seed-aafb3a99/simrun"
	text := strings.Replace(string(mod), "module "+module, "module example.com/mine", 1) +
		fmt.Sprintf("\nrequire %s v0.0.0\nreplace %s => %s\n", module, module, root)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644))
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644))
	return dir
}

// run is what a reader sees of a command, without the lines that only say how far it is.
func run(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "GITHUB_") || strings.HasPrefix(e, "SIMRUN_") || e == "CI=true"
	}), "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, _ := cmd.CombinedOutput() // the status is part of what is printed
	return regexp.MustCompile(`(?m)^simrun: \d+s, .*\n`).ReplaceAllString(string(out), "")
}

// loose are the things that differ from run to run and machine to machine, by what stands for them.
var loose = []struct {
	what *regexp.Regexp
	mark string
}{
	{regexp.MustCompile(`\b\d{8}T\d{6}Z-\d+(-\d+)?\b`), "RUN"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "DIGEST"},
	{regexp.MustCompile(`\b\d+(\.\d+)?s\b`), "SECONDS"},
	{regexp.MustCompile(`\b\d+\.\d+(\.\d+)?\b`), "NUMBER"},
	{regexp.MustCompile(`(?m)^postgres .*  workers \d+$`), "SERVERS"},
	{regexp.MustCompile(` +`), " "},
}

func loosely(s string) string {
	for _, l := range loose {
		s = l.what.ReplaceAllString(s, l.mark)
	}
	return strings.TrimSpace(s)
}

// compare says whether got is what the chapter claims.
func compare(want, got string) error {
	pattern := regexp.QuoteMeta(loosely(want))
	pattern = regexp.MustCompile(`(?m)^…\n`).ReplaceAllString(pattern, "(?:.*\n)*?")
	pattern = regexp.MustCompile(`(?m)\n…$`).ReplaceAllString(pattern, "(?:\n.*)*?")
	pattern = strings.ReplaceAll(pattern, "…", ".*")
	if !regexp.MustCompile(`\A(?:` + pattern + `)\z`).MatchString(loosely(got)) {
		return fmt.Errorf("it is said to print\n%s\nand prints\n%s", want, got)
	}
	return nil
}

func TestCompareCanFail(t *testing.T) {
	t.Parallel()
	const want = "simrun 0.1.0\n…\nPASS  mine  3 schedules, 1.5s\nreplay: …/x.json\nDONE 1 scenarios in 4.0s\n"
	for got, ok := range map[string]bool{
		"simrun 0.2.0\nPASS mine  3 schedules, 12s\nreplay: a/b/x.json\nDONE 1 scenarios in 4s\n":            true,
		"simrun 0.1.0\na\nb\nPASS  mine  3 schedules, 1.5s\nreplay: /x.json\nDONE 1 scenarios in 4.0s\n":     true,
		"simrun 0.1.0\na\nFAIL  mine  3 schedules, 1.5s\nreplay: /x.json\nDONE 1 scenarios in 4.0s\n":        false,
		"simrun 0.1.0\nPASS  mine  4 schedules, 1.5s\nreplay: /x.json\nDONE 1 scenarios in 4.0s\n":           false,
		"simrun 0.1.0\nPASS  mine  3 schedules, 1.5s\nreplay: /x.json\n":                                     false,
		"simrun 0.1.0\nPASS  mine  3 schedules, 1.5s\nreplay: a\nb/x.json\nDONE 1 scenarios in 4.0s\n":       false,
		"simrun 0.1.0\nPASS  mine  3 schedules, 1.5s\nreplay: /x.json\nDONE 1 scenarios in 4.0s\nand more\n": false,
		"": false,
	} {
		require.Equal(t, ok, compare(want, got) == nil, "%q", got)
	}
	require.NoError(t, compare("a\n…\n", "a\n"))
	require.NoError(t, compare("a\n…\n", "a\nb\nc\n"))
	require.Error(t, compare("a\n…\n", "b\n"))
}

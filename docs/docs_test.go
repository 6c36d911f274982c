// Package docs holds the pages to the code that they speak of.
package docs

import (
	"fmt"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	linked   = regexp.MustCompile("\\[`([^`]+)`\\]\\(([^)]+)\\)")
	anyLink  = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	span     = regexp.MustCompile("`([^`]+)`")
	name     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
	goTest   = regexp.MustCompile(`^go test (\./\S+) -run '?([A-Za-z|]+)'?$`)
	anyFence = regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```$")
)

// Every item of extending.md names files that exist, and every identifier in it stands in one of them.
func TestExtendingNamesWhatExists(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("extending.md")
	require.NoError(t, err)
	found := map[string]int{}
	for _, section := range strings.Split(string(b), "\n## ")[1:] {
		problems, seen := check(section)
		require.Empty(t, problems)
		for k, n := range seen {
			found[k] += n
		}
	}
	require.GreaterOrEqual(t, found["files"], 15)
	require.GreaterOrEqual(t, found["identifiers"], 20)
	require.GreaterOrEqual(t, found["tests"], 8)
}

// check says what is wrong with a section, and counts what it looked at.
func check(section string) (problems []string, seen map[string]int) {
	seen = map[string]int{}
	say := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	for _, block := range anyFence.FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(block[1]) {
			if m := goTest.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				for _, test := range strings.Split(m[2], "|") {
					seen["tests"]++
					if !contains(filepath.Join("..", m[1]), "func "+test) {
						say("%s: there is no %s in %s", strings.TrimSpace(line), test, m[1])
					}
				}
			} else if !strings.HasPrefix(line, "bin/simrun ") {
				say("a command that is not understood: %s", line)
			}
		}
	}
	section = anyFence.ReplaceAllString(section, "")
	var everywhere []string
	for _, m := range linked.FindAllStringSubmatch(section, -1) {
		seen["files"]++
		if !strings.HasSuffix(filepath.Clean(filepath.Join("docs", m[2])), m[1]) {
			say("%s is called %s", m[2], m[1])
		}
		if _, err := os.Stat(m[2]); err != nil {
			say("there is no %s", m[1])
		}
		everywhere = append(everywhere, m[2])
	}
	for _, m := range span.FindAllStringSubmatch(section, -1) {
		if !name.MatchString(m[1]) || slices.Contains([]string{"hunt"}, m[1]) { // a command
			continue
		}
		seen["identifiers"]++
		if !slices.ContainsFunc(everywhere, func(f string) bool { return contains(f, m[1]) }) {
			say("%s stands in none of the files that are named with it", m[1])
		}
	}
	return problems, seen
}

// contains reports whether a word stands in a file, or in a file right in a folder.
func contains(path, word string) bool {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		entries, _ := os.ReadDir(path)
		files = nil
		for _, e := range entries {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	is := regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`)
	return slices.ContainsFunc(files, func(f string) bool {
		b, err := os.ReadFile(f)
		return err == nil && is.Match(b)
	})
}

func TestTheCheckCanFail(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"In [`sim/plan.go`](../sim/plan.go) it is `FaultKind`.":  true,
		"In [`sim/plan.go`](../sim/plan.go) it is `NoSuchKind`.": false,
		"In [`sim/no.go`](../sim/no.go) it is.":                  false,
		"In [`sim/doc.go`](../sim/plan.go) it is.":               false,
		"```sh\ngo test ./sim/live -run TestFaults\n```\n":       true,
		"```sh\ngo test ./sim/live -run TestFault\n```\n":        false,
		"```sh\nrm -rf /\n```\n":                                 false,
	} {
		problems, _ := check(text)
		require.Equal(t, ok, len(problems) == 0, "%s: %s", text, problems)
	}
}

// No page, and not the README, links to a file that is not there.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := []string{"../README.md"}
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	}))
	links := 0
	for _, page := range pages {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range anyLink.FindAllStringSubmatch(anyFence.ReplaceAllString(string(b), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			require.NoError(t, err, "%s links to %s", page, m[1])
		}
	}
	require.Greater(t, links, 30)
}

// The pictures that make screenshots writes: all of them, of the width that they are named after, and not too heavy for a repository.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("screenshots/*.png")
	require.NoError(t, err)
	total, seen := int64(0), map[string]bool{}
	for _, file := range files {
		f, err := os.Open(file)
		require.NoError(t, err)
		defer f.Close()
		info, err := f.Stat()
		require.NoError(t, err)
		total += info.Size()
		c, err := png.DecodeConfig(f)
		require.NoError(t, err, file)
		require.Contains(t, file, fmt.Sprintf("-%d-", c.Width))
		seen[strings.TrimSuffix(filepath.Base(file), ".png")] = true
	}
	for _, page := range []string{"failing", "passing"} {
		for _, width := range []string{"1280", "390"} {
			for _, theme := range []string{"light", "dark"} {
				require.True(t, seen[page+"-"+width+"-"+theme], "%s at %s, %s", page, width, theme)
			}
		}
	}
	require.Len(t, seen, 8)
	require.Less(t, total, int64(1_500_000))
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`docs/(screenshots/[^"]+\.png)`).FindAllStringSubmatch(string(readme), -1) {
		require.Contains(t, files, m[1])
	}
	require.Contains(t, string(readme), "docs/screenshots/failing-1280-light.png")
}

package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the examples into the page anew")

// The programs that the page shows are the ones that are run as tests.
func TestThePageShowsTheFiles(t *testing.T) {
	const page = "../protocol.md"
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	text := string(b)
	for file, language := range map[string]string{"replica.py": "python", "jobs/jobs.yaml": "yaml", "replica.sh": "bash", "replica.go": "go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		fence := "(examples/" + file + ")\n\n```" + language + "\n"
		before, rest, found := strings.Cut(text, fence)
		require.True(t, found, "the page shows %s", file)
		_, after, found := strings.Cut("\n"+rest, "\n```\n")
		require.True(t, found)
		text = before + fence + string(source) + "```\n" + after
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
		return
	}
	require.Equal(t, text, string(b), "go test ./docs/examples -update")
}

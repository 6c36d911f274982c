package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim/replica"
)

// tables are the rows of all tables of a page, cell by cell, without heads and rules.
func tables(t *testing.T, file string) (rows [][]string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	head := true
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			head = true
		case strings.HasPrefix(line, "| ---"):
			head = false
		case !head:
			var cells []string
			for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
				cells = append(cells, strings.TrimSpace(c))
			}
			rows = append(rows, cells)
		}
	}
	require.NotEmpty(t, rows, file)
	return rows
}

// The page of the twins says of each what its flaw says, and every scenario and invariant that expects it; the rest of a row was measured.
func TestPageOfTheTwins(t *testing.T) {
	t.Parallel()
	var want [][]string
	for _, impl := range replica.All()[1:] {
		says := impl.Models
		for _, s := range scenarios.All() {
			for _, e := range s.Expect {
				if e.Impl == impl.Name {
					want = append(want, []string{"`" + impl.Name + "`", says, "`" + s.Name + "`", "`" + e.Invariant + "`"})
					says = ""
				}
			}
		}
		require.Empty(t, says, "%s is caught nowhere", impl.Name)
	}
	var got [][]string
	for _, row := range tables(t, "../../docs/twins.md") {
		require.Len(t, row, 6, row)
		require.NotEmpty(t, row[4], row)
		require.Regexp(t, `^\d+$`, row[5], row)
		got = append(got, row[:4])
	}
	require.Equal(t, want, got)
}

// What the page of the reports names is there.
func TestPageOfTheReports(t *testing.T) {
	t.Parallel()
	known := append(scenarios.Names(), invariantNames()...)
	for _, impl := range replica.All() {
		known = append(known, impl.Name)
	}
	known = append(known, "pg_locks", "lockimpl", "lockimpl/flawed")
	for _, row := range tables(t, "../../docs/reports.md") {
		require.Len(t, row, 3, row)
		require.Regexp(t, `^\[[\w./-]+ #\d+\]\(https://github.com/`, row[0])
		require.Regexp(t, `^(shown|no)\b`, row[2])
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			require.True(t, slices.Contains(known, name[1]), "%s: there is no %s", row[0], name[1])
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const owned = "\x1b]0;owned\x07\u202e"

func TestSafeWriter(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	n, err := fmt.Fprintf(safeWriter{&b}, "a\tb\nü %s\r\x7f", owned)
	require.NoError(t, err)
	require.Equal(t, len("a\tb\nü ")+len(owned)+2, n)
	require.Equal(t, "a\tb\nü \uFFFD]0;owned\uFFFD\uFFFD\uFFFD\uFFFD", b.String())
}

// An address that stands where something else belongs is not repeated with its password.
func TestNoPasswords(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"postgres://app:s3cret@db/app", "postgres://:s3cret@db", "host=db password=s3cret", "PASSWORD = 's3cret s3cret' host=db"} {
		for _, args := range [][]string{
			{"run", secret}, {"explain", secret}, {"validate", secret}, {"replay", secret}, {"judge", secret}, {"report", secret}, {"hunt", secret}, {"probe", secret},
			{"new", secret}, {"run", "--impl", secret}, {"run", "--route", secret}, {"run", "--postgres", secret}, {"run", "steady", "--seed", secret}, {secret},
		} {
			out, errs, status := simrun(t, t.TempDir(), args...)
			require.NotZero(t, status, args)
			require.NotEmpty(t, out+errs, args)
			require.NotContains(t, out+errs, "s3cret", args)
		}
	}
	require.Equal(t, "postgres://app:***@db/app?x=1 and no password: a@b", printable("postgres://app:s3@db/app?x=1 and no password: a@b"))
	require.Equal(t, "postgres://app:***@db", printable("postgres://app:s@cr/et@db"))
	require.Equal(t, "http://localhost:8080/x postgres://db:5432/app", printable("http://localhost:8080/x postgres://db:5432/app"), "a port is no password")
}

// Whatever a file is called and says, no command of simrun hands the terminal a command of its own.
func TestNoEscapeSequences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "name: mine\nshows: \"\\e]0;owned\\a\"\nreplicas: 2\nroutes: [direct]\nduration: 60s\ninvariants: [one-leader]\n"
	name := "a" + owned + ".yaml"
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	good := "good" + owned + ".yaml"
	require.NoError(t, os.WriteFile(filepath.Join(dir, good), []byte("name: mine\nshows: x\nreplicas: 2\nroutes: [direct]\nduration: 60s\ninvariants: [one-leader]\n"), 0o644))
	ce := sim.Counterexample{
		V: sim.CounterexampleVersion, Plan: sim.Plan{V: sim.PlanVersion, Horizon: 1e9, Faults: []sim.Fault{{Kind: sim.Kill, Target: sim.Target(owned)}}}, Engine: "virtual",
		Scenario: sim.Scenario{Name: "mine", Shows: owned, Replicas: 1, Routes: []sim.Route{sim.Direct}, Duration: 1e9, Invariants: []string{"one-leader"}},
		Route:    sim.Direct, Impl: "reference", Invariant: "one-leader", Digest: owned, Text: owned,
	}
	b, err := json.Marshal(ce)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ce.json"), b, 0o644))
	for _, args := range [][]string{
		{"validate", name}, {"validate", good}, {"explain", name}, {"explain", good}, {"run", name}, {"run", owned}, {"explain", owned}, {"judge", owned}, {"report", owned},
		{"hunt", owned}, {"list", owned}, {owned}, {"--" + owned}, {"run", "--impl", owned}, {"run", "--seed", owned}, {"replay", owned}, {"replay", "ce.json", "-n", "1"},
	} {
		out, errs, _ := simrun(t, dir, args...)
		require.NotEmpty(t, out+errs, args)
		for _, bad := range []string{"\x1b", "\x07", "\u202e"} {
			require.NotContains(t, out+errs, bad, args)
		}
	}
}

// A device, a pipe or a link that the user has named for a result is written to; anybody else who has it open has it still.
func TestWriteFileReplacesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	require.NoError(t, writeFile(file, []byte("long before")))
	require.NoError(t, writeFile(file, []byte("before")))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, writeFile(link, []byte("after")))
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "after", string(b))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	read := make(chan string)
	go func() {
		b, _ := os.ReadFile(pipe)
		read <- string(b)
	}()
	require.NoError(t, writeFile(pipe, []byte("through")))
	require.Equal(t, "through", <-read)
	info, err = os.Lstat(pipe) // as a device would be; one of the machine's is not put at risk here
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeNamedPipe)
	require.ErrorIs(t, writeFile(dir, nil), unix.EISDIR)
	err = writeFile(filepath.Join(dir, "nowhere", "x"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), ".part")
}

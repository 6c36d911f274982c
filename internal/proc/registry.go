package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A started process, as the registry keeps it.
type started struct {
	pid   int
	start uint64    // when, in the kernel's ticks since boot: with the pid it names a process for good
	at    time.Time // by the wall clock, not later than that
	exe   string    // base name of the program
}

// A registry is the list of what a run started. It is a file, so that the reaper and a later sweep can read it.
type registry struct {
	mu  sync.Mutex
	f   *os.File
	all []started
}

func createRegistry(path string) (*registry, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &registry{f: f}, nil
}

func (r *registry) add(s started) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
	// One write, so that a reader never sees half a line that parses.
	_, err := fmt.Fprintf(r.f, "%d %d %d %q\n", s.pid, s.start, s.at.UnixMilli(), s.exe)
	return err
}

func (r *registry) list() []started {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]started(nil), r.all...)
}

func (r *registry) close() error { return r.f.Close() }

// readRegistry reads the registry of a run's directory. What cannot be read is left out: the marks still find the
// processes.
func readRegistry(dir string) (all []started) {
	b, err := os.ReadFile(filepath.Join(dir, registryName))
	if err != nil {
		return nil
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		var s started
		var milli int64
		if n, _ := fmt.Sscanf(sc.Text(), "%d %d %d %q", &s.pid, &s.start, &milli, &s.exe); n == 4 {
			s.at = time.UnixMilli(milli)
			all = append(all, s)
		}
	}
	return all
}

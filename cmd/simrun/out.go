package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
	"golang.org/x/sys/unix"
)

// An outDir is the folder of one run: <out>/<utc>-<seed>, with <out>/latest pointing at it.
type outDir struct{ dir string }

// folders are the results folders of this process, open and locked, so that simrun clean leaves them alone. They stay so until the process ends.
var (
	foldersMu sync.Mutex
	folders   []*os.File
)

// claim locks a results folder. Where a file system has no locks there is no protection, and no harm either.
func claim(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	foldersMu.Lock()
	defer foldersMu.Unlock()
	folders = append(folders, f)
}

// newOutDir makes the folder. Two runs of one second and seed get different ones.
func newOutDir(root string, seed uint64, now time.Time) (*outDir, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, &sim.EnvironmentError{Problem: fmt.Sprintf("the folder %s cannot be made; name another with --out", root), Err: err}
	}
	base := fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405Z"), seed)
	for i := 0; ; i++ {
		name := base
		if i > 0 {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		dir := filepath.Join(root, name)
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, &sim.EnvironmentError{Problem: fmt.Sprintf("the folder %s cannot be written to; name another with --out", root), Err: err}
		}
		claim(dir)
		for _, sub := range []string{"histories", "counterexamples", "logs"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
				return nil, &sim.EnvironmentError{Problem: "the results folder cannot be made", Err: err}
			}
		}
		return &outDir{dir}, nil
	}
}

// link points <out>/latest at the folder, replacing an older link in one step.
func (o *outDir) link() error {
	root, name := filepath.Split(o.dir)
	tmp := filepath.Join(root, ".latest-"+name)
	if err := os.Symlink(name, tmp); err != nil {
		return fmt.Errorf("link latest: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(root, "latest")); err != nil {
		os.Remove(tmp)
		return fmt.Errorf("link latest: %w", err)
	}
	return nil
}

func (o *outDir) logs() string { return filepath.Join(o.dir, "logs") }

func (o *outDir) createHistory(name string) (*os.File, error) {
	f, err := os.Create(filepath.Join(o.dir, "histories", name))
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	return f, nil
}

// remove deletes a file of the run, named relative to its folder.
func (o *outDir) remove(file string) {
	if file != "" {
		os.Remove(filepath.Join(o.dir, file))
	}
}

// writeFile writes a file so that nobody ever sees half of it. A device, a pipe or a link that the user has named is written to, not replaced.
func writeFile(path string, b []byte) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, b, 0o644)
	}
	tmp := path + ".part"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			at.Path = path
		}
		return err
	}
	return os.Rename(tmp, path)
}

// fileName makes a name of an implementation usable in a file's name. Names that are changed by it stay different.
func fileName(s string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, s)
	if out == s && len(s) <= maxFileName {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("%s-%x", out[:min(len(out), maxFileName-7)], sum[:3])
}

// maxFileName is for one part of a file's name; there are up to four, and a file system takes 255 characters.
const maxFileName = 60

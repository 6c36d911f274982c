package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/pg"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func cleanCommand() *cobra.Command {
	var out string
	var keep int
	var dry bool
	c := &cobra.Command{
		Use: "clean", Short: "Remove results of earlier runs, what dead runs left, and cached clusters", Args: cobra.NoArgs,
		Long: `Remove what simrun has left on this machine, and say what and how much: results folders but the newest and the one that latest names,
directories of runs that were killed in every way at once, and cached fresh clusters, which the next run makes anew.

A folder that holds anything simrun did not write is left, and no link is followed. While a run is writing below --out nothing is
removed: exit status 6.`,
		Example: "  simrun clean --dry-run\n  simrun clean --keep 5",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 0 || keep > maxSchedules {
				return usagef("--keep must be from 0 to %d", maxSchedules)
			}
			return clean(cmd.OutOrStdout(), out, keep, dry)
		},
	}
	c.Flags().StringVar(&out, "out", "simrun-out", "folder for results")
	c.Flags().IntVar(&keep, "keep", 1, "how many of the newest results folders stay, besides the one that latest names; 0: not even that")
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return c
}

// A sweeper removes things, or only says that it would.
type sweeper struct {
	w      io.Writer
	dry    bool
	things int
	bytes  int64
	errs   []error
}

func (s *sweeper) removed(what string, bytes int64, note string, err error) {
	verb := "removed"
	switch {
	case err != nil:
		s.errs = append(s.errs, err)
		fmt.Fprintf(s.w, "failed   %s: %v\n", what, err)
		return
	case s.dry:
		verb = "would go"
	}
	s.things++
	s.bytes += bytes
	fmt.Fprintf(s.w, "%s %s  %s%s\n", verb, what, amount(bytes), note)
}

func clean(w io.Writer, out string, keep int, dry bool) error {
	s := &sweeper{w: w, dry: dry}
	if err := s.results(out, keep); err != nil {
		return err
	}
	leftovers, err := proc.Sweep(dry)
	if err != nil {
		s.errs = append(s.errs, err)
	}
	for _, l := range leftovers {
		s.removed(l.Dir, l.Bytes, ", of a run that died", l.Err)
	}
	for _, c := range pg.CleanCache(dry) {
		s.removed(c.Path, c.Bytes, ", a cached cluster", c.Err)
	}
	verb := "removed"
	if dry {
		verb = "would remove"
	}
	fmt.Fprintf(w, "%s %s, %s\n", verb, plural(s.things, "thing"), amount(s.bytes))
	if err := errors.Join(s.errs...); err != nil {
		return &sim.EnvironmentError{Problem: "not everything could be removed", Err: err}
	}
	return nil
}

// resultsName is how a results folder is called (newOutDir), and resultsFiles what simrun writes in it.
var (
	resultsName  = regexp.MustCompile(`^\d{8}T\d{6}Z-\d+(-\d+)?$`)
	resultsFiles = []string{"histories", "counterexamples", "logs", "result.json", "report.html", "junit.xml", "result.json.part", "report.html.part", "junit.xml.part"}
)

// results removes results folders. All names are looked up below out and nowhere else: a link that leads out of it is refused by the kernel.
func (s *sweeper) results(out string, keep int) error {
	root, err := os.OpenRoot(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &sim.EnvironmentError{Problem: "the folder " + out + " cannot be read", Err: err}
	}
	defer root.Close() //nolint:errcheck // only read from
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return &sim.EnvironmentError{Problem: "the folder " + out + " cannot be read", Err: err}
	}
	latest, err := root.Readlink("latest")
	if err != nil {
		latest = ""
	}
	var folders []string
	for _, e := range entries {
		switch why := foreign(root, e); {
		case e.Name() == "latest" && e.Type() == fs.ModeSymlink:
		case why != "":
			fmt.Fprintf(s.w, "left     %s: %s\n", filepath.Join(out, e.Name()), why)
		case alive(root, e.Name()):
			return &sim.EnvironmentError{Problem: fmt.Sprintf("a run is writing to %s: nothing is removed; wait for it, or end it", filepath.Join(out, e.Name()))}
		default:
			folders = append(folders, e.Name())
		}
	}
	slices.Sort(folders) // by time: the name begins with it
	slices.Reverse(folders)
	for i, name := range folders {
		if i < keep || keep > 0 && name == latest {
			fmt.Fprintf(s.w, "kept     %s\n", filepath.Join(out, name))
			continue
		}
		bytes := folderSize(root, name)
		var err error
		if !s.dry {
			err = root.RemoveAll(name)
		}
		s.removed(filepath.Join(out, name), bytes, "", err)
	}
	if _, err := root.Stat("latest"); !s.dry && latest != "" && slices.Contains(folders, latest) && errors.Is(err, fs.ErrNotExist) {
		if err := root.Remove("latest"); err != nil {
			s.errs = append(s.errs, err)
		}
	}
	return nil
}

// foreign says why an entry of the folder for results is none of ours, or "".
func foreign(root *os.Root, e fs.DirEntry) string {
	switch {
	case !resultsName.MatchString(e.Name()):
		return "not a results folder"
	case !e.IsDir():
		return "not a folder"
	}
	list, err := fs.ReadDir(root.FS(), e.Name())
	if err != nil {
		return err.Error()
	}
	ours := false
	for _, f := range list {
		if !slices.Contains(resultsFiles, f.Name()) {
			return fmt.Sprintf("it holds %q, which simrun did not write", f.Name())
		}
		ours = ours || f.Name() == "histories" && f.IsDir()
	}
	if !ours {
		return "it holds no histories"
	}
	return ""
}

// alive reports whether the run that writes to a folder goes on: it holds a lock on it (claim).
func alive(root *os.Root, name string) bool {
	f, err := root.Open(name)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only locked
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func folderSize(root *os.Root, name string) (n int64) {
	_ = fs.WalkDir(root.FS(), name, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be seen is not counted
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// amount is a number of bytes for people.
func amount(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.size)), ".0") + " " + u.name
		}
	}
	return plural(int(n), "byte")
}

package pg

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
)

// A fresh cluster takes initdb the better part of a second, so it is made once and kept as one file in the user's cache.
// The file appears under its name only when it is complete (rename), and is checked against its checksum whenever it is
// unpacked: a half-written or damaged one is never used, but made again.

// initdbArgs: no flushing, a locale every machine has, and a superuser that only the Unix socket lets in (see hba).
var initdbArgs = []string{"--no-sync", "--auth=trust", "--username=" + superuser, "--locale=C", "--encoding=UTF8"}

const (
	superuser      = "postgres"
	templateFormat = 1
	headerSize     = 512
	// templateAge is how long a template that nobody uses is kept.
	templateAge = 30 * 24 * time.Hour
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// errTemplate says that a template is damaged.
var errTemplate = errors.New("the cached cluster is damaged")

// makeCluster fills dir, an empty directory of the run, with a fresh cluster in dir/data.
func makeCluster(ctx context.Context, run *proc.Run, b binaries, dir string) error {
	data := filepath.Join(dir, "data")
	cache := cacheDir()
	if cache == "" {
		return initdb(ctx, run, b, data)
	}
	path := filepath.Join(cache, "cluster-"+templateKey(b)+".tar")
	done, err := fromTemplate(run, path, data)
	if done || err != nil {
		return err
	}
	// Others who start at the same time wait for one initdb instead of competing with it. Without the lock (a file
	// system that has none) there is only some work done twice.
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if done, err := fromTemplate(run, path, data); done || err != nil {
		return err
	}
	if err := initdb(ctx, run, b, data); err != nil {
		return err
	}
	// A full or read-only cache costs time only.
	if err := pack(data, path); err == nil {
		pruneTemplates(cache, path)
	}
	return nil
}

// fromTemplate unpacks the template if it is there and sound. If not, done is false and nothing is left of data.
func fromTemplate(run *proc.Run, path, data string) (done bool, err error) {
	err = unpack(path, data)
	switch {
	case err == nil:
		now := time.Now()
		_ = os.Chtimes(path, now, now) // it is in use
		return true, nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return false, noRoom(run.Dir(), err) // initdb would fail as well
	}
	// A damaged template is replaced by whoever makes the next one.
	if err := os.RemoveAll(data); err != nil {
		return false, fmt.Errorf("remove half a cluster: %w", err)
	}
	return false, nil
}

// templateKey names what the content of a cluster depends on.
func templateKey(b binaries) string {
	h := sha256.New()
	fmt.Fprintln(h, templateFormat, b.dir, b.banner, initdbArgs)
	if info, err := os.Stat(b.path("postgres")); err == nil {
		fmt.Fprintln(h, info.Size(), info.ModTime().UnixNano())
	}
	return b.version + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// cacheDirs are the directories that may hold templates, the best first.
func cacheDirs() (dirs []string) {
	if dir, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(dir, "simrun"))
	}
	return append(dirs, filepath.Join(os.TempDir(), fmt.Sprintf("simrun-cache-%d", os.Geteuid())))
}

// cacheDir is a directory of our own for templates, "" when there is none that only we can write in.
func cacheDir() string {
	for _, dir := range cacheDirs() {
		if os.MkdirAll(dir, 0o700) == nil && unix.Access(dir, unix.W_OK) == nil && ours(dir) {
			return dir
		}
	}
	return ""
}

// ours reports whether a path is a directory, no link, that only we can write in. In a directory for everybody somebody else may have been first,
// to hand us a cluster of his making.
func ours(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && privately(info)
}

// A Cached is a file of the cache of fresh clusters.
type Cached struct {
	Path  string
	Bytes int64
	Err   error // why it could not be removed
}

// CleanCache removes the cached clusters; the next start makes what it needs, in the better part of a second. One that is being made is left alone. With
// dry it only says what there is.
func CleanCache(dry bool) (found []Cached) {
	for _, dir := range cacheDirs() {
		if !ours(dir) {
			continue
		}
		// Half a cluster, which a death left behind, has another name.
		for _, pattern := range []string{"cluster-*.tar", ".new-*"} {
			paths, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, path := range paths {
				info, err := os.Lstat(path)
				if err != nil || !info.Mode().IsRegular() || pattern != "cluster-*.tar" && time.Since(info.ModTime()) < time.Minute {
					continue
				}
				c := Cached{Path: path, Bytes: info.Size()}
				if !dry {
					c.Err = os.Remove(path)
					_ = os.Remove(path + ".lock")
				}
				found = append(found, c)
			}
		}
	}
	return found
}

// privately reports whether a file belongs to us and only we can write it.
func privately(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}

func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}, nil
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for another simrun to initialise a cluster: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// initdb makes a cluster, as the user whom the server will run as.
func initdb(ctx context.Context, run *proc.Run, b binaries, data string) error {
	var out bytes.Buffer
	c, err := run.Start(proc.Spec{
		Name: "initdb", Path: b.path("initdb"), Args: append([]string{"-D", data}, initdbArgs...),
		Env: serverEnv(), Stdout: &out, Stderr: &out, Unprivileged: true,
	})
	if err != nil {
		return environment("a Postgres cluster could not be initialised", err)
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("initialise a cluster: %w", ctx.Err()), c.Kill())
	}
	if err := c.Err(); err != nil {
		if roomErr := checkRoom(filepath.Dir(data)); roomErr != nil {
			return roomErr
		}
		return &sim.EnvironmentError{
			Problem: "a Postgres cluster could not be initialised (" + b.path("initdb") + ")",
			Err:     fmt.Errorf("%w: %s", err, lastLines(out.String())),
		}
	}
	return nil
}

// lastLines are the last three lines of an output, as one.
func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// pack writes the cluster in data to path, complete or not at all.
func pack(data, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Seek(headerSize, io.SeekStart); err != nil {
		return err
	}
	sum := crc32.New(crcTable)
	buf := bufio.NewWriterSize(f, 1<<20)
	tw := tar.NewWriter(io.MultiWriter(buf, sum))
	if err := addTree(tw, data); err != nil {
		return err
	}
	if err := errors.Join(tw.Close(), buf.Flush()); err != nil {
		return err
	}
	if _, err := f.WriteAt(header(sum.Sum32()), 0); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func header(sum uint32) []byte {
	b := make([]byte, headerSize)
	copy(b, fmt.Sprintf("simrun cluster %d crc32c %08x\n", templateFormat, sum))
	return b
}

func addTree(tw *tar.Writer, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o700})
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file", path)
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: info.Size()}); err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
}

// unpack makes data from the template, owned by the user whom the server will run as. The error is errTemplate when the
// template is damaged; data is then not to be used.
func unpack(path, data string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || !privately(info) {
		return errTemplate
	}
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(f, head); err != nil {
		return errTemplate
	}
	sum := crc32.New(crcTable)
	in := io.TeeReader(bufio.NewReaderSize(f, 1<<20), sum)
	if err := extract(tar.NewReader(in), data); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if !bytes.Equal(head, header(sum.Sum32())) {
		return errTemplate
	}
	return nil
}

func extract(tr *tar.Reader, root string) error {
	_, uid, gid, other := proc.Unprivileged()
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || !filepath.IsLocal(h.Name) {
			return errTemplate
		}
		path := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o700)
		} else {
			err = extractFile(tr, path, h.Size)
		}
		if err == nil && other {
			err = os.Lchown(path, uid, gid)
		}
		if err != nil {
			return err
		}
	}
}

// extractFile leaves holes where there are only zeros, which is most of a fresh cluster's write-ahead log.
func extractFile(r io.Reader, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	buf := make([]byte, min(size, 1<<17))
	for at := int64(0); at < size; {
		n, err := io.ReadFull(r, buf[:min(size-at, int64(len(buf)))])
		if err != nil {
			return errTemplate
		}
		if !zero(buf[:n]) {
			if _, err := f.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return f.Close()
}

var zeros [1 << 17]byte

func zero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// pruneTemplates removes templates of other versions that have not been used for long.
func pruneTemplates(cache, keep string) {
	found, _ := filepath.Glob(filepath.Join(cache, "cluster-*.tar"))
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && path != keep && time.Since(info.ModTime()) > templateAge {
			_ = os.Remove(path)
			_ = os.Remove(path + ".lock")
		}
	}
}

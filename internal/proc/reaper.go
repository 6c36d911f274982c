package proc

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// reaperName is the variable that turns our own binary into the reaper of a run's directory.
const reaperName = "SIMRUN_REAPER"

func init() {
	if dir := os.Getenv(reaperName); dir != "" {
		reap(dir)
		os.Exit(0)
	}
}

// startReaper starts the reaper. It gets next to no environment: an init of another package that runs before ours must
// not stumble over a variable of the user's, and no secret of ours is passed on.
func (r *Run) startReaper() error {
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pr.Close()
	r.reaper = &exec.Cmd{
		Path: "/proc/self/exe", // the very binary, even if it was replaced or removed meanwhile
		Args: []string{"reaper"},
		Env:  []string{reaperName + "=" + r.dir, "GOMAXPROCS=1"},
		Dir:  "/",
		// Its output must not be ours: whoever reads our output to its end would wait for the reaper.
		Stdin:       pr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // away from the terminal's Ctrl-C and from our process group
	}
	if err := r.reaper.Start(); err != nil {
		pw.Close()
		return err
	}
	r.alive = pw
	return nil
}

// reap waits until the process that started us is gone, and clears its run away.
func reap(dir string) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		return // not what startReaper says: remove nothing
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		q := &quarry{dir: dir, started: append(readRegistry(dir), readRegistry(dir+newSuffix)...)}
		if q.exterminate(killWait) == nil && q.remove() == nil {
			return
		}
	}
}

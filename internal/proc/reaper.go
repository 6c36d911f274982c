package proc

import (
	"errors"
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
	r.alive = pw
	r.reaper = &exec.Cmd{
		Path: "/proc/self/exe", // the very binary, even if it was replaced or removed meanwhile
		Args: []string{"reaper"},
		Env:  []string{reaperName + "=" + r.dir, "GOMAXPROCS=1"},
		Dir:  "/",
		// None of our own output: whoever reads it to its end would wait for the reaper.
		Stdin:       pr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // away from the terminal's Ctrl-C and from our process group
	}
	hello, err := r.reaper.StdoutPipe()
	if err == nil {
		err = r.reaper.Start()
	}
	if err != nil {
		return errors.Join(err, pw.Close())
	}
	r.armed = make(chan struct{})
	go func() {
		_, _ = io.ReadFull(hello, make([]byte, 1))
		close(r.armed)
	}()
	return nil
}

// dismiss ends the reaper; what it is for has been done.
func (r *Run) dismiss() error {
	_, _ = r.alive.Write([]byte("done")) // an error says that it was killed
	err := r.alive.Close()
	<-r.armed // Wait closes what it is read from
	_ = r.reaper.Wait()
	return err
}

// reap waits until the process that started us is gone, and clears its run away unless that was done.
func reap(dir string) {
	// A broken pipe too: we may be orphaned before we have said hello.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		return // not what startReaper says: remove nothing
	}
	// It has little to do, and that at once, however busy the machine is. Only root is allowed to hurry.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, -15)
	os.Stdout.Write([]byte("."))
	os.Stdout.Close()
	if word, _ := io.ReadAll(os.Stdin); len(word) > 0 {
		return
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		q := &quarry{dir: dir, started: append(readRegistry(dir), readRegistry(dir+newSuffix)...)}
		if q.exterminate(killWait) == nil && q.remove() == nil {
			return
		}
	}
}

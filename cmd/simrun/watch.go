package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-aafb3a99/simrun/reports"
)

// watchEvery is how long nobody hears anything where no line can be redrawn.
const watchEvery = 10 * time.Second

// A stage is how far a task is.
type stage struct {
	Done  int    `json:"done"`            // schedules, or runs of a replay
	Of    int    `json:"of,omitempty"`    // 0: not known
	Doing string `json:"doing,omitempty"` // what is done now, if it is not the next schedule
}

func (s stage) String() string {
	switch {
	case s.Doing != "":
		return s.Doing
	case s.Of > 0:
		return fmt.Sprintf("%d of %s", s.Done, plural(s.Of, "schedule"))
	}
	return plural(s.Done, "schedule")
}

// A watch tells whoever waits how far simrun is: by a line that is redrawn on a terminal, elsewhere by a line on w every ten seconds.
type watch struct {
	w     io.Writer
	lines *reports.Terminal // nil: there is nothing to redraw
	began time.Time
	total int

	mu    sync.Mutex
	done  int
	tasks map[string]stage
	stop  chan struct{}
	ended sync.WaitGroup
}

// newWatch begins to watch total tasks. It must be closed.
func newWatch(w io.Writer, lines *reports.Terminal, total int) *watch {
	x := &watch{w: w, lines: lines, began: time.Now(), total: total, tasks: map[string]stage{}, stop: make(chan struct{})}
	if lines != nil && lines.Live() {
		return x
	}
	x.ended.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintln(x.w, x.line())
			case <-x.stop:
				return
			}
		}
	})
	return x
}

func (x *watch) close() {
	close(x.stop)
	x.ended.Wait()
	if x.lines != nil {
		x.lines.Clear()
	}
}

// at notes how far a task is.
func (x *watch) at(task string, s stage) {
	x.mu.Lock()
	x.tasks[task] = s
	x.mu.Unlock()
	if x.lines == nil {
		return
	}
	what := task
	if s.Doing != "" {
		what += ": " + s.Doing
	}
	x.lines.Progress(s.Done, s.Of, what)
}

// finished notes that a task is done.
func (x *watch) finished(task string) {
	x.leave(task)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done++
}

// leave notes that something is over that is no task of its own.
func (x *watch) leave(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.tasks, name)
}

func (x *watch) line() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := fmt.Sprintf("simrun: %.0fs", time.Since(x.began).Seconds())
	if x.total > 0 {
		s += fmt.Sprintf(", %d of %d done", x.done, x.total)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(x.tasks)) {
		parts = append(parts, name+": "+x.tasks[name].String())
	}
	if len(parts) == 0 {
		parts = []string{"servers are starting or ending"}
	}
	return s + "; " + strings.Join(parts, "; ")
}

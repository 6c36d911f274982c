package live

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
)

// A life is one process of a replica, from its start to its end.
type life struct {
	w     *world
	r     *replica
	inc   int
	began time.Duration
	child *proc.Child
	log   *lifeLog
}

// errQuiet says that descriptor 3 came to its end without a hello, and errHalf that it did so in the middle of a line.
var (
	errQuiet = errors.New("without a word")
	errHalf  = errors.New("in the middle of a line")
)

// follow reads reports until the end of the process, and records that. A process that ends may leave others behind that keep its
// descriptors; they are not waited for.
func (l *life) follow(rd *os.File) {
	go func() {
		<-l.child.Done()
		_ = rd.SetReadDeadline(time.Now().Add(lastGasp))
	}()
	err := l.read(rd)
	if err != nil && !errors.Is(err, errQuiet) && !errors.Is(err, errHalf) {
		l.w.broken(l.r, "%v", err)
	}
	// Its descriptor is closed; so it should be about to end.
	select {
	case <-l.child.Done():
	case <-time.After(lastGasp):
		if !l.ours() && !l.w.over() {
			l.w.broken(l.r, "closed descriptor %d and lived on, so that nothing it does could be judged", sim.ReportFD)
		}
		<-l.child.Done()
	}
	l.w.mu.Lock()
	ours, hit := l.r.stopping, l.w.struck
	l.r.up, l.r.believes = false, false
	l.w.mu.Unlock()
	reason := "exit"
	if !ours {
		reason = "it ended by itself"
		if err := l.child.Err(); err != nil {
			reason += ": " + err.Error()
		}
	}
	l.w.add(sim.Event{Kind: sim.EvDown, Replica: l.r.id, Incarnation: l.inc, Reason: reason})
	how := "exit status 0"
	if err := l.child.Err(); err != nil {
		how = err.Error()
	}
	switch {
	case ours || l.w.over():
	case errors.Is(err, errQuiet):
		l.w.broken(l.r, "ended (%s) without a word on descriptor %d%s", how, sim.ReportFD, l.log.tail())
	case errors.Is(err, errHalf):
		l.w.broken(l.r, "ended (%s) in the middle of a line%s", how, l.log.tail())
	case !hit && sim.IsProgram(l.w.run.Impl.Name):
		// Without it the others would be judged as if it had competed.
		l.w.broken(l.r, "ended by itself (%s) although no fault had struck yet%s", how, l.log.tail())
	}
}

func (l *life) ours() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.r.stopping
}

// missHello is called when a program has had time enough to start up.
func (l *life) missHello() {
	l.w.mu.Lock()
	mute := l.r.inc == l.inc && l.r.up && !l.r.hello && !l.r.paused && !l.r.stopping
	l.w.mu.Unlock()
	if mute {
		l.w.broken(l.r, "did not say {\"hello\":%d} on descriptor %d within %s of its start", sim.ProtocolVersion, sim.ReportFD, helloPatience)
	}
}

// read records the reports of one life until its end of the pipe is closed. An error is what is wrong with them.
func (l *life) read(rd *os.File) error {
	lines := bufio.NewScanner(rd)
	lines.Buffer(nil, maxReport)
	lines.Split(splitReports)
	var m meter
	hello := false
	for lines.Scan() {
		arrived := l.w.since()
		line := lines.Bytes()
		if line[len(line)-1] != '\n' {
			return errHalf
		}
		if m.over(arrived) {
			return fmt.Errorf("reported more than %d events in a second", maxRate)
		}
		rep, err := parseReport(line)
		switch {
		case err != nil:
			return l.hide(err)
		case !hello && (rep.Hello == nil || *rep.Hello != sim.ProtocolVersion):
			return l.hide(fmt.Errorf("did not begin with {\"hello\":%d}, which is the version spoken here, but with %s", sim.ProtocolVersion, excerpt(line)))
		case !hello:
			hello = true
			l.w.mu.Lock()
			l.r.hello = true
			l.w.mu.Unlock()
			continue
		}
		e, err := rep.event(l.r.id, l.inc, l.w.start, l.began, arrived)
		if err != nil {
			return l.hide(err)
		}
		l.record(e, arrived)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("reported a line of more than %d KiB", maxReport>>10)
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("cannot be read: %w", err)
	case !hello:
		return errQuiet
	}
	return nil
}

// hide takes the password out of a sentence that quotes the program.
func (l *life) hide(err error) error { return errors.New(l.log.secrets.Replace(err.Error())) }

// record takes note of a report.
func (l *life) record(e sim.Event, arrived time.Duration) {
	role := l.w.run.Impl.Role
	e.Reason, e.Text = l.log.secrets.Replace(e.Reason), l.log.secrets.Replace(e.Text)
	switch e.Kind {
	case sim.EvLead, sim.EvAttempt, sim.EvUnlock:
		if e.Key == 0 && (e.Role == "" || e.Role == role.Name) {
			e.Key = role.Key
		}
		if e.Role == "" {
			e.Role = l.w.roleOf(e.Key)
		}
		l.w.watch(e.Key)
	}
	l.w.mu.Lock()
	switch e.Kind {
	case sim.EvLead:
		l.r.believes, l.r.leadSince = true, arrived
	case sim.EvEnd:
		l.r.believes = false
	case sim.EvNote:
		if e.Row != 0 {
			l.r.met = append(l.r.met, e)
		}
	}
	l.w.mu.Unlock()
	l.w.rec.Add(e)
}

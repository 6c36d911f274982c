package invariants

import (
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A session is a database session of a replica, as the replica reports it.
type session struct {
	name           string
	who            who
	use            string
	route          sim.Route
	opened, closed *sim.Event
}

// A probe is one run of the stability probe.
type probe struct {
	who
	session    string
	begin, end *sim.Event
}

// An attempt is one try to take the lock.
type attempt struct {
	who
	session    string
	role       string
	key        int64
	begin, end *sim.Event
}

// An unlock is an explicit release.
type unlock struct {
	who
	session    string
	begin, end *sim.Event
	by         *leadership
}

func (w *world) session(name string) *session {
	s := w.sessions[name]
	if s == nil {
		s = &session{name: name}
		if r, i, use, ok := sim.ParseSession(name); ok {
			s.who, s.use = who{r, i}, use
		}
		w.sessions[name] = s
	}
	return s
}

func (w *world) takeSession(e *sim.Event) {
	s := w.session(e.Session)
	if e.Route != "" {
		s.route = e.Route
	}
	switch {
	case e.Op == sim.OpOpen && s.opened == nil:
		s.opened = e
	case e.Op == sim.OpClose && s.closed == nil:
		s.closed = e
	}
}

// route is the way of a session to the server.
func (w *world) route(session string) sim.Route {
	if s := w.sessions[session]; s != nil && s.route != "" {
		return s.route
	}
	return w.h.Header.Route
}

func (w *world) takeProbe(e *sim.Event) {
	if e.Op == sim.OpBegin {
		w.probes = append(w.probes, &probe{who: whoOf(e), session: e.Session, begin: e})
		return
	}
	for _, p := range slices.Backward(w.probes) {
		if p.who == whoOf(e) && p.session == e.Session && p.end == nil {
			p.end = e
			return
		}
	}
	w.probes = append(w.probes, &probe{who: whoOf(e), session: e.Session, end: e})
}

func (w *world) takeAttempt(e *sim.Event) {
	fresh := &attempt{who: whoOf(e), session: e.Session, role: e.Role, key: e.Key}
	if e.Op == sim.OpBegin {
		fresh.begin = e
		w.attempts = append(w.attempts, fresh)
		return
	}
	for _, a := range slices.Backward(w.attempts) {
		if a.who == fresh.who && a.session == e.Session && a.end == nil && (a.role == e.Role || e.Role == "") {
			a.end = e
			if a.key == 0 {
				a.key = e.Key
			}
			return
		}
	}
	fresh.end = e
	w.attempts = append(w.attempts, fresh)
}

// answer is what the attempt was told, "" when it was told nothing.
func (a *attempt) answer() string {
	if a.end == nil {
		return ""
	}
	return a.end.Answer
}

func (w *world) takeUnlock(e *sim.Event) {
	if e.Op == sim.OpEnd {
		for _, u := range slices.Backward(w.unlocks) {
			if u.who == whoOf(e) && u.session == e.Session && u.end == nil {
				u.end = e
				return
			}
		}
	}
	u := &unlock{who: whoOf(e), session: e.Session}
	if e.Op == sim.OpBegin {
		u.begin = e
	} else {
		u.end = e
	}
	// The unlock after an election that came to nothing belongs to no leadership.
	if l := w.latest(e); l != nil && l.undo == nil && (e.Session == "" || l.session == "" || e.Session == l.session) {
		u.by, l.undo = l, u
	}
	w.unlocks = append(w.unlocks, u)
}

// at is the first event of the unlock.
func (u *unlock) at() *sim.Event {
	if u.begin != nil {
		return u.begin
	}
	return u.end
}

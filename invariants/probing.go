package invariants

import (
	"fmt"

	"github.com/seed-aafb3a99/simrun/sim"
)

// probing judges the decisions about session paths: nobody leads over a path that does not keep its session, and nobody is
// refused on one that does, while no fault is in play. An inconclusive answer is no refusal: the pool may be full, or a fault
// may have come in between.
func probing(w *world) (f finding) {
	f.nothing = "nobody led, and no probe was answered"
	for _, l := range w.leaderships {
		f.examined++
		if v, bad := w.ledOverUnstable(l); bad {
			f.violated(v)
		}
	}
	for _, p := range w.probes {
		if p.end == nil {
			continue
		}
		f.examined++
		if p.end.Answer == sim.Unstable && w.pathStable(w.route(p.session), p.from(), p.end.At) {
			w.refused(&f, p)
		}
	}
	return f
}

func (p *probe) from() sim.Duration {
	if p.begin != nil {
		return p.begin.At
	}
	return p.end.At
}

// unstablePath is when a path does not keep its session: always, by its route, or while the pooler has been reloaded into
// transaction mode.
func (w *world) unstablePath(route sim.Route) (ss spans) {
	if !route.Stable() {
		return spans{{0, w.end}}
	}
	var all []span
	for _, f := range w.faults {
		if f.kind == sim.PoolerReload && route == sim.PgBouncerSession {
			all = append(all, span{f.applied.Earliest(), f.span.to})
		}
	}
	return union(forward(all)...)
}

func (w *world) pathStable(route sim.Route, from, to sim.Duration) bool {
	return len(w.unstablePath(route).within(from, to)) == 0
}

// ledOverUnstable: a leader under whom the path changes may lead on until its next stability beat has failed.
func (w *world) ledOverUnstable(l *leadership) (v sim.Violation, bad bool) {
	route := w.route(l.session)
	v = sim.Violation{At: l.lead.At, Replicas: replicas(l.replica), Events: seqs(l.lead), Cause: causeProbe}
	if !route.Stable() {
		v.Text = fmt.Sprintf("%s led from %s on over %s, a path that does not keep a session", l.who, sec(l.lead.At), route)
		return v, true
	}
	grace := w.iv.Beat + w.iv.BeatDeadline + w.iv.ProbeWait + w.allow + w.delivery(l.replica)
	for _, s := range w.unstablePath(route) {
		if led := l.sure.within(s.from+grace, s.to); led.total() > 0 {
			v.At = led[0].from
			v.Text = fmt.Sprintf("%s still led at %s over %s, although the pooler had been reloaded at %s into a mode that does not keep a session; a heartbeat with its deadline and the probe's wait allow %s",
				l.who, sec(led[0].from), route, sec(s.from), sec(grace))
			v.Cause = "The heartbeat asks for the backend and the lock, which an idle pool answers as before. Repeat the probe's notification with each heartbeat: a session that is no longer pinned does not hear it."
			return v, true
		}
	}
	return v, false
}

const causeProbe = "There is no probe, or one that an idle pooler fools: it hands the same backend to one client after the other, so that statements from the client itself look pinned. Let a second connection notify the silent first one: what arrives on it proves the session."

func (w *world) refused(f *finding, p *probe) {
	if fs := w.inPlay(p.replica, p.from()-w.allow, p.end.At); len(fs) > 0 {
		return
	}
	if w.live && w.h.Stalled > w.allow {
		f.doubt("the host stalled for %s, longer than the allowance of %s, so that a refusal by %s proves nothing", sec(w.h.Stalled), sec(w.allow), p.who)
		return
	}
	f.violated(sim.Violation{
		At: p.end.At, Replicas: replicas(p.replica), Events: seqs(p.begin, p.end),
		Text:  fmt.Sprintf("%s refused %s at %s as unstable, although it keeps its session and no fault was in play", p.who, w.route(p.session), sec(p.end.At)),
		Cause: "The probe tells poolers by a sign that session mode has too, such as a backend number that differs from the one in the handshake. Test the property that the lock needs, not the pooler's face.",
	})
}

package reports

import (
	"fmt"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A snapshot is how things stand after an event: what the stepper shows. Only those that differ from the one before are kept.
type snapshot struct {
	Replicas [][2]string `json:"r"` // class and words, in order of the replicas
	Lock     string      `json:"l"` // who holds it, by the server
	Faults   string      `json:"f"` // which are in play
}

// snapshots follows the history. after says, by an event's number, which of them holds after it. Classes: down, up, lead,
// paused.
func snapshots(h *sim.History, replicas []int) (list []snapshot, after map[int]int) {
	type standing struct {
		up, paused, leads bool
		life              int
		term              int64
	}
	now := map[int]*standing{}
	for _, r := range replicas {
		now[r] = &standing{life: 1}
	}
	lock, inPlay := "unknown", []int{}
	after = map[int]int{}
	for _, e := range h.Events {
		s := now[e.Replica]
		switch {
		case e.Kind == sim.EvHeld:
			lock = "nobody"
			if who, _, ok := sessionOwner(e.Session); ok {
				lock = who
			} else if e.Session != "" {
				lock = sessionWords(e.Session)
			}
		case e.Kind == sim.EvFault && e.Op == sim.OpApplied:
			if lasting(h, e.Fault) {
				inPlay = append(inPlay, e.Fault)
			}
		case e.Kind == sim.EvFault && e.Op == sim.OpHealed:
			inPlay = slices.DeleteFunc(inPlay, func(f int) bool { return f == e.Fault })
		case s == nil:
		case e.Kind == sim.EvUp:
			*s = standing{up: true, life: e.Incarnation}
		case e.Kind == sim.EvDown:
			*s = standing{life: e.Incarnation}
		case e.Kind == sim.EvPaused:
			s.paused = true
		case e.Kind == sim.EvResumed:
			s.paused = false
		case e.Kind == sim.EvLead:
			s.leads, s.term = true, e.Term
		case e.Kind == sim.EvEnd:
			s.leads = false
		}
		next := snapshot{Lock: lock}
		for _, r := range replicas {
			s := now[r]
			class, words := "up", sim.Who(r, s.life)+" stands by"
			switch {
			case !s.up:
				class, words = "down", sim.Who(r, s.life)+" is down"
			case s.leads && s.term > 0:
				class, words = "lead", fmt.Sprintf("%s leads, term %d", sim.Who(r, s.life), s.term)
			case s.leads:
				class, words = "lead", sim.Who(r, s.life)+" leads"
			}
			if s.paused {
				class, words = class+" paused", words+", paused"
			}
			next.Replicas = append(next.Replicas, [2]string{class, words})
		}
		for i, f := range inPlay {
			if i > 0 {
				next.Faults += ", "
			}
			next.Faults += string(h.Header.Plan.Faults[f-1].Kind)
		}
		if n := len(list); n == 0 || list[n-1].Lock != next.Lock || list[n-1].Faults != next.Faults || !slices.Equal(list[n-1].Replicas, next.Replicas) {
			list = append(list, next)
		}
		after[e.Seq] = len(list) - 1
	}
	return list, after
}

// key reports whether an event is part of the story; the rest is the routine of attempts that find the lock taken, good
// heartbeats, and rows published as they should be.
func key(e sim.Event) bool {
	switch e.Kind {
	case sim.EvUp, sim.EvDown, sim.EvPaused, sim.EvResumed, sim.EvLead, sim.EvEnd, sim.EvTerm, sim.EvHeld, sim.EvNote:
		return true
	case sim.EvFault:
		return e.Op != sim.OpPlanned
	case sim.EvProbe:
		return e.Op == sim.OpEnd
	case sim.EvUnlock:
		return e.Op == sim.OpEnd
	case sim.EvAttempt:
		return e.Op == sim.OpEnd && e.Answer != sim.Busy
	case sim.EvBeat:
		return e.Answer == sim.BeatLost
	case sim.EvEffect:
		return e.Op == sim.OpEnd && e.Outcome != sim.OutcomeDone
	case sim.EvTick:
		return e.Op == sim.OpEnd && e.Outcome != sim.OutcomeOK && e.Outcome != ""
	}
	return false
}

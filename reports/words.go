package reports

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/sim"
)

// seconds is an instant or a span as the reports write it: 12.345s.
func seconds(d sim.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) + "s" }

// span is a length of time, short: 3.2s, 12ms.
func span(d sim.Duration) string {
	switch t := d.D(); {
	case t != 0 && t < time.Millisecond && t > -time.Millisecond:
		return t.String()
	case t < time.Second && t > -time.Second:
		return strconv.FormatFloat(float64(t)/float64(time.Millisecond), 'f', -1, 64) + "ms"
	default:
		return strconv.FormatFloat(math.Round(t.Seconds()*1e6)/1e6, 'f', -1, 64) + "s"
	}
}

// sessionOwner is the replica that a session belongs to, as sim.Who writes it, and what the session is for.
func sessionOwner(name string) (who, use string, ok bool) {
	replica, life, use, ok := sim.ParseSession(name)
	if !ok {
		return "", "", false
	}
	return sim.Who(replica, life), use, true
}

// sessionWords is a session in words: "r1's lease session". An unknown name is given as it is.
func sessionWords(name string) string {
	who, use, ok := sessionOwner(name)
	switch {
	case ok:
		return who + "'s " + use + " session"
	case name == "?":
		return "somebody unknown"
	case name == "":
		return "nobody"
	}
	return strconv.Quote(name)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// words says an event in plain English, without its time. faults are the plan's, by whose numbers events name them.
func words(e sim.Event, faults []sim.Fault) string {
	switch e.Kind {
	case sim.EvUp, sim.EvDown, sim.EvPaused, sim.EvResumed:
		return lifeWords(e)
	case sim.EvSession, sim.EvProbe, sim.EvAttempt, sim.EvUnlock, sim.EvStatement:
		return sessionEventWords(e)
	case sim.EvLead, sim.EvBeat, sim.EvEnd, sim.EvIdle, sim.EvTick:
		return leaderWords(e)
	case sim.EvEffect:
		return effectWords(e)
	case sim.EvTerm:
		return fmt.Sprintf("term %d of %s begins%s%s", e.Term, cmp.Or(e.Role, "the role"), by(e.Session), commit(e))
	case sim.EvHeld:
		if e.Session == "" {
			return "on the server, nobody holds the lock"
		}
		return "on the server, the lock is held by " + sessionWords(e.Session)
	case sim.EvFault:
		return faultWords(e, faults)
	case sim.EvNote:
		return e.Text
	}
	return strings.TrimSpace(string(e.Kind) + " " + e.Op + " " + e.Text)
}

func by(session string) string {
	who, _, ok := sessionOwner(session)
	if !ok {
		return ""
	}
	return " for " + who
}

func commit(e sim.Event) string {
	if e.Commit == 0 {
		return ""
	}
	return fmt.Sprintf(" (commit %d)", e.Commit)
}

func lifeWords(e sim.Event) string {
	cause := ""
	if e.Fault > 0 {
		cause = fmt.Sprintf(" by fault %d", e.Fault)
	}
	verb := map[sim.EventKind]string{sim.EvUp: "is started", sim.EvDown: "is gone, ended", sim.EvPaused: "is paused", sim.EvResumed: "goes on"}[e.Kind]
	switch {
	case e.Kind == sim.EvUp && e.Incarnation > 1:
		verb = "is started again"
	case e.Kind == sim.EvDown && e.Fault == 0:
		verb = "is gone"
	case e.Kind == sim.EvResumed && e.Fault > 0:
		verb, cause = "goes on", fmt.Sprintf(", fault %d is over", e.Fault)
	}
	return e.Who() + " " + verb + cause + because(e.Reason)
}

func sessionEventWords(e sim.Event) string {
	who := e.Who()
	switch e.Kind {
	case sim.EvSession:
		if e.Op == sim.OpOpen {
			route := ""
			if e.Route != "" {
				route = " over " + string(e.Route)
			}
			return fmt.Sprintf("%s opens a session for %s%s", who, cmp.Or(e.Use, "something"), route)
		}
		return fmt.Sprintf("%s's %s session is closed%s", who, cmp.Or(e.Use, "database"), because(e.Reason))
	case sim.EvProbe:
		if e.Op == sim.OpBegin {
			return who + " begins to probe whether its session is stable"
		}
		return fmt.Sprintf("%s's probe finds the session %s%s", who, e.Answer, because(e.Reason))
	case sim.EvAttempt:
		if e.Op == sim.OpBegin {
			return who + " asks for the lock"
		}
		return who + " " + attemptWords(e)
	case sim.EvUnlock:
		if e.Op == sim.OpBegin {
			return who + " gives the lock back"
		}
		return fmt.Sprintf("%s's unlock is answered: %s%s", who, e.Answer, because(e.Reason))
	default:
		s := fmt.Sprintf("%s: %s", sessionWords(e.Session), strings.Join(strings.Fields(e.SQL), " "))
		if e.Answer != "" {
			s += " → " + e.Answer
		}
		if len(e.BlockedBy) > 0 {
			s += " (waited for " + strings.Join(e.BlockedBy, ", ") + ")"
		}
		return s
	}
}

func attemptWords(e sim.Event) string {
	switch e.Answer {
	case sim.Acquired:
		return "gets the lock"
	case sim.Busy:
		return "is told that the lock is taken"
	case sim.Shared:
		return "is refused: its own server session holds the lock already, so it shares one with somebody"
	case sim.Moved:
		return "is refused: its session has moved to another server session"
	}
	return "asked for the lock in vain: " + cmp.Or(e.Reason, e.Answer, "no answer")
}

func leaderWords(e sim.Event) string {
	who := e.Who()
	switch e.Kind {
	case sim.EvLead:
		if e.Term == 0 {
			return who + " begins to lead"
		}
		return fmt.Sprintf("%s begins to lead, in term %d", who, e.Term)
	case sim.EvBeat:
		switch {
		case e.Op == sim.OpBegin:
			return who + " sends a heartbeat"
		case e.Answer == sim.BeatOK && e.Trusted > 0:
			return fmt.Sprintf("%s's heartbeat is good; it trusts its lease until %s", who, seconds(e.Trusted))
		case e.Answer == sim.BeatOK:
			return who + "'s heartbeat is good"
		}
		return who + "'s heartbeat is lost" + because(e.Reason)
	case sim.EvEnd:
		return who + " stops leading" + because(e.Reason)
	case sim.EvIdle:
		return "all work of " + who + " has stopped"
	}
	switch e.Op {
	case sim.OpBegin:
		return who + " begins a tick"
	case sim.OpListed:
		return fmt.Sprintf("%s finds %d due", who, e.N)
	}
	if e.Outcome == sim.OutcomeOK || e.Outcome == "" {
		return fmt.Sprintf("%s's tick ends, %d published", who, e.N)
	}
	return fmt.Sprintf("%s's tick ends early, %d published: %s%s", who, e.N, e.Outcome, because(e.Reason))
}

func effectWords(e sim.Event) string {
	if e.Source == sim.FromLedger || e.Op == sim.OpCommit {
		who, _, ok := sessionOwner(e.Session)
		if !ok {
			who = cmp.Or(e.Session, "somebody")
		}
		term := ""
		if e.Term > 0 {
			term = fmt.Sprintf(" in term %d", e.Term)
		}
		return fmt.Sprintf("row %d is published by %s%s%s", e.Row, who, term, commit(e))
	}
	if e.Op == sim.OpBegin {
		return fmt.Sprintf("%s begins to publish row %d", e.Who(), e.Row)
	}
	switch e.Outcome {
	case sim.OutcomeDone:
		return fmt.Sprintf("%s is told that row %d is published", e.Who(), e.Row)
	case sim.OutcomeRefused:
		return fmt.Sprintf("%s may not publish row %d%s", e.Who(), e.Row, because(e.Reason))
	}
	return fmt.Sprintf("%s does not learn whether row %d is published%s", e.Who(), e.Row, because(e.Reason))
}

func faultWords(e sim.Event, faults []sim.Fault) string {
	name, plan := fmt.Sprintf("fault %d", e.Fault), ""
	if e.Fault >= 1 && e.Fault <= len(faults) {
		name += " (" + string(faults[e.Fault-1].Kind) + ")"
		plan = ": " + faults[e.Fault-1].String()
	}
	on := ""
	if len(e.Targets) > 0 {
		list := make([]string, len(e.Targets))
		for i, r := range e.Targets {
			list[i] = sim.Who(r, 1)
		}
		on = " on " + strings.Join(list, ", ")
	}
	switch e.Op {
	case sim.OpPlanned:
		return name + " is due" + plan
	case sim.OpApplied:
		return name + " takes effect" + on + because(e.Text)
	case sim.OpHealed:
		return name + " is over"
	case sim.OpMoot:
		return name + " strikes nothing" + because(e.Reason)
	case sim.OpFailed:
		return name + " could not be carried out" + because(e.Reason)
	}
	return name + " " + e.Op
}

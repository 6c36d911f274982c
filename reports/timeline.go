package reports

import (
	"fmt"
	"math"
	"strconv"

	"github.com/seed-aafb3a99/simrun/sim"
)

// The picture's measures, in pixels. The script lays it out anew for the width there is; without it this is what is shown.
const (
	chartWidth  = 1120
	gutter      = 78
	rightPad    = 12
	axisHeight  = 22
	faultLane   = 26
	lockLane    = 28
	replicaLane = 50
	sqlLane     = 14
	charWidth   = 6.3
)

// A timeline is the picture of a history: geometry only, made into SVG by the template. Times are in milliseconds; whatever
// has one carries it, so that the script can zoom.
type timeline struct {
	Width, Height  int
	Left, Right    int // of the plot
	End            string
	EndWords       string
	Lanes          []lane
	Bars           []bar
	FaultNames     []barName
	Marks          []mark
	Rules          []rule
	Ticks          []tick
	Words          []string // the picture in sentences
	FocusA, FocusB string   // what to zoom to first, "" for all
	Violation      string   // the instant, ""
	ViolationX     float64
	FlagY          int
	Statements     bool
	SomePaused     bool
	SomeDistrusted bool
	SomeTwice      bool
}

type lane struct {
	Y, H   int
	Mid    int
	Label  string
	Detail string
	Class  string
}

type bar struct {
	A, B   string
	X, W   float64
	Y, H   int
	Class  string
	Label  string
	LabelX float64
	LabelY int
	Fits   bool
	Tip    string
	Seq    int
}

// A barName is a fault's name, in the room until the next fault.
type barName struct {
	A, B  string
	X     float64
	Y     int
	Label string
	Fits  bool
}

type mark struct {
	A     string
	X     float64
	Y     float64
	Glyph string
	Class string
	Seq   int
}

type rule struct {
	A     string
	X     float64
	Y, To int
	Class string
	Label string
}

type tick struct {
	A     string
	X     float64
	Label string
}

// ms is an instant in milliseconds, as short as it is exact to a microsecond.
func ms(d sim.Duration) string {
	return strconv.FormatFloat(math.Round(float64(d)/1e3)/1e3, 'f', -1, 64)
}

// drawer places things on the picture.
type drawer struct {
	*timeline
	h     *sim.History
	c     *course
	lanes map[int]int // y of a replica's lane
	locks int
	fault int
}

func (d *drawer) x(t sim.Duration) float64 {
	w := float64(d.Right - d.Left)
	return math.Round((float64(d.Left)+w*float64(t)/float64(d.c.end))*10) / 10
}

// draw makes the picture. kept are the events that the page lists; blamed are those that the violation rests on.
func draw(h *sim.History, c *course, kept []sim.Event, blamed map[int]bool, violation *sim.Violation) *timeline {
	d := &drawer{timeline: &timeline{Width: chartWidth, Left: gutter, Right: chartWidth - rightPad, End: ms(c.end), EndWords: seconds(c.end)}, h: h, c: c, lanes: map[int]int{}}
	for _, e := range kept {
		d.Statements = d.Statements || e.Kind == sim.EvStatement
	}
	d.layout()
	d.bars()
	for _, e := range kept {
		d.event(e, blamed[e.Seq])
	}
	d.rules(violation)
	d.ticks()
	d.words()
	d.focus(violation)
	return d.timeline
}

func (d *drawer) layout() {
	y := axisHeight
	add := func(height int, label, detail, class string) int {
		at := y
		d.Lanes = append(d.Lanes, lane{Y: y, H: height, Mid: y + height/2 + 4, Label: label, Detail: detail, Class: class})
		y += height
		return at
	}
	d.fault = add(faultLane, "faults", "", "faults")
	for _, r := range d.c.replicas {
		height := replicaLane
		if d.Statements {
			height += sqlLane
		}
		d.lanes[r] = add(height, sim.Who(r, 1), "", replicaClass(r))
	}
	d.locks = add(lockLane, "pg_locks", "", "locks")
	d.Height = y + 4
}

// replicaClass is the class that colours what belongs to a replica; there are eight colours.
func replicaClass(r int) string {
	if r < 1 {
		return "r0"
	}
	return fmt.Sprintf("r%d", (r-1)%8+1)
}

func (d *drawer) bar(s stretch, y, h int, class string) {
	b := bar{A: ms(s.from), B: ms(s.to), X: d.x(s.from), Y: y, H: h, Class: class, Label: s.label, Tip: s.words, Seq: s.seq}
	b.W = max(1.5, math.Round((d.x(s.to)-b.X)*10)/10)
	b.LabelX, b.LabelY = b.X+5, y+h/2+4
	b.Fits = b.W > float64(len(b.Label))*charWidth+8
	d.Bars = append(d.Bars, b)
}

func (d *drawer) bars() {
	for _, s := range d.c.twice {
		d.bar(s, d.fault+faultLane, d.locks-d.fault-faultLane, "twice")
		d.SomeTwice = true
	}
	for _, s := range d.c.lives {
		s.label = ""
		if y, ok := d.lanes[s.replica]; ok {
			d.bar(s, y+36, 3, "life "+replicaClass(s.replica))
		}
	}
	for _, s := range d.c.beliefs {
		if y, ok := d.lanes[s.replica]; ok {
			d.bar(s, y+15, 15, "belief "+replicaClass(s.replica))
		}
	}
	for _, s := range d.c.trust {
		if y, ok := d.lanes[s.replica]; ok {
			d.bar(s, y+15, 15, "distrust")
			d.SomeDistrusted = true
		}
	}
	for _, s := range d.c.pauses {
		if y, ok := d.lanes[s.replica]; ok {
			d.bar(s, y+12, 28, "pause")
			d.SomePaused = true
		}
	}
	for _, s := range d.c.holds {
		d.bar(s, d.locks+7, 15, "hold "+replicaClass(s.replica))
	}
	for i, s := range d.c.faults {
		name := barName{A: ms(s.from), X: d.x(s.from) + 8, Y: d.fault + 17, Label: s.label}
		if s.to > s.from {
			s.label = "" // named below, as the faults that are over at once are
			d.bar(s, d.fault+6, 14, "fault")
		}
		next := d.c.end
		if i+1 < len(d.c.faults) {
			next = d.c.faults[i+1].from
		}
		name.B, name.Fits = ms(next), d.x(next)-name.X > float64(len(name.Label))*charWidth+8
		d.FaultNames = append(d.FaultNames, name)
	}
}

// event draws the mark of an event, if it has one.
func (d *drawer) event(e sim.Event, blamed bool) {
	replica := e.Replica
	if e.Source == sim.FromLedger {
		replica, _, _, _ = sim.ParseSession(e.Session)
	}
	y, ok := d.lanes[replica]
	if e.Kind == sim.EvStatement && ok {
		class := "sql"
		if len(e.BlockedBy) > 0 {
			class += " blocked"
		}
		d.bar(stretch{from: e.At, to: e.At + e.Lasts, seq: e.Seq}, y+replicaLane-5, 9, class)
		return
	}
	glyph, dy, class := glyphOf(e)
	if glyph == "" || !ok && e.Kind != sim.EvFault {
		return
	}
	if e.Kind == sim.EvFault {
		y, class = d.fault, "faultmark"
	}
	if blamed {
		class += " blamed"
	}
	d.Marks = append(d.Marks, mark{A: ms(e.At), X: d.x(e.At), Y: float64(y) + dy, Glyph: glyph, Class: class + " " + replicaClass(replica), Seq: e.Seq})
}

// glyphOf is the sign of an event, how far down its lane it stands, and its class.
func glyphOf(e sim.Event) (glyph string, dy float64, class string) {
	switch e.Kind {
	case sim.EvEffect:
		switch {
		case e.Source == sim.FromLedger:
			return "dot", 8.5, "publish"
		case e.Op == sim.OpEnd && e.Outcome != sim.OutcomeDone:
			return "bad", 8.5, "notdone"
		}
	case sim.EvAttempt:
		if e.Op != sim.OpEnd {
			return "", 0, ""
		}
		switch e.Answer {
		case sim.Busy:
			return "tick", 37.5, "busy"
		case sim.Acquired:
			return "up", 37.5, "acquired"
		}
		return "bad", 37.5, "refused"
	case sim.EvProbe:
		switch {
		case e.Op != sim.OpEnd:
		case e.Answer == sim.Stable:
			return "ring", 37.5, "probe"
		default:
			return "bad", 37.5, "refused"
		}
	case sim.EvBeat:
		switch {
		case e.Op == sim.OpBegin:
		case e.Answer == sim.BeatOK:
			return "beat", 30, "beat"
		default:
			return "bad", 30, "refused"
		}
	case sim.EvDown:
		if e.Fault == 0 {
			return "tick", 37.5, "over" // the run's end, or its own
		}
		return "bad", 37.5, "down"
	case sim.EvFault:
		switch e.Op {
		case sim.OpApplied:
			return "diamond", 13, "faultmark"
		case sim.OpMoot, sim.OpFailed:
			return "hollow", 13, "faultmark"
		}
	}
	return "", 0, ""
}

func (d *drawer) rules(v *sim.Violation) {
	bottom := d.Height - 4
	for _, s := range d.c.faults {
		d.Rules = append(d.Rules, rule{A: ms(s.from), X: d.x(s.from), Y: d.fault + 18, To: bottom, Class: "faultline"})
	}
	if v != nil {
		d.Violation, d.ViolationX, d.FlagY = ms(v.At), d.x(v.At), d.Height+8
		d.Height += 14
		d.Rules = append(d.Rules, rule{A: ms(v.At), X: d.x(v.At), Y: axisHeight, To: bottom, Class: "violation"})
	}
}

// ticks are the axis of the whole run; the script makes its own when it zooms.
func (d *drawer) ticks() {
	step := niceStep(d.c.end.Seconds() / 10)
	for i := range 20 {
		t := sim.Duration(float64(i) * step * 1e9)
		if t > d.c.end {
			return
		}
		d.Ticks = append(d.Ticks, tick{A: ms(t), X: d.x(t), Label: strconv.FormatFloat(math.Round(float64(i)*step*1e6)/1e6, 'f', -1, 64) + "s"})
	}
}

// niceStep is the next of 1, 2, 5, 10, 20, ... that is at least s.
func niceStep(s float64) float64 {
	if s <= 0 || math.IsNaN(s) || math.IsInf(s, 0) {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(s)))
	for _, m := range []float64{1, 2, 5, 10} {
		if v := m * base; v >= s*0.999 {
			return v
		}
	}
	return base * 10
}

// words is the picture for those who do not see it. The longest of it is bounded; the events say it all.
func (d *drawer) words() {
	for _, list := range [][]stretch{d.c.twice, d.c.faults, d.c.beliefs, d.c.pauses, d.c.holds, d.c.lives} {
		for i, s := range list {
			if i == 40 {
				d.Words = append(d.Words, fmt.Sprintf("and %d more of the kind", len(list)-i))
				break
			}
			d.Words = append(d.Words, s.words)
		}
	}
}

// focus chooses the piece around the violation and the last fault before it.
func (d *drawer) focus(v *sim.Violation) {
	if v == nil {
		return
	}
	from := v.At
	for _, f := range d.c.faults {
		if f.from <= v.At {
			from = min(from, f.from)
		}
	}
	to := v.At
	for _, s := range d.c.twice {
		if s.from > v.At && s.from <= v.At+d.c.end/4 { // what came of it is worth more than a thousand words
			to = s.from
			break
		}
	}
	pad := max((v.At-from)/4, d.c.end/20)
	a, b := max(from-pad, 0), min(to+pad*3/2, d.c.end)
	if b-a < d.c.end*3/4 {
		d.FocusA, d.FocusB = ms(a), ms(b)
	}
}

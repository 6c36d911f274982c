package sim

// A Status is an invariant's answer. The zero value is inconclusive and never passes.
type Status int

// The statuses, the worst last.
const (
	StatusInconclusive Status = iota
	StatusHeld
	StatusViolated
)

func (s Status) String() string {
	switch s {
	case StatusHeld:
		return "held"
	case StatusViolated:
		return "violated"
	}
	return "inconclusive"
}

// MarshalText writes held, violated or inconclusive.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes; anything else is inconclusive.
func (s *Status) UnmarshalText(b []byte) error {
	*s = StatusInconclusive
	switch string(b) {
	case "held":
		*s = StatusHeld
	case "violated":
		*s = StatusViolated
	}
	return nil
}

// A Verdict is what an invariant says of one history.
type Verdict struct {
	Invariant  string      `json:"invariant"`
	Status     Status      `json:"status"`
	Examined   int         `json:"examined"`           // how many things were looked at; 0 is inconclusive
	Reason     string      `json:"reason,omitempty"`   // why inconclusive
	Note       string      `json:"note,omitempty"`     // what a reader should know of how it was judged; never a verdict
	Measures   []Measure   `json:"measures,omitempty"` // figures that are always shown, such as the overlap of beliefs
	Violations []Violation `json:"violations,omitempty"`
}

// A Measure is a figure with its bound.
type Measure struct {
	Name  string   `json:"name"`
	Value Duration `json:"value"`
	Bound Duration `json:"bound"`
}

// A Violation says who, when, which events, in words a colleague understands, and what usually causes it.
type Violation struct {
	Text     string   `json:"text"`            // the sentence; no pid, port or address in it
	Cause    string   `json:"cause,omitempty"` // what usually causes it
	At       Duration `json:"at"`
	Replicas []int    `json:"replicas,omitempty"`
	Events   []int    `json:"events,omitempty"` // Seq of the events it rests on
}

package sim

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// HistoryVersion is the version of the history's format.
const HistoryVersion = 1

// A Header is the first line of a history: everything a judge needs besides the events.
type Header struct {
	V         int               `json:"v"`
	Scenario  Scenario          `json:"scenario"` // resolved
	Plan      Plan              `json:"plan"`
	Engine    string            `json:"engine"` // virtual or live
	Route     Route             `json:"route"`
	Impl      string            `json:"impl"`
	Terms     bool              `json:"terms"` // the implementation bumps and fences terms
	Seed      uint64            `json:"seed"`
	Schedule  int               `json:"schedule"`            // index of the plan under the seed
	Intervals Intervals         `json:"intervals"`           // as the replicas had them, multiplied by the time scale already
	TimeScale float64           `json:"time_scale"`          // 1 in the virtual engine; the times in Scenario and Plan are nominal, but BeliefOverlap
	Allowance Duration          `json:"allowance,omitempty"` // live: what C of failover and the delivery of a message may take
	Versions  map[string]string `json:"versions,omitempty"`
}

// A History is what happened in one run.
type History struct {
	Header   Header
	Events   []Event // in order of At, then Seq
	Complete bool    // the closing line is there; a history without it was cut short and can hold nothing
	// Stalled is the longest time the host kept the live engine from running; see invariants.Failover.
	Stalled Duration
}

// closing is the last line of a history file.
type closing struct {
	Closed  bool     `json:"closed"`
	Stalled Duration `json:"stalled,omitempty"`
}

// A Recorder appends a history to a writer as it happens, one JSON value a line: the header, the events, a closing line.
// It is safe for concurrent use, and keeps what it wrote.
type Recorder struct {
	mu     sync.Mutex
	w      io.Writer
	buf    bytes.Buffer // of the present line
	enc    *json.Encoder
	err    error
	hist   History
	tokens map[string]string
}

// NewRecorder writes the header to w.
func NewRecorder(w io.Writer, h Header) (*Recorder, error) {
	h.V = HistoryVersion
	r := &Recorder{w: w, hist: History{Header: h, Events: make([]Event, 0, 512)}, tokens: map[string]string{}}
	r.enc = json.NewEncoder(&r.buf)
	r.line(h)
	return r, r.err
}

func (r *Recorder) line(v any) {
	if r.err != nil {
		return
	}
	r.buf.Reset()
	err := r.enc.Encode(v)
	if err == nil {
		_, err = r.w.Write(r.buf.Bytes())
	}
	if err != nil {
		r.err = fmt.Errorf("write history: %w", err)
	}
}

func (r *Recorder) event(e *Event) {
	if r.err != nil {
		return
	}
	r.buf.Reset()
	r.buf.Write(append(e.appendJSON(r.buf.AvailableBuffer()), '\n'))
	if _, err := r.w.Write(r.buf.Bytes()); err != nil {
		r.err = fmt.Errorf("write history: %w", err)
	}
}

// Add appends an event, giving it its Seq and replacing its Token by an ordinal. It returns the event as recorded.
func (r *Recorder) Add(e Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Token != "" {
		name, ok := r.tokens[e.Token]
		if !ok {
			name = fmt.Sprintf("t%d", len(r.tokens)+1)
			r.tokens[e.Token] = name
		}
		e.Token = name
	}
	e.Seq = len(r.hist.Events) + 1
	r.hist.Events = append(r.hist.Events, e)
	r.event(&r.hist.Events[len(r.hist.Events)-1])
	return e
}

// Stalled notes that the host kept the engine from running for d; the longest counts.
func (r *Recorder) Stalled(d Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hist.Stalled = max(r.hist.Stalled, d)
}

// Close writes the closing line and returns the history, its events in order of time.
func (r *Recorder) Close() (*History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line(closing{Closed: true, Stalled: r.hist.Stalled})
	r.hist.Complete = r.err == nil
	h := r.hist
	h.Events = slices.Clone(h.Events)
	h.sort()
	return &h, r.err
}

func (h *History) sort() {
	slices.SortStableFunc(h.Events, func(a, b Event) int {
		switch {
		case a.At != b.At:
			if a.At < b.At {
				return -1
			}
			return 1
		default:
			return a.Seq - b.Seq
		}
	})
}

// ErrNotHistory is in the chain of every error of ReadHistory that is about the content.
var ErrNotHistory = errors.New("not a simrun history")

// ReadHistory reads what a Recorder wrote. A history that was cut short is returned with Complete false.
func ReadHistory(rd io.Reader) (*History, error) {
	br := bufio.NewReaderSize(rd, 1<<16)
	var h History
	for n := 1; ; n++ {
		line, err := br.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read history: %w", err)
		}
		last := errors.Is(err, io.EOF)
		if len(line) == 0 {
			if n == 1 {
				return nil, fmt.Errorf("%w: the file is empty", ErrNotHistory)
			}
			break
		}
		if n == 1 {
			if err := json.Unmarshal(line, &h.Header); err != nil || h.Header.V == 0 {
				return nil, fmt.Errorf("%w: the first line is no header", ErrNotHistory)
			}
			if h.Header.V != HistoryVersion {
				return nil, fmt.Errorf("%w of this version: it has format %d, this simrun reads %d", ErrNotHistory, h.Header.V, HistoryVersion)
			}
			continue
		}
		var e struct {
			Event
			closing
		}
		if err := json.Unmarshal(line, &e); err != nil {
			if last {
				break // the writer was killed in the middle of a line
			}
			return nil, fmt.Errorf("%w: line %d: %w", ErrNotHistory, n, err)
		}
		if h.Complete {
			return nil, fmt.Errorf("%w: line %d comes after the closing line", ErrNotHistory, n)
		}
		if e.Closed {
			h.Complete, h.Stalled = true, e.closing.Stalled
			continue
		}
		if e.Kind == "" {
			return nil, fmt.Errorf("%w: line %d is no event", ErrNotHistory, n)
		}
		if e.Seq != len(h.Events)+1 {
			return nil, fmt.Errorf("%w: line %d has event %d where event %d belongs: lines are missing", ErrNotHistory, n, e.Seq, len(h.Events)+1)
		}
		h.Events = append(h.Events, e.Event)
		if last {
			break
		}
	}
	h.sort()
	return &h, nil
}

// Digest is a hash over the events. In the virtual engine the same plan gives the same digest.
func (h *History) Digest() string {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for _, e := range h.Events {
		if err := enc.Encode(e); err != nil {
			panic(err) // an Event holds nothing that JSON cannot express
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// Count counts a metric in the history.
func (h *History) Count(m Metric) (n int) {
	for _, e := range h.Events {
		switch {
		case (m == Elections || m == LeaderChanges) && e.Kind == EvLead,
			m == Refusals && e.Kind == EvProbe && e.Op == OpEnd && e.Answer == Unstable,
			m == Publishes && e.Kind == EvEffect && e.Source == FromLedger,
			m == FaultsApplied && e.Kind == EvFault && e.Op == OpApplied:
			n++
		}
	}
	if m == LeaderChanges && n > 0 {
		n--
	}
	return n
}

// FirstDifference tells of the first event that is not the same in two histories of one plan.
func (h *History) FirstDifference(other *History) string {
	for i := range max(len(h.Events), len(other.Events)) {
		switch {
		case i >= len(h.Events):
			return "the second run goes on with " + brief(other.Events[i])
		case i >= len(other.Events):
			return "the first run goes on with " + brief(h.Events[i])
		case fmt.Sprintf("%+v", h.Events[i]) != fmt.Sprintf("%+v", other.Events[i]):
			return fmt.Sprintf("%s / %s", brief(h.Events[i]), brief(other.Events[i]))
		}
	}
	return "none in the events"
}

func brief(e Event) string {
	s := fmt.Sprintf("%s %s %s", e.At, e.Kind, e.Op)
	if e.Replica > 0 {
		s += " " + e.Who()
	}
	for _, v := range []string{e.Session, e.SQL, e.Answer, e.Reason, e.Text} {
		if v != "" {
			s += " " + v
		}
	}
	return s
}

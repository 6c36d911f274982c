package netfault

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// A session follows the Postgres protocol of one connection in both directions: which requests have been sent, what SQL
// they execute, and which part of the server's stream answers which.
//
// A request is what one ReadyForQuery answers: a simple query, or the messages of the extended protocol up to a Sync.
// It is read before its bytes can leave the link, so nothing of its answer comes before it is known.
type session struct {
	conn *conn

	mu       sync.Mutex
	name     string // application_name
	opaque   bool   // cannot be read (any more): encrypted, or not Postgres
	asked    bool   // the client has asked for encryption; one byte of answer is to come
	copying  bool   // the server takes COPY data: it ignores Sync
	requests []*request

	fromClient, fromServer stretch

	statements, portals map[string]string // name to SQL, as the client has defined them
}

// A stretch is one direction's stream: how much has been seen of it, and its messages.
type stretch struct {
	framer
	seen    int64 // bytes
	message int64 // where the current message began
}

// A request is what one ReadyForQuery answers.
type request struct {
	start    int64    // where it begins in the client's stream, or goes on after a Flush
	sql      []string // what it executes and has not been held against the traps
	executes int
	complete bool // its last message has been seen
	loose    bool // it goes through in pieces: it copies, and the client waits for an answer on the way
	flushed  bool // the client has asked for the answers so far

	after   []*Trap  // traps for its answer
	barrier *barrier // where they hold it
	results int      // answered executes
}

func newSession(c *conn) *session {
	s := &session{conn: c, statements: map[string]string{}, portals: map[string]string{}}
	s.fromServer.typed = true
	return s
}

// sent reads what the client has sent. It returns the barriers that are now in the way, and from where on bytes belong
// to a request that is not whole yet (seen: there is none).
func (s *session) sent(b []byte) (barriers []*barrier, whole int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.fromClient
	for len(b) > 0 && !s.opaque {
		if !f.within() {
			f.message = f.seen
		}
		n, whole, err := f.next(b)
		f.seen, b = f.seen+int64(n), b[n:]
		switch {
		case err != nil:
			s.blind()
		case whole && f.typed:
			barriers = append(barriers, s.clientMessage()...)
		case whole:
			s.opening()
		}
	}
	f.seen += int64(len(b))
	switch open := s.open(); {
	case s.opaque:
		return barriers, f.seen
	case open != nil && !open.loose:
		return barriers, open.start
	case f.within():
		return barriers, f.message
	}
	return barriers, f.seen
}

// The codes of messages that open a connection.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// opening reads a message that opens a connection.
func (s *session) opening() {
	body := s.fromClient.body
	if len(body) < 4 {
		s.blind()
		return
	}
	switch code := binary.BigEndian.Uint32(body); {
	case code == sslRequest || code == gssRequest:
		s.asked = true
	case code>>16 == 3:
		s.fromClient.typed = true
		for key, rest := text(body[4:]); key != ""; key, rest = text(rest) {
			var value string
			if value, rest = text(rest); key == "application_name" {
				s.name = value
			}
		}
		s.requests = append(s.requests, &request{complete: true})
	default: // cancelRequest has neither statements nor an answer; the rest is unknown
		s.blind()
	}
}

// blind gives up reading the connection.
func (s *session) blind() {
	s.opaque = true
	s.abandon()
}

// open is the request that is being sent, nil between requests.
func (s *session) open() *request {
	if n := len(s.requests); n > 0 && !s.requests[n-1].complete {
		return s.requests[n-1]
	}
	return nil
}

func (s *session) current() *request {
	r := s.open()
	if r == nil {
		r = &request{start: s.fromClient.message}
		s.requests = append(s.requests, r)
	}
	return r
}

// clientMessage reads a message of the client's.
func (s *session) clientMessage() []*barrier {
	body := s.fromClient.body
	switch s.fromClient.kind {
	case 'Q': // Query
		sql, _ := text(body)
		r := s.current()
		r.sql = append(r.sql, sql)
		return s.completed(r)
	case 'F': // FunctionCall
		return s.completed(s.current())
	case 'P': // Parse
		name, rest := text(body)
		s.statements[name], _ = text(rest)
		s.current()
	case 'B': // Bind
		portal, rest := text(body)
		statement, _ := text(rest)
		s.portals[portal] = s.statements[statement]
		s.current()
	case 'D': // Describe
		s.current()
	case 'C': // Close
		s.closes(body)
		s.current()
	case 'E': // Execute
		portal, _ := text(body)
		r := s.current()
		r.sql = append(r.sql, s.portals[portal])
		r.executes++
		if isCopy(s.portals[portal]) { // the server asks for the data without being asked to answer
			r.loose = true
			return s.match(r)
		}
	case 'H': // Flush
		if r := s.open(); r != nil && !s.copying {
			r.flushed = true
			return s.match(r)
		}
	case 'S': // Sync
		if !s.copying {
			return s.completed(s.current())
		}
	case 'c', 'f': // CopyDone, CopyFail
		s.copying = false
	}
	return nil
}

func (s *session) closes(body []byte) {
	if len(body) == 0 {
		return
	}
	name, _ := text(body[1:])
	switch body[0] {
	case 'S':
		delete(s.statements, name)
	case 'P':
		delete(s.portals, name)
	}
}

func isCopy(sql string) bool {
	f := strings.Fields(sql)
	return len(f) > 0 && strings.EqualFold(f[0], "copy")
}

func (s *session) completed(r *request) []*barrier {
	r.complete = true
	return s.match(r)
}

// match holds a request, or what has been sent of it up to here, against the traps.
func (s *session) match(r *request) (barriers []*barrier) {
	if len(r.sql) > 0 {
		before, after := s.conn.link.traps.match(s.conn, s.name, r.sql)
		r.after = append(r.after, after...)
		if len(before) > 0 {
			barriers = append(barriers, &barrier{at: r.start, traps: before, ready: true})
		}
	}
	r.sql, r.start = nil, s.fromClient.seen // what comes after a Flush is waited for, and counted, anew
	return barriers
}

// received reads what the server has sent. It returns the barriers that are now in the way.
func (s *session) received(b []byte) (barriers []*barrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.fromServer
	for len(b) > 0 && !s.opaque {
		if s.asked && b[0] != 'E' { // an E begins the error message of a server that knows no encryption
			s.asked = false
			if b[0] != 'N' {
				s.blind()
				break
			}
			f.seen, b = f.seen+1, b[1:]
			continue
		}
		if r := s.answering(); r != nil && r.barrier == nil && len(r.after) > 0 && !f.within() {
			r.barrier = &barrier{at: f.seen, traps: r.after}
			barriers = append(barriers, r.barrier)
		}
		n, whole, err := f.next(b)
		f.seen, b = f.seen+int64(n), b[n:]
		if err != nil {
			s.blind()
		} else if whole {
			s.serverMessage()
		}
	}
	f.seen += int64(len(b))
	return barriers
}

// answering is the request whose answer comes next, nil when the server owes none.
func (s *session) answering() *request {
	if len(s.requests) == 0 {
		return nil
	}
	return s.requests[0]
}

// serverMessage reads a message of the server's.
func (s *session) serverMessage() {
	r := s.answering()
	if r == nil {
		return // a notice, a notification, the reason why the server closes
	}
	switch s.fromServer.kind {
	case 'Z': // ReadyForQuery
		s.requests = slices.Delete(s.requests, 0, 1)
		s.copying = false
		r.answered()
	case 'G', 'W': // CopyInResponse, CopyBothResponse: the client has to see it before the answer can come
		if r.barrier != nil {
			r.barrier.at = s.fromServer.seen
		}
		s.copying = s.fromServer.kind == 'G'
		if s.copying && r.executes > 0 && r.complete && len(s.requests) == 1 {
			r.complete, r.loose = false, true // its Sync is ignored, so it ends with another
		}
	case 'C', 'I', 's', 'E': // CommandComplete, EmptyQueryResponse, PortalSuspended, ErrorResponse
		r.results++
		if s.fromServer.kind == 'E' { // what follows in the request is not executed
			r.results = max(r.results, r.executes)
		}
		if r.flushed && r.results >= r.executes {
			r.answered() // nothing more may come before the client has seen this much
		}
	}
}

// answered says that the server has done what the request asks for.
func (r *request) answered() {
	if r.barrier != nil {
		r.barrier.ready = true
	} else {
		for _, t := range r.after { // they came in the middle of the very last message
			t.miss()
		}
	}
	r.barrier, r.after = nil, nil
}

// abandon gives up the traps that wait for answers: none will come any more, or none that can be read.
func (s *session) abandon() {
	for _, r := range s.requests {
		for _, t := range r.after {
			t.miss()
		}
	}
}

func (s *session) isOpaque() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opaque
}

func (s *session) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandon()
}

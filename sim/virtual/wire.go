package virtual

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// The few facts about the wire protocol that the engine needs: where a request ends, and how its answer does.

const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

// nextMessage cuts the first message off b. A message of the startup phase has no type byte.
func nextMessage(b []byte, startup bool) (typ byte, body, rest []byte, ok bool) {
	head := 5
	if startup {
		head = 4
	}
	if len(b) < head {
		return 0, nil, b, false
	}
	end := int(binary.BigEndian.Uint32(b[head-4:])) + head - 4
	if end < head || len(b) < end {
		return 0, nil, b, false
	}
	if !startup {
		typ = b[0]
	}
	return typ, b[head:end], b[end:], true
}

// requestEnd reports whether b is a whole number of messages and ends where the server will answer; how many
// ReadyForQuery that answer has; and whether it says goodbye.
func requestEnd(b []byte) (complete bool, ready int, goodbye bool) {
	for len(b) > 0 {
		t, _, rest, ok := nextMessage(b, false)
		if !ok {
			return false, 0, false
		}
		complete, b = false, rest
		switch t {
		case 'Q', 'S', 'F', 'c', 'f':
			complete, ready = true, ready+1
		case 'p': // part of an authentication
			complete, ready = true, 1
		case 'X':
			complete, goodbye = true, true
		}
	}
	return complete, ready, goodbye
}

// lastMessage is the type of the last whole message of b, 0 without one.
func lastMessage(b []byte) (last byte) {
	for {
		t, _, rest, ok := nextMessage(b, false)
		if !ok {
			return last
		}
		last, b = t, rest
	}
}

// endsCopy reports whether a request ends by saying that all rows of a COPY were sent, or that there will be no more.
func endsCopy(b []byte) bool {
	t := lastMessage(b)
	return t == 'c' || t == 'f'
}

// beginsCopy reports whether an answer ends with the server's wish for the rows of a COPY.
func beginsCopy(out []byte) bool { return lastMessage(out) == 'G' }

// parameterStatus is what a server sends when a setting changes of which it keeps its clients informed.
func parameterStatus(name, value string) []byte {
	return rawMessage('S', []byte(name+"\x00"+value+"\x00"))
}

// message builds a message whose body is text with a closing zero.
func message(t byte, body string) []byte {
	b := make([]byte, 0, len(body)+6)
	b = append(b, t, 0, 0, 0, 0)
	b = append(b, body...)
	b = append(b, 0)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-1))
	return b
}

// rawMessage builds a message from a body as it is.
func rawMessage(t byte, body []byte) []byte {
	b := append([]byte{t, 0, 0, 0, 0}, body...)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-1))
	return b
}

// cstr is the text up to the first zero byte, and what is behind it.
func cstr(b []byte) (string, []byte) {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return string(b[:i]), b[i+1:]
	}
	return string(b), nil
}

// field is one field of an ErrorResponse.
func field(body []byte, key byte) string {
	for len(body) > 1 {
		k := body[0]
		var v string
		v, body = cstr(body[1:])
		if k == key {
			return v
		}
	}
	return ""
}

// fatal reports whether an ErrorResponse ends the session.
func fatal(body []byte) bool {
	s := field(body, 'V')
	if s == "" {
		s = field(body, 'S')
	}
	return s == "FATAL" || s == "PANIC"
}

// asksBack reports whether an authentication message waits for the client, so that no ReadyForQuery follows it.
func asksBack(body []byte) bool {
	if len(body) < 4 {
		return false
	}
	switch binary.BigEndian.Uint32(body) {
	case 3, 5, 7, 8, 10, 11: // password, MD5, GSS, SASL
		return true
	}
	return false
}

// A startup is the first message of a session, taken apart.
type startup struct {
	head   []byte // protocol version
	params []string
}

func parseStartup(body []byte) startup {
	s := startup{head: bytes.Clone(body[:4])}
	for b := body[4:]; len(b) > 1; {
		var k, v string
		k, b = cstr(b)
		v, b = cstr(b)
		s.params = append(s.params, k, v)
	}
	return s
}

func (s startup) get(key string) string {
	for i := 0; i < len(s.params); i += 2 {
		if s.params[i] == key {
			return s.params[i+1]
		}
	}
	return ""
}

// with is the startup message with another value.
func (s startup) with(key, value string) startup {
	out := startup{head: s.head}
	for i := 0; i < len(s.params); i += 2 {
		if s.params[i] != key {
			out.params = append(out.params, s.params[i], s.params[i+1])
		}
	}
	out.params = append(out.params, key, value)
	return out
}

// named is the startup message under another application_name.
func (s startup) named(name string) []byte {
	b := make([]byte, 4, 128)
	b = append(b, s.head...)
	for i := 0; i < len(s.params); i += 2 {
		if s.params[i] != "application_name" {
			b = append(append(append(append(b, s.params[i]...), 0), s.params[i+1]...), 0)
		}
	}
	b = append(append(append(b, "application_name\x00"...), name...), 0, 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// key is the same for sessions that differ only in their names.
func (s startup) key() string { return string(s.named("")) }

// A hello is what the server says to a new session, up to ReadyForQuery.
type hello struct {
	raw    []byte
	pid    int
	secret uint32
	failed string // the SQLSTATE when the server refused
}

func parseHello(raw []byte) (h hello) {
	h.raw = raw
	for b := raw; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return h
		}
		b = rest
		switch t {
		case 'K':
			h.pid, h.secret = int(binary.BigEndian.Uint32(body)), binary.BigEndian.Uint32(body[4:])
		case 'E':
			h.failed = field(body, 'C')
		}
	}
}

// as is the hello told to the client: under the session's own name and with a secret that only the stepper can turn
// into the true one, so that a late cancel request never hits the session's successor on the same backend.
func (h hello) as(name string, secret uint32) []byte {
	out := make([]byte, 0, len(h.raw)+len(name))
	for b := h.raw; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return out
		}
		switch {
		case t == 'K' && len(body) == 8:
			k := binary.BigEndian.AppendUint32(bytes.Clone(body[:4]), secret)
			out = append(out, rawMessage('K', k)...)
		case t == 'S' && strings.HasPrefix(string(body), "application_name\x00"):
			out = append(out, message('S', "application_name\x00"+name)...)
		default:
			out = append(out, b[:len(b)-len(rest)]...)
		}
		b = rest
	}
}

// txStatus is the transaction status that the last ReadyForQuery of an answer gives: I, T or E; 0 without one.
func txStatus(answer []byte) (status byte) {
	for b := answer; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return status
		}
		b = rest
		if t == 'Z' && len(body) == 1 {
			status = body[0]
		}
	}
}

package netfault

import (
	"encoding/binary"
	"errors"
)

// keepBody is how much of a message is kept to look at; SQL is searched that far.
const keepBody = 64 << 10

// errNotPostgres says that a stream does not follow the Postgres protocol.
var errNotPostgres = errors.New("not the Postgres protocol")

// A framer cuts a stream into the messages of the Postgres protocol, version 3, wherever its pieces begin and end.
type framer struct {
	typed bool // messages begin with a byte that says what they are; those that open a connection do not

	header [5]byte
	have   int // bytes of header
	left   int // bytes of the body to come

	kind byte
	body []byte // the first keepBody bytes
}

// next takes bytes from b, which is not empty, up to the end of the current message, and reports how many and whether
// the message is whole. kind and body are then valid until the next call.
func (f *framer) next(b []byte) (n int, whole bool, err error) {
	header := f.header[:5]
	if !f.typed {
		header = f.header[:4]
	}
	if f.have < len(header) {
		n = copy(header[f.have:], b)
		if f.have += n; f.have < len(header) {
			return n, false, nil
		}
		size := binary.BigEndian.Uint32(header[len(header)-4:])
		if size < 4 || size > 1<<30 || (!f.typed && size > 10_000) {
			return n, false, errNotPostgres
		}
		f.kind, f.left, f.body = 0, int(size)-4, f.body[:0]
		if f.typed {
			f.kind = header[0]
		}
	}
	m := min(f.left, len(b)-n)
	f.body = append(f.body, b[n:n+min(m, keepBody-len(f.body))]...)
	f.left -= m
	if f.left > 0 {
		return n + m, false, nil
	}
	f.have = 0
	return n + m, true, nil
}

// within reports whether the stream is in the middle of a message.
func (f *framer) within() bool { return f.have > 0 }

// text takes a zero-terminated string from the front of a body. One that was cut off by keepBody is all there is.
func text(body []byte) (s string, rest []byte) {
	for i, c := range body {
		if c == 0 {
			return string(body[:i]), body[i+1:]
		}
	}
	return string(body), nil
}

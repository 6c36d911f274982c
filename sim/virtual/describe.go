package virtual

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// What the history says of a request and of its answer: the statement's text with its parameters, command tags,
// SQLSTATEs, small results. Nothing that differs between two runs of one plan may get in: no pid, no transaction id,
// no address. A number that may be a pid is shown as #.

// statements are a session's prepared statements, as far as the history needs them.
type statements struct {
	lib    library
	named  map[string]*statement
	last   *statement // the one whose description is awaited, or whose rows come
	simple bool

	// The advisory locks that the last request is about; not known: any.
	keys      []int64
	keysKnown bool
}

// locks notes which advisory locks a statement is about, given its parameters, from their formats on.
func (s *statements) locks(i *sqlInfo, b []byte) {
	formats, b := words(b)
	var vs [][]byte
	if len(b) >= 2 {
		vs = columns(b)
	}
	s.keysKnown = s.keysKnown && (i.locksKnown || !i.holds)
	for _, l := range i.locks {
		key, ok := l.number, true
		if at := l.parameter - 1; at >= 0 {
			if ok = at < len(vs); ok {
				key, ok = integer(vs[at], formatOf(formats, at))
			}
		}
		s.keys, s.keysKnown = append(s.keys, key), s.keysKnown && ok
	}
}

// mayLock reports whether the last request may have taken or let go of an advisory lock.
func (s *statements) mayLock(key int64) bool { return !s.keysKnown || slices.Contains(s.keys, key) }

// integer reads a parameter that is sent for a bigint.
func integer(v []byte, format uint16) (int64, bool) {
	const text, binaryFormat = 0, 1
	switch {
	case format == text:
		n, err := strconv.ParseInt(string(v), 10, 64)
		return n, err == nil
	case format == binaryFormat && len(v) == 8:
		return int64(binary.BigEndian.Uint64(v)), true
	}
	return 0, false
}

type statement struct {
	info   *sqlInfo
	params []uint32
	cols   []column
}

type column struct {
	name     string
	oid      uint32
	format   uint16
	volatile bool
}

// request takes a request apart: what the history shows, and what its statements may do.
func (s *statements) request(data []byte) (text string, info *sqlInfo) {
	if s.named == nil {
		s.named = map[string]*statement{}
	}
	s.keys, s.keysKnown = s.keys[:0], true
	var parts []string
	executes, parsed := false, false
	for b := data; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			break
		}
		b = rest
		switch t {
		case 'Q':
			sql, _ := cstr(body)
			i := s.lib.info(sql)
			parts, info, executes = append(parts, i.masked()), merge(info, i), true
			s.locks(i, nil)
			s.last, s.simple = &statement{info: i}, true
		case 'P':
			name, more := cstr(body)
			sql, more := cstr(more)
			st := &statement{info: s.lib.info(sql), params: oids(more)}
			s.named[name], s.last, parsed = st, st, true
			s.simple = false
			info = merge(info, st.info)
		case 'B':
			_, more := cstr(body)
			name, more := cstr(more)
			if st := s.named[name]; st != nil {
				s.last, s.simple = st, false
				info = merge(info, st.info)
				s.locks(st.info, more)
				parts = append(parts, st.info.text+st.arguments(more))
				executes = true
			} else {
				info, s.keysKnown = merge(info, anything()), false // SQL has prepared it, with PREPARE
			}
		case 'F':
			info, s.keysKnown = merge(info, anything()), false
		case 'd':
			info, executes, s.keysKnown = merge(info, anything()), true, false
			if len(parts) == 0 || parts[len(parts)-1] != "copy data" {
				parts = append(parts, "copy data")
			}
		case 'p':
			parts, executes = append(parts, "password"), true
		}
	}
	switch {
	case info == nil:
		info = &sqlInfo{}
	case parsed && !executes:
		return "prepare: " + s.last.info.text, &sqlInfo{text: info.text}
	}
	return strings.Join(parts, "; "), info
}

func oids(b []byte) (out []uint32) {
	if len(b) < 2 {
		return nil
	}
	for n, b := int(binary.BigEndian.Uint16(b)), b[2:]; n > 0 && len(b) >= 4; n, b = n-1, b[4:] {
		out = append(out, binary.BigEndian.Uint32(b))
	}
	return out
}

// arguments renders the parameters of a Bind message from their formats on.
func (st *statement) arguments(b []byte) string {
	formats, b := words(b)
	if len(b) < 2 {
		return ""
	}
	n := int(binary.BigEndian.Uint16(b))
	if n == 0 {
		return ""
	}
	vs := columns(b)
	var out []string
	for i := 0; i < n && i < len(vs); i++ {
		c := column{format: formatOf(formats, i)}
		if i < len(st.params) {
			c.oid = st.params[i]
		}
		out = append(out, "$"+strconv.Itoa(i+1)+"="+c.show(vs[i], st.info.volatile))
	}
	return " [" + strings.Join(out, ", ") + "]"
}

func words(b []byte) (ws []uint16, rest []byte) {
	if len(b) < 2 {
		return nil, nil
	}
	n, b := int(binary.BigEndian.Uint16(b)), b[2:]
	for ; n > 0 && len(b) >= 2; n, b = n-1, b[2:] {
		ws = append(ws, binary.BigEndian.Uint16(b))
	}
	return ws, b
}

func formatOf(formats []uint16, i int) uint16 {
	switch {
	case len(formats) == 1:
		return formats[0]
	case i < len(formats):
		return formats[i]
	}
	return 0
}

// answer renders an answer and learns the descriptions in it.
func (s *statements) answer(data []byte) string {
	var out []string
	rows, sum := 0, uint32(0)
	var first string
	st := s.last
	for b := data; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			break
		}
		b = rest
		switch t {
		case 't':
			if st != nil {
				st.params = oids(body)
			}
		case 'T':
			if st != nil {
				st.cols = describe(body)
			}
		case 'D':
			text, h := st.row(body, s.simple)
			if rows++; rows == 1 {
				first = text
			}
			sum += h // a sum: without ORDER BY the order of rows follows the pages
		case 'C':
			tag, _ := cstr(body)
			switch {
			case rows == 1 && first != "":
				tag += " (" + first + ")"
			case rows > 1:
				tag += fmt.Sprintf(" (digest %08x)", sum)
			}
			out = append(out, tag)
			rows, sum = 0, 0
		case 'E':
			word := "ERROR "
			if fatal(body) {
				word = "FATAL "
			}
			out = append(out, word+field(body, 'C'))
		case 'G':
			out = append(out, "COPY IN")
		case 'A':
			out = append(out, "notification")
		}
	}
	if len(out) == 0 && st != nil && data != nil {
		return "ok"
	}
	return strings.Join(out, "; ")
}

func describe(body []byte) (cols []column) {
	if len(body) < 2 {
		return nil
	}
	for b := body[2:]; len(b) > 0; {
		var name string
		name, b = cstr(b)
		if len(b) < 18 {
			return cols
		}
		cols = append(cols, column{name: name, oid: binary.BigEndian.Uint32(b[6:]), format: binary.BigEndian.Uint16(b[16:]),
			volatile: unstable.MatchString(strings.ToLower(name))})
		b = b[18:]
	}
	return cols
}

// row renders a small row, and hashes those of its columns that are the same in every run.
func (st *statement) row(body []byte, simple bool) (string, uint32) {
	h := fnv.New32a()
	var out []string
	for i, v := range columns(body) {
		if st == nil || i >= len(st.cols) {
			return "", 0
		}
		c := st.cols[i]
		if !simple && len(v) > 0 && c.format == 0 && binaryFixed[c.oid] == len(v) && !printable(v) {
			c.format = 1 // the Bind message asked for binary after the description had been given
		}
		text := c.show(v, st.info.volatile || c.volatile)
		h.Write([]byte(text))
		h.Write([]byte{0})
		out = append(out, text)
	}
	if len(out) > 4 {
		return fmt.Sprintf("digest %08x", h.Sum32()), h.Sum32()
	}
	return strings.Join(out, ", "), h.Sum32()
}

var numbers = regexp.MustCompile(`\$?\b\d+\b`)

// masked is the text of a simple query, without the numbers in it that may be pids.
func (i *sqlInfo) masked() string {
	if !i.volatile {
		return i.text
	}
	return numbers.ReplaceAllStringFunc(i.text, func(s string) string {
		if n, err := strconv.Atoi(s); err == nil && n > 1 && n <= maxPID {
			return "#"
		}
		return s
	})
}

// Types whose binary form the history can show.
const (
	oidBool, oidInt8, oidInt2, oidInt4, oidText, oidFloat8, oidVarchar, oidName, oidUnknown = 16, 20, 21, 23, 25, 701, 1043, 19, 705
	oidTimestamptz                                                                          = 1184
)

var binaryFixed = map[uint32]int{oidBool: 1, oidInt8: 8, oidInt2: 2, oidInt4: 4, oidFloat8: 8, oidTimestamptz: 8}

// maxPID is the greatest process id of any Linux. Numbers up to it may be one.
const maxPID = 1 << 22

// show renders a value. volatile: a number in it may be a pid or a transaction id.
func (c column) show(v []byte, volatile bool) string {
	if v == nil {
		return "NULL"
	}
	number := func(n int64) string {
		if volatile && n > 1 && n <= maxPID {
			return "#"
		}
		return strconv.FormatInt(n, 10)
	}
	if c.format == 1 {
		switch {
		case c.oid == oidBool && len(v) == 1:
			return strconv.FormatBool(v[0] != 0)
		case c.oid == oidFloat8 && len(v) == 8:
			return strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64(v)), 'g', -1, 64)
		case c.oid == oidTimestamptz && len(v) == 8:
			return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(int64(binary.BigEndian.Uint64(v))) * time.Microsecond).Format(time.RFC3339Nano)
		case c.oid == oidInt2 && len(v) == 2:
			return number(int64(int16(binary.BigEndian.Uint16(v))))
		case (c.oid == oidInt4 || c.oid == 0) && len(v) == 4:
			return number(int64(int32(binary.BigEndian.Uint32(v))))
		case (c.oid == oidInt8 || c.oid == 0) && len(v) == 8:
			return number(int64(binary.BigEndian.Uint64(v)))
		}
	} else if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return number(n)
	}
	if printable(v) {
		if s := string(v); len(s) <= 60 {
			return s
		}
	}
	h := fnv.New32a()
	h.Write(v)
	if volatile && c.format == 1 {
		return "…"
	}
	return fmt.Sprintf("~%08x", h.Sum32())
}

func printable(v []byte) bool {
	if !utf8.Valid(v) {
		return false
	}
	for _, b := range v {
		if b < ' ' {
			return false
		}
	}
	return true
}

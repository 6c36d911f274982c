package sim

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// appendJSON appends what json.Encoder writes for e, field by field as Event declares them. Histories are written event by
// event while a run goes on, and reflection was a tenth of what a statement costs.
func (e *Event) appendJSON(b []byte) []byte {
	w := jsonObject{append(b, '{')}
	w.number("seq", int64(e.Seq), false)
	w.duration("at", e.At, false)
	w.duration("at_lo", e.AtLo, true)
	w.duration("at_hi", e.AtHi, true)
	w.key("source")
	w.b = appendString(w.b, e.Source)
	w.key("kind")
	w.b = appendString(w.b, string(e.Kind))
	w.text("op", e.Op)
	w.number("replica", int64(e.Replica), true)
	w.number("incarnation", int64(e.Incarnation), true)
	w.text("session", e.Session)
	w.text("use", e.Use)
	w.text("route", string(e.Route))
	w.text("role", e.Role)
	w.number("key", e.Key, true)
	w.number("term", e.Term, true)
	w.text("token", e.Token)
	w.text("answer", e.Answer)
	w.text("outcome", e.Outcome)
	w.text("reason", e.Reason)
	w.duration("trusted", e.Trusted, true)
	w.number("n", int64(e.N), true)
	w.number("row", e.Row, true)
	w.number("unit", e.Unit, true)
	w.number("commit", e.Commit, true)
	w.number("fault", int64(e.Fault), true)
	if len(e.Targets) > 0 {
		w.key("targets")
		open := byte('[')
		for _, t := range e.Targets {
			w.b = strconv.AppendInt(append(w.b, open), int64(t), 10)
			open = ','
		}
		w.b = append(w.b, ']')
	}
	w.text("text", e.Text)
	w.text("sql", e.SQL)
	w.duration("lasts", e.Lasts, true)
	if len(e.BlockedBy) > 0 {
		w.key("blocked_by")
		open := byte('[')
		for _, s := range e.BlockedBy {
			w.b = appendString(append(w.b, open), s)
			open = ','
		}
		w.b = append(w.b, ']')
	}
	return append(w.b, '}')
}

type jsonObject struct{ b []byte }

func (w *jsonObject) key(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

func (w *jsonObject) number(key string, n int64, omit bool) {
	if n != 0 || !omit {
		w.key(key)
		w.b = strconv.AppendInt(w.b, n, 10)
	}
}

func (w *jsonObject) duration(key string, d Duration, omit bool) {
	if d != 0 || !omit {
		w.key(key)
		w.b = append(append(append(w.b, '"'), d.String()...), '"')
	}
}

func (w *jsonObject) text(key, s string) {
	if s != "" {
		w.key(key)
		w.b = appendString(w.b, s)
	}
}

// appendString appends s as a JSON string, escaped as encoding/json does for HTML.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == 0x7f {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...) // a string can always be encoded
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

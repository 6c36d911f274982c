package scenarios

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A decoder fills a scenario from a tree. The library's own strict decoding stops at the first error; this one goes on,
// and remembers where each field stands, so that later checks can point at it too.
type decoder struct {
	*source
	places  map[string]place // by path: "faults[1].window"
	program *sim.Program     // what `impl` says when it is a group of lines and not a name
}

// A place is where a field stands in the file, and whether its value could be read.
type place struct {
	line, column int
	bad          bool
}

var (
	textType   = reflect.TypeFor[encoding.TextUnmarshaler]()
	targetType = reflect.TypeFor[sim.Target]()
)

// value reads node into v. path is how the field is called.
func (d *decoder) value(node ast.Node, v reflect.Value, path string) {
	d.places[path] = placeOf(node)
	if m, ok := node.(*ast.MappingNode); ok && path == "impl" {
		d.program = &sim.Program{}
		d.fields(m, reflect.ValueOf(d.program).Elem(), path)
		return
	}
	switch {
	case v.Kind() == reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.value(node, p.Elem(), path)
		v.Set(p)
	case v.Addr().Type().Implements(textType):
		d.text(node, v, path)
	case v.Kind() == reflect.Struct:
		d.fields(node, v, path)
	case v.Kind() == reflect.Slice:
		d.list(node, v, path)
	case v.Kind() == reflect.String:
		d.str(node, v, path)
	case v.Kind() == reflect.Int:
		d.number(node, v, path)
	case v.Kind() == reflect.Int64:
		d.key(node, v, path)
	case v.Kind() == reflect.Bool:
		b, ok := node.(*ast.BoolNode)
		if !ok {
			d.wrong(node, path, "true or false", "")
			return
		}
		v.SetBool(b.Value)
	default:
		panic("scenarios: a scenario has a field of a type that the decoder does not know: " + v.Type().String())
	}
}

// fields reads a mapping into a struct, by the yaml tags of its fields.
func (d *decoder) fields(node ast.Node, v reflect.Value, path string) {
	m, ok := node.(*ast.MappingNode)
	if !ok {
		d.wrong(node, path, "a group of FIELD: VALUE lines", "")
		return
	}
	index, names := fieldsOf(v.Type())
	seen := map[string]int{}
	for _, entry := range m.Values {
		key, at := entry.Key.GetToken().Value, placeOf(entry.Key)
		if _, ok := entry.Key.(*ast.StringNode); !ok {
			d.problem(at.line, at.column, fmt.Sprintf("%q is no name of a field", shorten(key)), "")
			continue
		}
		i, known := index[key]
		if !known {
			d.problem(at.line, at.column, fmt.Sprintf("unknown field %q", shorten(key)), suggestOrList(key, names))
			if meant := nearest(key, names); meant != "" && !d.has(join(path, meant)) {
				d.places[join(path, meant)] = place{at.line, at.column, true} // so that it is not called missing as well
			}
			continue
		}
		if first, again := seen[key]; again {
			d.problem(at.line, at.column, fmt.Sprintf("%q is given twice; the first is in line %d", key, first), "")
			continue
		}
		seen[key] = at.line
		field := join(path, key)
		if _, null := entry.Value.(*ast.NullNode); null || entry.Value == nil {
			d.problem(at.line, at.column, fmt.Sprintf("%q has no value", key), "give it one, or take the line out")
			d.places[field] = place{at.line, at.column, true}
			continue
		}
		d.value(entry.Value, v.Field(i), field)
	}
}

// list reads a sequence into a slice.
func (d *decoder) list(node ast.Node, v reflect.Value, path string) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		hint := `begin each entry with "- "`
		if s, ok := scalar(node); ok {
			hint = fmt.Sprintf("write [%s]", shorten(s))
		}
		d.wrong(node, path, "a list", hint)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		d.value(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
}

// text reads a scalar into a value that reads its own text form, such as a duration.
func (d *decoder) text(node ast.Node, v reflect.Value, path string) {
	s, ok := scalar(node)
	if !ok {
		d.wrong(node, path, "a single value", "")
		return
	}
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
		d.bad(node, path, last(path)+": "+err.Error(), "")
	}
}

func (d *decoder) str(node ast.Node, v reflect.Value, path string) {
	switch n := node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		s, _ := scalar(node)
		// The file itself holds no such character, but "\e" in quotes is one.
		if i := strings.IndexFunc(s, func(r rune) bool {
			return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp)
		}); i >= 0 {
			r, _ := utf8.DecodeRuneInString(s[i:])
			d.bad(node, path, fmt.Sprintf("%s holds the character %U, which has no place in a scenario", last(path), r), "")
			return
		}
		v.SetString(s)
		return
	case *ast.IntegerNode:
		if v.Type() == targetType { // a replica's number
			v.SetString(n.Token.Value)
			return
		}
	}
	hint := ""
	if s, ok := scalar(node); ok {
		hint = fmt.Sprintf("put it in quotes: %q", shorten(s))
	}
	d.wrong(node, path, "text", hint)
}

func (d *decoder) number(node ast.Node, v reflect.Value, path string) {
	n, ok := node.(*ast.IntegerNode)
	if !ok {
		d.wrong(node, path, "a whole number", "")
		return
	}
	// Octal, hexadecimal and underscores are more often a slip than meant.
	i, err := strconv.Atoi(n.Token.Value)
	if err != nil || i > 1_000_000 || i < -1_000_000 {
		d.wrong(node, path, "a plain whole number of at most 1000000", "")
		return
	}
	v.SetInt(int64(i))
}

// key reads a 64-bit number, which may be as large as it likes.
func (d *decoder) key(node ast.Node, v reflect.Value, path string) {
	n, ok := node.(*ast.IntegerNode)
	if !ok {
		d.wrong(node, path, "a whole number", "")
		return
	}
	i, err := strconv.ParseInt(n.Token.Value, 10, 64)
	if err != nil {
		d.wrong(node, path, "a plain whole number of 64 bits", "")
		return
	}
	v.SetInt(i)
}

// wrong notes that a field is not of the kind it must be.
func (d *decoder) wrong(node ast.Node, path, want, suggestion string) {
	text := "must be " + want
	if name := last(path); name != "" {
		text = name + " " + text
	}
	if s, ok := scalar(node); ok {
		text += fmt.Sprintf(", not %q", shorten(s))
	}
	d.bad(node, path, text, suggestion)
}

func (d *decoder) bad(node ast.Node, path, text, suggestion string) {
	at := placeOf(node)
	d.problem(at.line, at.column, text, suggestion)
	at.bad = true
	d.places[path] = at
}

// scalar is a scalar's text.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// placeOf is where a node begins. A mapping's own token is its first colon, so its first key is asked instead.
func placeOf(node ast.Node) place {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return placeOf(m.Values[0].Key)
	}
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return place{}
	}
	p := node.GetToken().Position
	return place{line: p.Line, column: p.Column}
}

// has reports whether the field stands in the file.
func (d *decoder) has(path string) bool { _, ok := d.places[path]; return ok }

// fieldsOf maps the yaml names of a struct's fields to their index, and lists them in order.
func fieldsOf(t reflect.Type) (index map[string]int, names []string) {
	index = map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		index[name] = i
		names = append(names, name)
	}
	return index, names
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// last is a path's last name, as a message calls the field: "window" of "faults[1].window", "routes" of "routes[0]".
func last(path string) string {
	path = path[strings.LastIndexByte(path, '.')+1:]
	if i := strings.IndexByte(path, '['); i >= 0 {
		return "an entry of " + path[:i]
	}
	return path
}

// shorten keeps a message to one line whatever the value is.
func shorten(s string) string {
	s, _, more := strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 40 {
		s, more = string(r[:40]), true
	}
	if more {
		s += "..."
	}
	return s
}

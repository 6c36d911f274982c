package scenarios

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Check says what is wrong with a scenario that was written in Go: the rules are those of Parse, and each problem names its field as a
// file would. Its name and sentences are left alone, and so is the quiet time at the end: an invariant that lacks it is inconclusive. A
// program is not looked at. Zero fields count as left out.
func Check(s sim.Scenario, opts ...Option) error {
	opt := options{anyEnd: true}
	for _, o := range opts {
		o(&opt)
	}
	s.Program = nil
	// What Resolve fills in where it is of no use is no slip.
	if s.Pool == (sim.Pool{Size: DefaultPoolSize}) {
		s.Pool = sim.Pool{}
	}
	if len(s.Impls) > 0 && s.Impl == s.Impls[0] {
		s.Impl = ""
	}
	d := &decoder{source: &source{}, places: map[string]place{}}
	d.mark(reflect.ValueOf(&s).Elem(), "")
	for _, path := range []string{"name", "shows"} {
		d.places[path] = place{bad: true}
	}
	(&checker{decoder: d, s: &s, opt: opt}).check()
	var texts []string
	for _, p := range d.problems.List {
		text := p.Text
		if path := p.Source; path != "" && !strings.HasPrefix(text, path) {
			text = path + ": " + text
		}
		if p.Suggestion != "" {
			text += " (" + p.Suggestion + ")"
		}
		if text = printable(text); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "\n"))
}

// CheckPlan says what keeps a plan from being carried out for a scenario. Of the scenario only that is looked at which the plan needs:
// the plan may have been made before the scenario's duration or faults were changed.
func CheckPlan(s sim.Scenario, p sim.Plan, opts ...Option) error {
	if p.V != sim.PlanVersion || p.Horizon <= 0 {
		return fmt.Errorf("no plan of format %d with a horizon", sim.PlanVersion)
	}
	s.Plan, s.Duration, s.Faults, s.Workload, s.Phase = &p, p.Horizon, nil, sim.Workload{}, sim.Range{}
	return Check(s, opts...)
}

// mark notes which fields of a value are there, as value does for a file's. A value has no lines; the paths of its fields stand in for
// them, so that a problem knows its own.
func (d *decoder) mark(v reflect.Value, path string) {
	if path != "" {
		d.lines = append(d.lines, path)
		d.places[path] = place{line: len(d.lines)}
	}
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			d.mark(v.Elem(), path)
		}
	case v.Addr().Type().Implements(textType):
		d.form(v, path)
	case v.Kind() == reflect.Struct:
		index, names := fieldsOf(v.Type())
		for _, name := range names {
			if f := v.Field(index[name]); !f.IsZero() {
				d.mark(f, join(path, name))
			}
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			d.mark(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// form holds a value against the form it has in a file: no range ends before it begins.
func (d *decoder) form(v reflect.Value, path string) {
	m, ok := v.Interface().(encoding.TextMarshaler)
	if !ok {
		return
	}
	text, err := m.MarshalText()
	if err == nil {
		err = reflect.New(v.Type()).Interface().(encoding.TextUnmarshaler).UnmarshalText(text)
	}
	if err != nil {
		at := d.places[path]
		d.problem(at.line, 1, last(path)+": "+err.Error(), "")
		at.bad = true
		d.places[path] = at
	}
}

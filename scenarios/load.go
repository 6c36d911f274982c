package scenarios

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"

	"github.com/seed-aafb3a99/simrun/sim"
)

// An Option tells the reader about names that it cannot know by itself.
type Option func(*options)

type options struct {
	impls, invariants []string
	anyEnd            bool // a fault may be over as late as it likes
}

// Implementations makes every implementation's name be one of these, or exec:COMMAND. Without it any name is let through.
func Implementations(names ...string) Option {
	return func(o *options) { o.impls = append([]string{}, names...) }
}

// Invariants makes every invariant's name be one of these. Without it any name is let through.
func Invariants(names ...string) Option {
	return func(o *options) { o.invariants = append([]string{}, names...) }
}

// Parse reads one scenario. The error is *Problems, and holds all there is to say. The scenario is as written: Resolve
// fills in the defaults.
func Parse(filename string, src []byte, opts ...Option) (*sim.Scenario, error) {
	s, d := parse(filename, src, opts)
	if len(d.problems.List) > 0 {
		d.problems.sort()
		return nil, &d.problems
	}
	return s, nil
}

func parse(filename string, src []byte, opts []Option) (*sim.Scenario, *decoder) {
	var opt options
	for _, o := range opts {
		o(&opt)
	}
	d := &decoder{source: &source{file: filename}, places: map[string]place{}}
	s := &sim.Scenario{}
	if m := d.mapping(src); m != nil {
		d.fields(m, reflect.ValueOf(s).Elem(), "")
		if s.Program = d.program; s.Program != nil {
			s.Impl = s.Program.Name()
		}
		(&checker{decoder: d, s: s, opt: opt}).check()
	}
	return s, d
}

// Load reads one scenario from a file, and the files that it names. The error is *Problems for bad content, and another where the file
// cannot be read.
func Load(path string, opts ...Option) (*sim.Scenario, error) {
	s, d, err := load(path, opts)
	if err != nil {
		return nil, err
	}
	if len(d.problems.List) > 0 {
		d.problems.sort()
		return nil, &d.problems
	}
	return s, nil
}

func load(path string, opts []Option) (*sim.Scenario, *decoder, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	s, d := parse(path, src, opts)
	if s.Dir, err = filepath.Abs(filepath.Dir(path)); err != nil {
		return nil, nil, fmt.Errorf("find the scenario's folder: %w", err)
	}
	d.readMigrations(s)
	return s, d, nil
}

// LoadAll reads several files and reports the problems of all of them, names that occur twice included.
func LoadAll(paths []string, opts ...Option) ([]sim.Scenario, error) {
	var all Problems
	var list []sim.Scenario
	first := map[string]string{}
	for _, path := range paths {
		s, d, err := load(path, opts)
		if err != nil {
			return nil, err
		}
		if other, twice := first[s.Name]; twice && s.Name != "" {
			at := d.places["name"]
			d.problem(at.line, at.column, fmt.Sprintf("the name %q is taken by %s", s.Name, other), "")
		} else {
			first[s.Name] = path
		}
		d.problems.sort()
		all.List = append(all.List, d.problems.List...)
		list = append(list, *s)
	}
	if len(all.List) > 0 {
		return nil, &all
	}
	return list, nil
}

// readFile reads no more than is needed to know that a file is too large.
func readFile(path string) ([]byte, error) {
	// A pipe that nobody writes to would keep even Open waiting for ever.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read scenario: %s is no ordinary file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open scenario: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read from
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	return src, nil
}

// Resolve fills in what a scenario leaves to simrun, so that nothing in the result depends on a default any more.
func Resolve(s sim.Scenario) sim.Scenario {
	s.Intervals = s.Intervals.WithDefaults()
	if len(s.Impls) == 0 {
		s.Impls = []string{"reference"}
		if s.Impl != "" {
			s.Impls = []string{s.Impl}
		}
	}
	s.Impl = s.Impls[0]
	if s.Phase.IsZero() {
		s.Phase = sim.Range{To: s.Intervals.Retry}
	}
	if s.Pool.Size == 0 {
		s.Pool.Size = DefaultPoolSize
	}
	faults := make([]sim.FaultSpec, len(s.Faults))
	for i, f := range s.Faults {
		if f.Weight == 0 {
			f.Weight = 10
		}
		if f.Count.IsZero() {
			f.Count = sim.IntRange{From: 1, To: 1}
		}
		f.Before, f.After = resolveTrigger(f.Before), resolveTrigger(f.After)
		faults[i] = f
	}
	s.Faults = faults
	return s
}

// DefaultPoolSize is PgBouncer's own default_pool_size.
const DefaultPoolSize = 20

func resolveTrigger(t *sim.TriggerSpec) *sim.TriggerSpec {
	if t == nil {
		return nil
	}
	c := *t
	if c.Nth.IsZero() {
		c.Nth = sim.IntRange{From: 1, To: 1}
	}
	return &c
}

// InvariantLine is the line of src that names an invariant, from 1; the first line where none does.
func InvariantLine(src []byte, invariant string) int {
	s, d := parse("", src, nil)
	for i, name := range s.Invariants {
		if at := d.places[fmt.Sprintf("invariants[%d]", i)]; name == invariant && at.line > 0 {
			return at.line
		}
	}
	return 1
}

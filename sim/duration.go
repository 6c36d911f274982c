package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as text ("1.5s") in JSON and YAML. In a history it is an offset from the
// start of the run.
type Duration time.Duration

// D is the value as the standard library's type.
func (d Duration) D() time.Duration { return time.Duration(d) }

// Seconds is the value in seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the form that time.ParseDuration reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads; a bare number is refused, since its unit would be a guess.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write it with a unit, for example 500ms, 10s or 2m", string(b))
	}
	*d = Duration(v)
	return nil
}

// A Range is an inclusive range of durations, written "10s..20s", or "10s" where both ends are the same.
type Range struct{ From, To Duration }

// IsZero reports whether the range was left out.
func (r Range) IsZero() bool { return r == Range{} }

func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + ".." + r.To.String()
}

// MarshalText writes the form UnmarshalText reads.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads "A..B" or "A".
func (r *Range) UnmarshalText(b []byte) error {
	lo, hi, two := strings.Cut(string(b), "..")
	if err := r.From.UnmarshalText([]byte(lo)); err != nil {
		return err
	}
	r.To = r.From
	if two {
		if err := r.To.UnmarshalText([]byte(hi)); err != nil {
			return err
		}
	}
	if r.To < r.From || r.From < 0 {
		return fmt.Errorf("%q is not a range: write FROM..TO with 0 <= FROM <= TO, for example 10s..20s", string(b))
	}
	return nil
}

// An IntRange is an inclusive range of whole numbers, written "1..3" or "2".
type IntRange struct{ From, To int }

// IsZero reports whether the range was left out.
func (r IntRange) IsZero() bool { return r == IntRange{} }

func (r IntRange) String() string {
	if r.From == r.To {
		return strconv.Itoa(r.From)
	}
	return fmt.Sprintf("%d..%d", r.From, r.To)
}

// MarshalText writes the form UnmarshalText reads.
func (r IntRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads "A..B" or "A".
func (r *IntRange) UnmarshalText(b []byte) error {
	lo, hi, two := strings.Cut(strings.TrimSpace(string(b)), "..")
	var err1, err2 error
	r.From, err1 = strconv.Atoi(lo)
	r.To = r.From
	if two {
		r.To, err2 = strconv.Atoi(hi)
	}
	if err1 != nil || err2 != nil || r.From < 0 || r.To < r.From {
		return fmt.Errorf("%q is not a range of whole numbers: write 2, or 1..3", string(b))
	}
	return nil
}

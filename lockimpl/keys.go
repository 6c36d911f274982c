package lockimpl

import (
	"errors"
	"fmt"
	"slices"
)

// A Role is something at most one process may be at a time, and the key of its advisory lock.
type Role struct {
	Name string
	Key  int64
}

// Keys is a registry of roles. It is a deployment API: during a rolling deploy old and new processes run side by side, and if
// they lock different numbers for one role, both lead. So a key is a constant with a name, never a hash of something.
type Keys []Role

// DefaultKeys are the roles known from the beginning. Add your own with With.
func DefaultKeys() Keys {
	return Keys{
		{"poller", 1840000001},
		{"scheduler", 1840000002},
		{"reconciler", 1840000003},
		{"publish", 982410937},
		{"plugin", 712830541},
	}
}

// ErrKey is in the chain of every error about keys.
var ErrKey = errors.New("lock key")

// With is the registry with more roles in it.
func (k Keys) With(roles ...Role) Keys { return append(slices.Clone(k), roles...) }

// Role finds a role by its name.
func (k Keys) Role(name string) (Role, error) {
	for _, r := range k {
		if r.Name == name {
			return r, nil
		}
	}
	return Role{}, fmt.Errorf("%w: role %q is not in the registry", ErrKey, name)
}

// Check returns an error when two roles share a key, or a name.
func (k Keys) Check() error {
	for i, r := range k {
		if r.Name == "" {
			return fmt.Errorf("%w: %d has no role", ErrKey, r.Key)
		}
		for _, o := range k[:i] {
			if o.Key == r.Key {
				return fmt.Errorf("%w: roles %q and %q both have %d", ErrKey, o.Name, r.Name, r.Key)
			}
			if o.Name == r.Name {
				return fmt.Errorf("%w: role %q is registered twice, with %d and %d", ErrKey, r.Name, o.Key, r.Key)
			}
		}
	}
	return nil
}

// check returns an error unless r is registered as it is.
func (k Keys) check(r Role) error {
	if err := k.Check(); err != nil {
		return err
	}
	known, err := k.Role(r.Name)
	if err != nil {
		return err
	}
	if known.Key != r.Key {
		return fmt.Errorf("%w: role %q has %d in the registry, not %d", ErrKey, r.Name, known.Key, r.Key)
	}
	return nil
}

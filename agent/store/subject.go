package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"
)

// Subject is what one part of a program remembers besides its probes: values by name. Their keys in the file are Prefix and the name.
type Subject struct {
	Prefix  string // ends with a slash; any other one is the only key, and its value has no name
	Lasting bool   // restored whatever its age

	Value func(name string) (value any, ok bool) // returns what is stored as JSON, and false if there is nothing: see Values.Value
	Names func() []string                        // returns the names that may have a value; nil: the one without a name is all

	// Restore gives the values of the file back to the part, by name, if there are any: see RestoreAll. Shift is that of Restored. The
	// error says which of them cannot be read, and are left out. Nil: who needs them asks Restored.
	Restore func(values map[string][]byte, shift time.Duration) error
}

// RestoreAll returns a Subject.Restore that reads values of one type, and gives back those that can be read.
func RestoreAll[T any](restore func(values map[string]T, shift time.Duration)) func(values map[string][]byte, shift time.Duration) error {
	return func(values map[string][]byte, shift time.Duration) error {
		all := make(map[string]T, len(values))
		err := RestoreEach(values, func(name string, text []byte) error {
			var value T
			if err := json.Unmarshal(text, &value); err != nil {
				return err
			}
			all[name] = value
			return nil
		})
		restore(all, shift)
		return err
	}
}

// RestoreEach calls restore for each value, and returns the errors with the names.
func RestoreEach(values map[string][]byte, restore func(name string, value []byte) error) error {
	var wrong []error
	for name, value := range values {
		if err := restore(name, value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(wrong...)
}

// name returns the name of a value by its key, and false if it is one of another subject.
func (s *Subject) name(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, s.Prefix)
	return name, ok && (name == "" || strings.HasSuffix(s.Prefix, "/"))
}

// Subjects are all that a program remembers besides its probes: the Values of a Store. No prefix may begin with another one.
type Subjects []Subject

// Lasting returns the prefixes of those that are restored whatever their age, for Config.
func (all Subjects) Lasting() (prefixes []string) {
	for i := range all {
		if all[i].Lasting {
			prefixes = append(prefixes, all[i].Prefix)
		}
	}
	return prefixes
}

// Value implements Values.
func (all Subjects) Value(key string) ([]byte, bool) {
	for i := range all {
		if name, ok := all[i].name(key); ok {
			return all[i].text(name)
		}
	}
	return nil, false
}

// text returns a value as JSON.
func (s *Subject) text(name string) ([]byte, bool) {
	value, ok := s.Value(name)
	if !ok {
		return nil, false
	}
	text, err := json.Marshal(value)
	return text, err == nil // an error is a bug of the part: each value can be marshaled
}

// Values implements Values.
func (all Subjects) Values() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := range all {
			names := []string{""}
			if all[i].Names != nil {
				names = all[i].Names()
			}
			for _, name := range names {
				if text, ok := all[i].text(name); ok && !yield(all[i].Prefix+name, text) {
					return
				}
			}
		}
	}
}

// Restore gives each subject what the file had of it, in their order. The log has a line about values that cannot be read.
func (all Subjects) Restore(r Restored, log *slog.Logger) {
	for i := range all {
		s := &all[i]
		values := map[string][]byte{}
		for key, value := range r.Values {
			if name, ok := s.name(key); ok {
				values[name] = value
			}
		}
		if len(values) == 0 || s.Restore == nil {
			continue
		}
		if err := s.Restore(values, r.Shift); err != nil {
			log.Warn("state discarded that cannot be read", "subject", strings.TrimSuffix(s.Prefix, "/"), "error", err)
		}
	}
}

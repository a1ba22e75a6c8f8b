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

	Value  func(name string) ([]byte, bool) // returns a value, and false if there is none: see Values.Value
	Values func() iter.Seq2[string, []byte] // yields all values by name; nil: the one without a name is all

	// Restore gives the values of the file back to the part, by name, if there are any. Shift is that of Restored. The error says
	// which of them cannot be read, and are left out. Nil: who needs them asks Restored.
	Restore func(values map[string][]byte, shift time.Duration) error
}

// JSON is a Subject with values of one type, which the file has as JSON. Its fields are as those of Subject.
type JSON[T any] struct {
	Prefix  string
	Lasting bool
	Value   func(name string) (T, bool)
	Values  func() iter.Seq2[string, T]
	Restore func(values map[string]T, shift time.Duration)
}

// Subject returns the subject. T must be a type of which each value can be marshaled.
func (j JSON[T]) Subject() Subject {
	s := Subject{Prefix: j.Prefix, Lasting: j.Lasting, Restore: j.restore}
	s.Value = func(name string) ([]byte, bool) {
		value, ok := j.Value(name)
		if !ok {
			return nil, false
		}
		return marshal(value), true
	}
	if j.Values != nil {
		s.Values = func() iter.Seq2[string, []byte] {
			return func(yield func(string, []byte) bool) {
				for name, value := range j.Values() {
					if !yield(name, marshal(value)) {
						return
					}
				}
			}
		}
	}
	return s
}

// marshal returns a value of a JSON as text.
func marshal(value any) []byte {
	text, _ := json.Marshal(value) // see JSON.Subject
	return text
}

// restore reads the values, and gives back those that can be read.
func (j JSON[T]) restore(values map[string][]byte, shift time.Duration) error {
	var wrong []error
	all := make(map[string]T, len(values))
	for name, text := range values {
		var value T
		if err := json.Unmarshal(text, &value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s%s: %w", j.Prefix, name, err))
			continue
		}
		all[name] = value
	}
	j.Restore(all, shift)
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
			return all[i].Value(name)
		}
	}
	return nil, false
}

// Values implements Values.
func (all Subjects) Values() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := range all {
			for name, value := range all[i].all() {
				if !yield(all[i].Prefix+name, value) {
					return
				}
			}
		}
	}
}

// all yields the values of a subject.
func (s *Subject) all() iter.Seq2[string, []byte] {
	if s.Values != nil {
		return s.Values()
	}
	return func(yield func(string, []byte) bool) {
		if value, ok := s.Value(""); ok {
			yield("", value)
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

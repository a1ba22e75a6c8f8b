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

// Subject is the state of one part of a program other than probes: named values. The key of a value in the file is Prefix plus
// its name.
type Subject struct {
	Prefix  string // ends with a slash; otherwise it is the only key, and the value has no name
	Lasting bool   // restored regardless of its age

	Value func(name string) (value any, ok bool) // returns the value to store as JSON, and false if there is none: see Values.Value
	Names func() []string                        // returns the names that may have a value; nil for a single value without a name

	// Restore passes the values in the file, by name, to the part, if there are any: see RestoreAll. For shift see
	// Restored.Shift. The error describes the values that cannot be read and are skipped. If Restore is nil, the part reads the
	// values from Restored.
	Restore func(values map[string][]byte, shift time.Duration) error
}

// RestoreAll returns a Subject.Restore that decodes values of type T from JSON, and passes the valid ones to restore.
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

// RestoreEach calls restore for each value, and joins the errors, with the names of the values.
func RestoreEach(values map[string][]byte, restore func(name string, value []byte) error) error {
	var wrong []error
	for name, value := range values {
		if err := restore(name, value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(wrong...)
}

// name returns the name of the value with the given key, and false if the key belongs to another subject.
func (s *Subject) name(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, s.Prefix)
	return name, ok && (name == "" || strings.HasSuffix(s.Prefix, "/"))
}

// Subjects is the entire state of a program other than probes: the Values of a Store. No prefix may be a prefix of another one.
type Subjects []Subject

// Lasting returns the prefixes of the subjects that are restored regardless of age, for Config.
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
	return text, err == nil // an error is a bug of the part: values must be marshalable
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

// Restore passes its values in the file to each subject, in order. It logs values that cannot be read.
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
			log.Warn("unreadable state discarded", "subject", strings.TrimSuffix(s.Prefix, "/"), "error", err)
		}
	}
}

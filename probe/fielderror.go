package probe

import (
	"fmt"
	"strings"
)

// FieldError describes an invalid field of a configuration. Package config turns it into a diagnostic that points at the field in
// the file.
type FieldError struct {
	Field   string // its HCL name: "failure_threshold", "tls.ca_file"
	Problem string // completes a sentence that starts with the field's name: "must be 1 or more"
	Hint    string // remedy; may be empty

	// Plain reports that Problem and Hint contain no part of the value, so they may be shown even if the value is sensitive.
	Plain bool
}

// FieldErrorf returns a *FieldError. The problem is formatted as by fmt.Sprintf.
func FieldErrorf(field, problem string, a ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(problem, a...)}
}

// Error returns the field, the problem and the hint: "failure_threshold must be 1 or more".
func (e *FieldError) Error() string {
	if e.Hint == "" {
		return e.Field + " " + e.Problem
	}
	return e.Field + " " + e.Problem + "; " + e.Hint
}

// FieldErrors collects all invalid fields of a configuration.
type FieldErrors []*FieldError

// Add adds an error. The problem is formatted as by fmt.Sprintf.
func (e *FieldErrors) Add(field, problem string, a ...any) {
	*e = append(*e, &FieldError{Field: field, Problem: fmt.Sprintf(problem, a...)})
}

// Err returns the collection as an error, or nil if it is empty.
func (e FieldErrors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Error returns the errors in one line, separated by semicolons.
func (e FieldErrors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the individual errors, for errors.Is and errors.As.
func (e FieldErrors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

package probe

import (
	"fmt"
	"strings"
)

// names are the texts of an enumeration, by value.
type names[T ~uint8] []string

func (n names[T]) text(v T) string {
	if int(v) < len(n) && n[v] != "" {
		return n[v]
	}
	return fmt.Sprintf("invalid(%d)", uint8(v))
}

func (n names[T]) parse(field string, b []byte) (T, error) {
	for v, name := range n {
		if name != "" && name == string(b) {
			return T(v), nil
		}
	}
	return 0, &FieldError{Field: field, Problem: fmt.Sprintf("is %q, it must be one of %s", b, n.list())}
}

func (n names[T]) list() string {
	var known []string
	for _, name := range n {
		if name != "" {
			known = append(known, name)
		}
	}
	return strings.Join(known, ", ")
}

// FieldError says which field of a configuration is wrong, and how. Package
// config turns it into a diagnostic that points at the field in the file.
type FieldError struct {
	Field   string // as HCL writes it: "failure_threshold", "tls.ca_file"
	Problem string // follows the field's name in a sentence: "must be 1 or more"
}

// Error returns the field and the problem: "failure_threshold must be 1 or more".
func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

package probe

import (
	"fmt"
	"strings"
)

// names holds the texts of an enumeration, indexed by value.
type names[T ~uint8] []string

func (n names[T]) text(v T) string {
	if int(v) < len(n) && n[v] != "" {
		return n[v]
	}
	return fmt.Sprintf("invalid(%d)", uint8(v))
}

// parse sets *to to the value with the text b. The error is a FieldError for field.
func (n names[T]) parse(to *T, field string, b []byte) error {
	for v, name := range n {
		if name != "" && name == string(b) {
			*to = T(v)
			return nil
		}
	}
	return FieldErrorf(field, "is %q; it must be one of %s", b, n.list())
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

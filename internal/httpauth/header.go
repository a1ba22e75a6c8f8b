package httpauth

import (
	"fmt"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// CheckHeader validates the name and the values of a header. The error is for the given field, or nil; it never
// contains a value.
func CheckHeader(field, name string, values ...string) *probe.FieldError {
	if !IsToken(name) {
		err := &probe.FieldError{Field: field, Problem: fmt.Sprintf("has an invalid name: %.80q", name)}
		if plain, ok := strings.CutSuffix(name, ":"); ok {
			err.Hint = fmt.Sprintf("write %.80s, without the colon", plain)
		}
		return err
	}
	for _, value := range values {
		if strings.TrimRight(value, "\r\n") != value {
			const hint = `a file ends with one: write trimspace(file("…"))`
			return &probe.FieldError{Field: field, Problem: fmt.Sprintf("has a line break at the end of %.80s", name), Hint: hint, Plain: true}
		}
		if strings.ContainsFunc(value, func(r rune) bool { return isControl(r) && r != '\t' }) {
			return &probe.FieldError{Field: field, Problem: fmt.Sprintf("has control characters in %.80s", name), Plain: true}
		}
	}
	return nil
}

// IsToken reports whether s is a token of RFC 9110, section 5.6.2, as methods and
// header names are.
func IsToken[T string | []byte](s T) bool {
	for i := range len(s) {
		letter := 'a' <= s[i]|0x20 && s[i]|0x20 <= 'z'
		digit := '0' <= s[i] && s[i] <= '9'
		if !letter && !digit && strings.IndexByte("-!#$%&'*+.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return len(s) > 0
}

package guest

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reader reads JSON. With package encoding/json a plugin would be a third larger, and a
// third slower to load.
type reader struct {
	text []byte // that is not read yet
}

var errJSON = errors.New("not JSON")

// maxDepth bounds the nesting of skipped values.
const maxDepth = 32

func (r *reader) space() {
	for len(r.text) > 0 && (r.text[0] == ' ' || r.text[0] == '\n' || r.text[0] == '\t' || r.text[0] == '\r') {
		r.text = r.text[1:]
	}
}

// next skips c and returns true if it comes next.
func (r *reader) next(c byte) bool {
	r.space()
	if len(r.text) == 0 || r.text[0] != c {
		return false
	}
	r.text = r.text[1:]
	return true
}

// word skips a word and returns true if it comes next.
func (r *reader) word(w string) bool {
	r.space()
	return r.skipPrefix(w)
}

func (r *reader) skipPrefix(s string) (ok bool) {
	r.text, ok = bytes.CutPrefix(r.text, []byte(s))
	return ok
}

func (r *reader) null() bool { return r.word("null") }

// members reads an object; f reads the value of each key.
func (r *reader) members(f func(key string) error) error {
	return r.list('{', '}', func() error {
		key, err := r.string()
		if err != nil {
			return err
		}
		if !r.next(':') {
			return errJSON
		}
		return f(key)
	})
}

// elements reads an array; f reads each element.
func (r *reader) elements(f func() error) error { return r.list('[', ']', f) }

func (r *reader) list(open, end byte, f func() error) error {
	if !r.next(open) {
		return errJSON
	}
	if r.next(end) {
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		if r.next(end) {
			return nil
		}
		if !r.next(',') {
			return errJSON
		}
	}
}

// into returns a function that passes on what was read, unless there is an error.
func into[T any](set func(T)) func(T, error) error {
	return func(v T, err error) error {
		if err == nil {
			set(v)
		}
		return err
	}
}

func (r *reader) boolean() (bool, error) {
	yes := r.word("true")
	if !yes && !r.word("false") {
		return false, errJSON
	}
	return yes, nil
}

// number returns the text of a number.
func (r *reader) number() string {
	r.space()
	rest := bytes.TrimLeft(r.text, "0123456789-+.eE")
	n := string(r.text[:len(r.text)-len(rest)])
	r.text = rest
	return n
}

func (r *reader) string() (string, error) {
	if !r.next('"') {
		return "", errJSON
	}
	var b []byte
	for {
		n := bytes.IndexAny(r.text, `"\\`)
		if n < 0 {
			return "", errJSON
		}
		plain, c := r.text[:n], r.text[n]
		r.text = r.text[n+1:]
		switch {
		case c == '"' && b == nil:
			return string(plain), nil
		case c == '"':
			return string(append(b, plain...)), nil
		}
		b = r.escape(append(b, plain...))
	}
}

// escape reads an escape sequence after its backslash.
func (r *reader) escape(b []byte) []byte {
	if len(r.text) == 0 {
		return b
	}
	c := r.text[0]
	r.text = r.text[1:]
	if c == 'u' {
		first := r.digits()
		if utf16.IsSurrogate(first) && r.skipPrefix(`\u`) {
			first = utf16.DecodeRune(first, r.digits())
		}
		return utf8.AppendRune(b, first)
	}
	if i := strings.IndexByte("bfnrt", c); i >= 0 {
		c = "\b\f\n\r\t"[i]
	}
	return append(b, c)
}

// digits reads the four digits after \u.
func (r *reader) digits() rune {
	end := min(4, len(r.text))
	n, err := strconv.ParseUint(string(r.text[:end]), 16, 16)
	r.text = r.text[end:]
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}

// skipTo skips a value of any kind, nested up to a depth.
func (r *reader) skipTo(depth int) error {
	if depth == 0 {
		return errJSON
	}
	r.space()
	if len(r.text) == 0 {
		return errJSON
	}
	switch r.text[0] {
	case '"':
		_, err := r.string()
		return err
	case '{':
		return r.members(func(string) error { return r.skipTo(depth - 1) })
	case '[':
		return r.elements(func() error { return r.skipTo(depth - 1) })
	}
	if r.null() || r.word("true") || r.word("false") || r.number() != "" {
		return nil
	}
	return errJSON
}

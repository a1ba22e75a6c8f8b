package guest

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reader reads JSON. With package encoding/json a plugin would be a third larger and load a third
// more slowly. Strings without escape sequences alias the text, because allocation is most of the
// cost of reading in a plugin.
type reader struct {
	text string // the unread rest
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
	r.text, ok = strings.CutPrefix(r.text, s)
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
	n := 0
	for n < len(r.text) && (r.text[n] >= '0' && r.text[n] <= '9' || strings.IndexByte("-+.eE", r.text[n]) >= 0) {
		n++
	}
	var text string
	text, r.text = r.text[:n], r.text[n:]
	return text
}

func (r *reader) string() (string, error) {
	if !r.next('"') {
		return "", errJSON
	}
	var b []byte // nil until the first escape sequence
	for end := -1; ; {
		if end < 0 { // otherwise end is the next quote
			end = strings.IndexByte(r.text, '"') // in a plugin, loops over bytes take long
		}
		if end < 0 {
			return "", errJSON
		}
		n := strings.IndexByte(r.text[:end], '\\')
		if n < 0 {
			plain := r.text[:end]
			r.text = r.text[end+1:]
			if b == nil {
				return plain, nil
			}
			return string(append(b, plain...)), nil
		}
		b = append(b, r.text[:n]...)
		left := len(r.text)
		r.text = r.text[n+1:]
		b = r.escape(b)
		end -= left - len(r.text) // negative if that quote was part of the escape sequence
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
	n, err := strconv.ParseUint(r.text[:end], 16, 16)
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

package guest

import (
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// reader reads JSON. With package encoding/json a plugin would be a third larger, and a
// third slower to load.
type reader struct {
	text []byte
	at   int
}

var errJSON = errors.New("not JSON")

// maxDepth bounds the nesting of skipped values.
const maxDepth = 32

func (r *reader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// next skips c and returns true if it comes next.
func (r *reader) next(c byte) bool {
	r.space()
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

// word skips a word and returns true if it comes next.
func (r *reader) word(w string) bool {
	r.space()
	if rest := r.text[r.at:]; len(rest) >= len(w) && string(rest[:len(w)]) == w {
		r.at += len(w)
		return true
	}
	return false
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

func (r *reader) into(set func(string)) error {
	s, err := r.string()
	if err == nil {
		set(s)
	}
	return err
}

func (r *reader) boolean(set func(bool)) error {
	yes := r.word("true")
	if !yes && !r.word("false") {
		return errJSON
	}
	set(yes)
	return nil
}

func (r *reader) integer(set func(int64)) error {
	n, err := strconv.ParseInt(r.number(), 10, 64)
	if err == nil {
		set(n)
	}
	return err
}

func (r *reader) float(set func(float64)) error {
	n, err := strconv.ParseFloat(r.number(), 64)
	if err == nil {
		set(n)
	}
	return err
}

// number returns the text of a number.
func (r *reader) number() string {
	r.space()
	from := r.at
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			r.at++
			continue
		}
		break
	}
	return string(r.text[from:r.at])
}

func (r *reader) string() (string, error) {
	if !r.next('"') {
		return "", errJSON
	}
	var b []byte
	for r.at < len(r.text) {
		c := r.text[r.at]
		r.at++
		switch c {
		case '"':
			return string(b), nil
		case '\\':
			b = r.escape(b)
		default:
			b = append(b, c)
		}
	}
	return "", errJSON
}

// escape reads an escape sequence after its backslash.
func (r *reader) escape(b []byte) []byte {
	if r.at == len(r.text) {
		return b
	}
	c := r.text[r.at]
	r.at++
	switch c {
	case 'b':
		return append(b, '\b')
	case 'f':
		return append(b, '\f')
	case 'n':
		return append(b, '\n')
	case 'r':
		return append(b, '\r')
	case 't':
		return append(b, '\t')
	case 'u':
		return utf8.AppendRune(b, r.unicode())
	}
	return append(b, c)
}

// unicode reads the four digits after \u, and the second half of a surrogate pair.
func (r *reader) unicode() rune {
	first := r.digits()
	if utf16.IsSurrogate(first) && r.word(`\u`) {
		return utf16.DecodeRune(first, r.digits())
	}
	return first
}

func (r *reader) digits() rune {
	end := min(r.at+4, len(r.text))
	n, err := strconv.ParseUint(string(r.text[r.at:end]), 16, 16)
	r.at = end
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}

// skip skips a value of any kind.
func (r *reader) skip() error { return r.skipTo(maxDepth) }

func (r *reader) skipTo(depth int) error {
	if depth == 0 {
		return errJSON
	}
	r.space()
	if r.at == len(r.text) {
		return errJSON
	}
	switch r.text[r.at] {
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

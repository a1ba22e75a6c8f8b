package dbus

import (
	"encoding/binary"
	"errors"
	"math"
)

// maxDepth is the maximum nesting of values, as specified by D-Bus.
const maxDepth = 64

var errMalformed = errors.New("malformed D-Bus message")

// decode returns the values of a body. A number has the corresponding Go type; a string, object path or signature is a
// string; a variant is its value; "ay" is []byte; a dictionary with string keys is map[string]any; any other array,
// dictionary entry or structure is []any.
func decode(body []byte, order binary.ByteOrder, signature string) (values []any, err error) {
	d := decoder{bytes: body, order: order}
	for signature != "" && d.err == nil {
		var v any
		v, signature = d.value(signature, 0)
		values = append(values, v)
	}
	return values, d.err
}

// decoder reads values. After an error it returns zero values.
type decoder struct {
	bytes []byte
	order binary.ByteOrder
	at    int
	err   error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errMalformed
	}
}

// take returns the next n bytes at the given alignment.
func (d *decoder) take(n, alignment int) []byte {
	at := align(d.at, alignment)
	if d.err != nil || n < 0 || n > len(d.bytes)-at {
		d.fail()
		return nil
	}
	d.at = at + n
	return d.bytes[at:d.at]
}

func (d *decoder) uint16() uint16 {
	if b := d.take(2, 2); b != nil {
		return d.order.Uint16(b)
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.take(4, 4); b != nil {
		return d.order.Uint32(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8, 8); b != nil {
		return d.order.Uint64(b)
	}
	return 0
}

func (d *decoder) byte() byte {
	if b := d.take(1, 1); b != nil {
		return b[0]
	}
	return 0
}

// text returns n bytes as a string, and skips the NUL after them.
func (d *decoder) text(n uint32) string {
	if n > maxSkip {
		d.fail()
		return ""
	}
	if b := d.take(int(n)+1, 1); b != nil {
		return string(b[:n])
	}
	return ""
}

// value reads a value of the first complete type of a signature, and returns the rest of the signature.
func (d *decoder) value(signature string, depth int) (v any, rest string) {
	if signature == "" || depth > maxDepth {
		d.fail()
	}
	if d.err != nil {
		return nil, ""
	}
	rest = signature[1:]
	switch signature[0] {
	case 'y':
		return d.byte(), rest
	case 'b':
		return d.uint32() != 0, rest
	case 'n':
		return int16(d.uint16()), rest
	case 'q':
		return d.uint16(), rest
	case 'i':
		return int32(d.uint32()), rest
	case 'u', 'h':
		return d.uint32(), rest
	case 'x':
		return int64(d.uint64()), rest
	case 't':
		return d.uint64(), rest
	case 'd':
		return math.Float64frombits(d.uint64()), rest
	case 's', 'o':
		return d.text(d.uint32()), rest
	case 'g':
		return d.text(uint32(d.byte())), rest
	case 'v':
		v, left := d.value(d.text(uint32(d.byte())), depth+1)
		if left != "" {
			d.fail()
		}
		return v, rest
	case 'a':
		return d.array(rest, depth+1)
	case '(':
		return d.fields(rest, ')', depth+1)
	case '{':
		return d.fields(rest, '}', depth+1)
	}
	d.fail()
	return nil, ""
}

// fields reads a structure or a dictionary entry. The signature is the part after the opening character.
func (d *decoder) fields(signature string, end byte, depth int) (fields []any, rest string) {
	d.take(0, 8)
	for d.err == nil && signature != "" {
		if signature[0] == end && len(fields) > 0 {
			return fields, signature[1:]
		}
		var v any
		v, signature = d.value(signature, depth)
		fields = append(fields, v)
	}
	d.fail()
	return nil, ""
}

// array reads an array whose elements have the first complete type of the signature element.
func (d *decoder) array(element string, depth int) (v any, rest string) {
	length := d.uint32()
	size, ok := typeLength(element, 0)
	if !ok || length > maxSkip {
		d.fail()
		return nil, ""
	}
	element, rest = element[:size], element[size:]
	d.take(0, alignment(element[0]))
	end := d.at + int(length)
	if d.err != nil || end > len(d.bytes) {
		d.fail()
		return nil, ""
	}
	if element == "y" {
		return d.take(int(length), 1), rest
	}
	var list []any
	for d.at < end && d.err == nil {
		one, _ := d.value(element, depth)
		list = append(list, one)
	}
	if d.at > end {
		d.fail()
	}
	if element[0] == '{' && element[1] == 's' {
		return d.dictionary(list), rest
	}
	return list, rest
}

func (d *decoder) dictionary(entries []any) map[string]any {
	if d.err != nil {
		return nil
	}
	m := make(map[string]any, len(entries))
	for _, e := range entries {
		pair := e.([]any)
		if len(pair) != 2 {
			d.fail()
			return nil
		}
		m[pair[0].(string)] = pair[1]
	}
	return m
}

// alignment returns the alignment of values of a type.
func alignment(kind byte) int {
	switch kind {
	case 'y', 'g', 'v':
		return 1
	case 'n', 'q':
		return 2
	case 'x', 't', 'd', '(', '{':
		return 8
	}
	return 4
}

// typeLength returns the length of the first complete type of a signature.
func typeLength(signature string, depth int) (n int, ok bool) {
	if signature == "" || depth > maxDepth {
		return 0, false
	}
	switch signature[0] {
	case 'a':
		n, ok = typeLength(signature[1:], depth+1)
		return n + 1, ok
	case '(', '{':
		end := byte(')')
		if signature[0] == '{' {
			end = '}'
		}
		n = 1
		for n < len(signature) && signature[n] != end {
			one, ok := typeLength(signature[n:], depth+1)
			if !ok {
				return 0, false
			}
			n += one
		}
		return n + 1, n > 1 && n < len(signature)
	case ')', '}':
		return 0, false
	}
	return 1, true
}

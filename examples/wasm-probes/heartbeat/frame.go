package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/guest"
)

// number is the encoding of a beat's number in a frame.
type number int

const (
	none    number = iota
	decimal        // {seq}
	bits32         // {seq32}: the low 32 bits of the number, big-endian
	bits64         // {seq64}
)

var placeholders = map[number]string{decimal: "{seq}", bits32: "{seq32}", bits64: "{seq64}"}

// frame is the format of a beat or a response: bytes with at most one number.
type frame struct {
	before []byte
	number number
	after  []byte
}

// maxFrame bounds a frame, in bytes.
const maxFrame = 1 << 10

// parseFrame parses the setting of a frame. An error is a *guest.FieldError.
func parseFrame(field, text, format string) (f frame, err error) {
	if strings.Count(text, "{seq") > 1 {
		return f, &guest.FieldError{Field: field, Problem: "has more than one number"}
	}
	before, after := text, ""
	for n, placeholder := range placeholders {
		if b, a, ok := strings.Cut(text, placeholder); ok {
			before, after, f.number = b, a, n
			break
		}
	}
	if f.before, err = parseText(field, before, format); err != nil {
		return f, err
	}
	f.after, err = parseText(field, after, format)
	return f, err
}

// parseText decodes the bytes in a setting.
func parseText(field, text, format string) ([]byte, error) {
	b := []byte(text)
	switch format {
	case "text":
	case "hex":
		var err error
		if b, err = hex.DecodeString(strings.Join(strings.Fields(text), "")); err != nil {
			return nil, &guest.FieldError{Field: field, Problem: "must be hexadecimal digits, two for each byte"}
		}
	default:
		return nil, &guest.FieldError{Field: "format", Problem: "must be text or hex"}
	}
	if len(b) > maxFrame {
		return nil, &guest.FieldError{Field: field, Problem: fmt.Sprintf("is longer than %d bytes", maxFrame)}
	}
	return b, nil
}

// append appends the frame of a beat.
func (f frame) append(b []byte, seq uint64) []byte {
	b = append(b, f.before...)
	switch f.number {
	case decimal:
		b = strconv.AppendUint(b, seq, 10)
	case bits32:
		b = binary.BigEndian.AppendUint32(b, uint32(seq))
	case bits64:
		b = binary.BigEndian.AppendUint64(b, seq)
	}
	return append(b, f.after...)
}

// match reads one frame at the start of b. It returns the number, which is 0 for frames without
// one, and the frame's length. The length is 0 if more bytes are needed.
func (f frame) match(b []byte) (seq uint64, length int, err error) {
	rest, ok := cutPrefix(b, f.before)
	if !ok || rest == nil {
		return 0, 0, mismatch(b, ok)
	}
	seq, used, ok := f.readNumber(rest)
	if !ok || used < 0 {
		return 0, 0, mismatch(b, ok)
	}
	rest, ok = cutPrefix(rest[used:], f.after)
	if !ok || rest == nil {
		return 0, 0, mismatch(b, ok)
	}
	return seq, len(b) - len(rest), nil
}

func mismatch(b []byte, soFar bool) error {
	if soFar {
		return nil
	}
	return fmt.Errorf("the answer begins with %q, which was not expected", b[:min(len(b), 64)])
}

// cutPrefix returns the bytes after a prefix, or nil if b is too short. It returns false if b does
// not match the prefix.
func cutPrefix(b, prefix []byte) (rest []byte, ok bool) {
	if len(b) < len(prefix) {
		return nil, bytes.HasPrefix(prefix, b)
	}
	if !bytes.HasPrefix(b, prefix) {
		return nil, false
	}
	return b[len(prefix):len(b):len(b)], true
}

// digits bounds a decimal number.
const digits = 20

// readNumber reads the number of a beat and returns its length, or -1 if b is too short. It returns
// false if there is no number.
func (f frame) readNumber(b []byte) (seq uint64, used int, ok bool) {
	switch f.number {
	case none:
		return 0, 0, true
	case bits32:
		if len(b) < 4 {
			return 0, -1, true
		}
		return uint64(binary.BigEndian.Uint32(b)), 4, true
	case bits64:
		if len(b) < 8 {
			return 0, -1, true
		}
		return binary.BigEndian.Uint64(b), 8, true
	}
	for used < len(b) && used < digits && b[used] >= '0' && b[used] <= '9' {
		used++
	}
	if used == len(b) && used < digits {
		return 0, -1, true
	}
	seq, err := strconv.ParseUint(string(b[:used]), 10, 64)
	return seq, used, err == nil
}

package module

import (
	"errors"
	"fmt"
	"iter"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// reader reads the body of a section or a part of it. After an error it returns zero values; err is
// the first error.
type reader struct {
	b   []byte
	at  int
	err error
}

// newReader returns a reader of b. It does not modify b.
func newReader(b []byte) *reader { return &reader{b: b} }

var errShort = errors.New("ends too early")

// fail records the first error and stops reading.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.at = len(r.b)
}

// end returns the first error; unread bytes are an error.
func (r *reader) end() error {
	if r.err == nil && r.at != len(r.b) {
		r.fail(fmt.Errorf("%d bytes are left over", len(r.b)-r.at))
	}
	return r.err
}

// offset returns the number of bytes read, or the length of the reader's bytes after an error.
func (r *reader) offset() int { return r.at }

// since returns the bytes read since an offset.
func (r *reader) since(offset int) []byte { return r.b[offset:r.at] }

// byte reads a byte.
func (r *reader) byte() byte {
	if r.at >= len(r.b) {
		r.fail(errShort)
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

// peek returns the next byte without reading it, or 0 at the end.
func (r *reader) peek() byte {
	if r.at >= len(r.b) {
		return 0
	}
	return r.b[r.at]
}

// bytes reads n bytes. The result aliases the reader's bytes.
func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)-r.at) {
		r.fail(errShort)
		return nil
	}
	r.at += int(n)
	return r.b[r.at-int(n) : r.at]
}

// rest reads the remaining bytes.
func (r *reader) rest() []byte { return r.bytes(uint32(len(r.b) - r.at)) }

// name reads a length and as many bytes.
func (r *reader) name() string { return string(r.bytes(r.uint32())) }

// uint32 reads an unsigned LEB128 number.
func (r *reader) uint32() uint32 {
	if b := r.peek(); b < 0x80 && r.at < len(r.b) { // nearly always
		r.at++
		return uint32(b)
	}
	n, rest, err := abi.Uint32(r.b[r.at:])
	if err != nil {
		r.fail(err)
		return 0
	}
	r.at = len(r.b) - len(rest)
	return n
}

// signed reads a signed LEB128 number of at most most bytes; bits beyond 64 are lost.
func (r *reader) signed(most int) (n int64) {
	for i := range most {
		b := r.byte()
		n |= int64(b&0x7f) << (7 * i)
		if b >= 0x80 {
			continue
		}
		if shift := 7 * (i + 1); b&0x40 != 0 && shift < 64 {
			n |= -1 << shift
		}
		return n
	}
	r.fail(fmt.Errorf("number has more than %d bytes", most))
	return 0
}

// index reads an index, which must be below n.
func (r *reader) index(n int, of string) uint32 {
	i := r.uint32()
	if r.err == nil && uint64(i) >= uint64(n) {
		r.fail(fmt.Errorf("there is no %s %d", of, i))
	}
	return i
}

// count reads the number of entries that follow, each of at least size bytes. More than most
// entries are an error: a runtime needs far more memory for an entry than its encoding has bytes.
func (r *reader) count(most, size uint32) uint32 {
	n := r.uint32()
	switch {
	case n > most:
		r.fail(fmt.Errorf("%d entries, at most %d are allowed", n, most))
	case uint64(n)*uint64(size) > uint64(len(r.b)-r.at):
		r.fail(fmt.Errorf("%d entries cannot be in the %d bytes that are left", n, len(r.b)-r.at))
	}
	if r.err != nil {
		return 0
	}
	return n
}

// each yields the numbers below n, until an error occurs.
func (r *reader) each(n uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := uint32(0); i < n && r.err == nil && yield(i); i++ {
		}
	}
}

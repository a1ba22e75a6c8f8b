// Package binary reads the parts of a module's binary format (WebAssembly core
// specification 2, section 5), on top of package abi, which splits a module into
// sections. It is the only package that does, so that what is checked is what is rewritten.
//
// A module comes from outside. Types are read by lists of what is allowed, because a runtime
// may know types beyond WebAssembly 2.0, of other lengths: a byte that this package does not
// know is an error. Every count is bounded before memory is taken for what is counted.
//
// # Files
//
//	reader.go   Reader: numbers, names, counts and indices
//	type.go     the types of values, functions, blocks, tables, memories and globals
//	constant.go the instructions of constant expressions
//	section.go  Split: the sections of a module, in their order; writing them
package binary

import (
	"errors"
	"fmt"
	"iter"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Reader reads the body of a section, or a part of one. After an error it returns zero
// values; Err is the first error.
type Reader struct {
	b   []byte
	at  int
	err error
}

// NewReader returns a reader of b, which it does not change.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

var errShort = errors.New("ends too early")

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Fail records an error, unless there was one before, and ends reading.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.at = len(r.b)
}

// End returns the first error; bytes that were not read are one.
func (r *Reader) End() error {
	if r.err == nil && r.at != len(r.b) {
		r.Fail(fmt.Errorf("%d bytes are left over", len(r.b)-r.at))
	}
	return r.err
}

// More reports whether there is something left to read.
func (r *Reader) More() bool { return r.at < len(r.b) }

// Offset returns how many bytes were read, which is len of the reader's bytes after an error.
func (r *Reader) Offset() int { return r.at }

// Since returns the bytes that were read from an offset on.
func (r *Reader) Since(offset int) []byte { return r.b[offset:r.at] }

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if r.at >= len(r.b) {
		r.Fail(errShort)
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

// peek returns the next byte without reading it, or 0 at the end.
func (r *Reader) peek() byte {
	if r.at >= len(r.b) {
		return 0
	}
	return r.b[r.at]
}

// Bytes reads n bytes. They share the reader's memory.
func (r *Reader) Bytes(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)-r.at) {
		r.Fail(errShort)
		return nil
	}
	r.at += int(n)
	return r.b[r.at-int(n) : r.at]
}

// Name reads a length and as many bytes.
func (r *Reader) Name() string { return string(r.Bytes(r.Uint32())) }

// Uint32 reads an unsigned LEB128 number.
func (r *Reader) Uint32() uint32 {
	if b := r.peek(); b < 0x80 && r.at < len(r.b) { // nearly always
		r.at++
		return uint32(b)
	}
	n, rest, err := abi.Uint32(r.b[r.at:])
	if err != nil {
		r.Fail(err)
		return 0
	}
	r.at = len(r.b) - len(rest)
	return n
}

// signed reads a signed LEB128 number of at most most bytes, and returns it; bits beyond 64
// are lost.
func (r *Reader) signed(most int) (n int64) {
	for i := range most {
		b := r.Byte()
		n |= int64(b&0x7f) << (7 * i)
		if b >= 0x80 {
			continue
		}
		if shift := 7 * (i + 1); b&0x40 != 0 && shift < 64 {
			n |= -1 << shift
		}
		return n
	}
	r.Fail(fmt.Errorf("number has more than %d bytes", most))
	return 0
}

// Index reads an index, which must be below n.
func (r *Reader) Index(n int, of string) uint32 {
	i := r.Uint32()
	if r.err == nil && uint64(i) >= uint64(n) {
		r.Fail(fmt.Errorf("there is no %s %d", of, i))
	}
	return i
}

// Count reads the number of entries that follow, of at least size bytes each. More than most
// are an error: a runtime needs far more memory for an entry than it has bytes.
func (r *Reader) Count(most, size uint32) uint32 {
	n := r.Uint32()
	switch {
	case n > most:
		r.Fail(fmt.Errorf("%d entries, at most %d are allowed", n, most))
	case uint64(n)*uint64(size) > uint64(len(r.b)-r.at):
		r.Fail(fmt.Errorf("%d entries cannot be in the %d bytes that are left", n, len(r.b)-r.at))
	}
	if r.err != nil {
		return 0
	}
	return n
}

// Each yields the numbers below n, until an error occurs.
func (r *Reader) Each(n uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := uint32(0); i < n && r.err == nil && yield(i); i++ {
		}
	}
}

package module

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// reader reads a section of a module's binary format. After an error it returns zero
// values; err is the first error.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail(errors.New("ends too early"))
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// peek returns the next byte without reading it, or 0 at the end.
func (r *reader) peek() byte {
	if len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

func (r *reader) uint32() uint32 { return take(r, abi.Uint32) }

func (r *reader) name() string {
	return string(take(r, abi.Bytes))
}

// take reads what read returns.
func take[T any](r *reader, read func([]byte) (v T, rest []byte, err error)) (v T) {
	v, rest, err := read(r.rest)
	if err != nil {
		r.fail(err)
		return v
	}
	r.rest = rest
	return v
}

// each reads a count of at most max and calls f as often. The bound is needed because an
// entry can take far more memory than it has bytes in the binary.
func (r *reader) each(max uint32, f func()) {
	n := r.uint32()
	if n > max {
		r.fail(fmt.Errorf("%d entries, at most %d are allowed", n, max))
	}
	for i := 0; i < int(n) && r.err == nil; i++ {
		f()
	}
}

// limits are the declared sizes of a memory, in pages, or of a table, in elements.
type limits struct {
	min, max uint32
	hasMax   bool
}

// The flags of limits.
const (
	limitHasMax = 1
	limitShared = 2
	limitWide   = 4 // 64 bits
)

func (r *reader) limits() (l limits) {
	flags := r.byte()
	switch {
	case flags&limitWide != 0:
		r.fail(errors.New("memory or table of 64 bits is not supported"))
	case flags&limitShared != 0:
		r.fail(errors.New("memory shared between threads is not supported"))
	case flags > limitHasMax:
		r.fail(fmt.Errorf("unknown flags %#x", flags))
	}
	l.min = r.uint32()
	if l.hasMax = flags == limitHasMax; l.hasMax {
		l.max = r.uint32()
	}
	return l
}

func (r *reader) table() limits {
	if element := r.byte(); element != 0x70 && element != 0x6f { // funcref, externref
		r.fail(fmt.Errorf("table of unknown type %#x", element))
	}
	return r.limits()
}

func (r *reader) functionType() abi.Function {
	if form := r.byte(); form != 0x60 {
		r.fail(fmt.Errorf("type of unknown form %#x", form))
	}
	return abi.Function{Params: r.valueTypes(), Results: r.valueTypes()}
}

// maxValues bounds the parameters and the results of a function, each.
const maxValues = 1000

// valueTypes reads types and returns a letter for each, as package abi writes them, or ?
// for one that the host's functions do not use.
func (r *reader) valueTypes() string {
	var letters []byte
	r.each(maxValues, func() {
		const first = 0x7c // f64; then f32, i64 and i32
		letter := byte('?')
		if t := r.byte(); t >= first && t <= first+3 {
			letter = "dfli"[t-first]
		}
		letters = append(letters, letter)
	})
	return string(letters)
}

package wasmhost

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// reader reads a section of a module's binary format. After an error it returns
// zero values, and err says what was wrong first.
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
		r.fail(errors.New("it ends too early"))
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uint32() uint32 {
	n, rest, err := abi.Uint32(r.rest)
	if err != nil {
		r.fail(err)
		return 0
	}
	r.rest = rest
	return n
}

func (r *reader) name() string {
	b, rest, err := abi.Bytes(r.rest)
	if err != nil {
		r.fail(err)
		return ""
	}
	r.rest = rest
	return string(b)
}

// each calls f as often as the number that stands first says. It must not be above
// most: what is kept of an element can be many times as long as what is read.
func (r *reader) each(most uint32, f func(i int)) {
	n := r.uint32()
	if n > most {
		r.fail(fmt.Errorf("it has %d elements, at most %d are allowed", n, most))
	}
	for i := 0; i < int(n) && r.err == nil; i++ {
		f(i)
	}
}

// limits are the bounds of a memory, in pages, or a table, in elements.
type limits struct {
	least, most uint32
	bounded     bool // most is given
}

// The flags of limits.
const (
	limitBounded = 1
	limitShared  = 2
	limitWide    = 4 // 64 bits
)

func (r *reader) limits() (l limits) {
	flags := r.byte()
	switch {
	case flags&limitWide != 0:
		r.fail(errors.New("it has 64 bits"))
	case flags&limitShared != 0:
		r.fail(errors.New("it is shared between threads"))
	case flags > limitBounded:
		r.fail(fmt.Errorf("unknown flags %#x", flags))
	}
	l.least = r.uint32()
	if l.bounded = flags == limitBounded; l.bounded {
		l.most = r.uint32()
	}
	return l
}

// valueType returns the letter of a type as package abi writes it, or ? for others.
func valueType(b byte) byte {
	switch b {
	case 0x7f:
		return 'i'
	case 0x7e:
		return 'l'
	case 0x7d:
		return 'f'
	case 0x7c:
		return 'd'
	}
	return '?'
}

// maxValues bounds the parameters and the results of a function, each.
const maxValues = 1000

func (r *reader) values() string {
	var letters []byte
	r.each(maxValues, func(int) { letters = append(letters, valueType(r.byte())) })
	return string(letters)
}

// peek returns the next byte without reading it.
func (r *reader) peek() byte {
	if len(r.rest) == 0 {
		return 0
	}
	return r.rest[0]
}

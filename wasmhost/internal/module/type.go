package module

import (
	"errors"
	"fmt"
)

// The types of values. Each is one byte long; proposals after WebAssembly 2.0 have longer types.
const (
	typeI32   = 0x7f
	typeI64   = 0x7e
	typeF32   = 0x7d
	typeF64   = 0x7c
	v128      = 0x7b
	funcRef   = 0x70
	externRef = 0x6f
)

const (
	functionForm = 0x60 // the first byte of the type of a function
	emptyBlock   = 0x40 // the type of a block without parameters and results
	noResult     = emptyBlock - 0x80
)

// maxParameters bounds both the parameters and the results of a function; browsers have the same
// limit.
const maxParameters = 1000

func isValueType(t byte) bool { return t >= v128 && t <= typeI32 || isRefType(t) }

func isRefType(t byte) bool { return t == funcRef || t == externRef }

// valueType reads the type of a local, a global, a parameter or a result.
func (r *reader) valueType() byte {
	t := r.byte()
	if r.err == nil && !isValueType(t) {
		r.fail(fmt.Errorf("type %#x is unknown, or beyond WebAssembly 2.0", t))
	}
	return t
}

// refType reads the type of a reference.
func (r *reader) refType() byte {
	t := r.byte()
	if r.err == nil && !isRefType(t) {
		r.fail(fmt.Errorf("type of references %#x is unknown, or beyond WebAssembly 2.0", t))
	}
	return t
}

// valueTypes reads a count and as many types, a byte each.
func (r *reader) valueTypes() []byte {
	n := r.count(maxParameters, 1)
	from := r.at
	for range r.each(n) {
		r.valueType()
	}
	return r.since(from)
}

// functionType reads the type of a function.
func (r *reader) functionType() (params, results []byte) {
	if form := r.byte(); r.err == nil && form != functionForm {
		r.fail(fmt.Errorf("type of form %#x is unknown, or beyond WebAssembly 2.0", form))
	}
	return r.valueTypes(), r.valueTypes()
}

// blockType reads the type of a block: the index of a function type, which must be below types, or
// a negative number if the block has no parameters and one result (none if the number is noResult).
func (r *reader) blockType(types int) int64 {
	if t := r.peek(); t == emptyBlock || isValueType(t) {
		r.at++
		return int64(t) - 0x80 // as a signed LEB128 number
	}
	n := r.signed(5)
	if r.err == nil && (n < 0 || n >= int64(types)) {
		r.fail(fmt.Errorf("type %d of a block is unknown, or beyond WebAssembly 2.0", n))
	}
	return n
}

// limits are the declared sizes of a memory, in pages, or of a table, in elements.
type limits struct {
	Min, Max uint32
	HasMax   bool
}

// The flags of limits.
const (
	limitHasMax = 1
	limitShared = 2
	limitWide   = 4 // 64 bits
)

// limits reads the sizes of a memory or a table.
func (r *reader) limits() (l limits) {
	flags := r.byte()
	switch {
	case flags&limitWide != 0:
		r.fail(errors.New("memory or table of 64 bits is not supported"))
	case flags&limitShared != 0:
		r.fail(errors.New("memory shared between threads is not supported"))
	case flags > limitHasMax:
		r.fail(fmt.Errorf("limits with unknown flags %#x", flags))
	}
	l.Min = r.uint32()
	if l.HasMax = flags == limitHasMax; l.HasMax {
		l.Max = r.uint32()
	}
	return l
}

// appendLimits appends limits to out.
func appendLimits(out []byte, l limits) []byte {
	if !l.HasMax {
		return appendUint32(append(out, 0), l.Min)
	}
	return appendUint32(appendUint32(append(out, limitHasMax), l.Min), l.Max)
}

// tableType reads the type of a table.
func (r *reader) tableType() (element byte, l limits) { return r.refType(), r.limits() }

// globalType reads the type of a global.
func (r *reader) globalType() {
	r.valueType()
	if mutable := r.byte(); mutable > 1 {
		r.fail(fmt.Errorf("global with unknown flags %#x", mutable))
	}
}

// importType reads the kind and the type of an import. For a function it returns the index of its type,
// which must be below types.
func (r *reader) importType(types int) (kind byte, functionType uint32) {
	switch kind = r.byte(); kind {
	case kindFunction:
		functionType = r.index(types, "type")
	case kindTable:
		r.tableType()
	case kindMemory:
		r.limits()
	case kindGlobal:
		r.globalType()
	default:
		r.fail(fmt.Errorf("import of kind %d is unknown, or beyond WebAssembly 2.0", kind))
	}
	return kind, functionType
}

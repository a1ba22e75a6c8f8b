package binary

import (
	"errors"
	"fmt"
)

// The types of values. Each is one byte long; the proposals after WebAssembly 2.0 have types
// that are longer.
const (
	I32       = 0x7f
	I64       = 0x7e
	F32       = 0x7d
	F64       = 0x7c
	v128      = 0x7b
	funcRef   = 0x70
	externRef = 0x6f
)

const (
	FunctionForm = 0x60 // the first byte of the type of a function
	EmptyBlock   = 0x40 // the type of a block without parameters and results
	NoResult     = EmptyBlock - 0x80
)

// maxValues bounds the parameters and the results of a function, each, as browsers do.
const maxValues = 1000

func isValueType(t byte) bool { return t >= v128 && t <= I32 || isRefType(t) }

func isRefType(t byte) bool { return t == funcRef || t == externRef }

// ValueType reads the type of a local, a global, a parameter or a result.
func (r *Reader) ValueType() byte {
	t := r.Byte()
	if r.err == nil && !isValueType(t) {
		r.Fail(fmt.Errorf("type %#x is unknown, or beyond WebAssembly 2.0", t))
	}
	return t
}

// RefType reads the type of a reference.
func (r *Reader) RefType() byte {
	t := r.Byte()
	if r.err == nil && !isRefType(t) {
		r.Fail(fmt.Errorf("type of references %#x is unknown, or beyond WebAssembly 2.0", t))
	}
	return t
}

// valueTypes reads a count and as many types, a byte each.
func (r *Reader) valueTypes() []byte {
	n := r.Count(maxValues, 1)
	from := r.at
	for range r.Each(n) {
		r.ValueType()
	}
	return r.Since(from)
}

// FunctionType reads the type of a function.
func (r *Reader) FunctionType() (params, results []byte) {
	if form := r.Byte(); r.err == nil && form != FunctionForm {
		r.Fail(fmt.Errorf("type of form %#x is unknown, or beyond WebAssembly 2.0", form))
	}
	return r.valueTypes(), r.valueTypes()
}

// BlockType reads the type of a block: the index of one of as many types of functions, or a
// negative number if it has no parameters, and one result or, with NoResult, none.
func (r *Reader) BlockType(types int) int64 {
	if t := r.peek(); t == EmptyBlock || isValueType(t) {
		r.at++
		return int64(t) - 0x80 // as a signed LEB128 number
	}
	n := r.signed(5)
	if r.err == nil && (n < 0 || n >= int64(types)) {
		r.Fail(fmt.Errorf("type %d of a block is unknown, or beyond WebAssembly 2.0", n))
	}
	return n
}

// Limits are the declared sizes of a memory, in pages, or of a table, in elements.
type Limits struct {
	Min, Max uint32
	HasMax   bool
}

// The flags of limits.
const (
	limitHasMax = 1
	limitShared = 2
	limitWide   = 4 // 64 bits
)

// Limits reads the sizes of a memory or a table.
func (r *Reader) Limits() (l Limits) {
	flags := r.Byte()
	switch {
	case flags&limitWide != 0:
		r.Fail(errors.New("memory or table of 64 bits is not supported"))
	case flags&limitShared != 0:
		r.Fail(errors.New("memory shared between threads is not supported"))
	case flags > limitHasMax:
		r.Fail(fmt.Errorf("limits with unknown flags %#x", flags))
	}
	l.Min = r.Uint32()
	if l.HasMax = flags == limitHasMax; l.HasMax {
		l.Max = r.Uint32()
	}
	return l
}

// AppendLimits appends limits to out.
func AppendLimits(out []byte, l Limits) []byte {
	if !l.HasMax {
		return AppendUint32(append(out, 0), l.Min)
	}
	return AppendUint32(AppendUint32(append(out, limitHasMax), l.Min), l.Max)
}

// Table reads the type of a table.
func (r *Reader) Table() (element byte, l Limits) { return r.RefType(), r.Limits() }

// GlobalType reads the type of a global.
func (r *Reader) GlobalType() {
	r.ValueType()
	if mutable := r.Byte(); mutable > 1 {
		r.Fail(fmt.Errorf("global with unknown flags %#x", mutable))
	}
}

// Import reads what an import must be: its kind, and the index of its type if it is a
// function.
func (r *Reader) Import() (kind byte, functionType uint32) {
	switch kind = r.Byte(); kind {
	case KindFunction:
		functionType = r.Uint32()
	case kindTable:
		r.Table()
	case KindMemory:
		r.Limits()
	case KindGlobal:
		r.GlobalType()
	default:
		r.Fail(fmt.Errorf("import of kind %d is unknown, or beyond WebAssembly 2.0", kind))
	}
	return kind, functionType
}

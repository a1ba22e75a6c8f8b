// Package image starts instances, and starts them again, in the state that their module has
// after its initialisation. An Image is the linear memory and the mutable globals of an
// initialised instance. Any number of instances are made from it, and each is reset to it
// after a call. On Linux their memories are private mappings of one sealed memory file: an
// instance uses memory for the pages that it has changed, and a reset copies those back.
//
// The rest of an instance's state, its tables and segments, is not in an image. Modules that may change it
// are not for this package: see meter.Info.
//
// # Files
//
//	module.go        Module: what Rewrite changes in a module, so that its state can be reached
//	image.go         Image: taking it, starting from it, resetting to it
//	memory.go        Memory: the linear memory of one instance, within a limit
//	memory_linux.go  its mapping, and how that is reset
//	dirty_linux.go   which pages of a mapping were changed
//	memory_other.go  memory without a mapping
package image

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/wasmhost/internal/binary"
)

// The names of what Rewrite exports.
const (
	exportPrefix = "sonde_image_"
	exportStart  = exportPrefix + "start"
	exportGlobal = exportPrefix + "global_" // and a number, from 0 on
)

// Module is a module whose initialised state can be copied. Other than in the original one,
// a new instance lacks the contents of its data segments, and its start function has not
// been called: an instance that is not made from an image needs Initialize.
type Module struct {
	Wasm []byte // to be compiled

	globals  int // mutable ones, which are exported
	segments []segment
}

// segment is an active data segment.
type segment struct {
	offset uint32
	data   []byte
}

// Rewrite rewrites a module that package meter has returned, for which meter.Info has no NoImage.
func Rewrite(wasm []byte) (*Module, error) {
	bodies, err := binary.Split(wasm)
	if err != nil {
		return nil, err
	}
	m := &Module{Wasm: append(make([]byte, 0, len(wasm)), wasm[:8]...)}
	mutable, err := mutableGlobals(bodies[binary.SectionGlobal])
	if err != nil {
		return nil, fmt.Errorf("globals: %w", err)
	}
	m.globals = len(mutable)
	bodies[binary.SectionExport], err = addExports(bodies[binary.SectionExport], mutable, bodies[binary.SectionStart])
	if err != nil {
		return nil, fmt.Errorf("exports: %w", err)
	}
	bodies[binary.SectionStart] = nil
	if bodies[binary.SectionData], err = m.takeData(bodies[binary.SectionData]); err != nil {
		return nil, fmt.Errorf("data segments: %w", err)
	}
	if bodies[binary.SectionDataCount] == nil {
		bodies[binary.SectionData] = nil // the code cannot refer to a segment, and Go has 100,000 of them
	}
	for _, id := range binary.Order {
		if bodies[id] != nil {
			m.Wasm = binary.AppendSection(m.Wasm, id, bodies[id])
		}
	}
	return m, nil
}

// mutableGlobals returns the indices of the mutable globals. None is imported: see package module.
func mutableGlobals(body []byte) (mutable []uint32, err error) {
	r := reader(body)
	for i := range r.Each(r.Uint32()) {
		from := r.Offset()
		r.GlobalType()
		if t := r.Since(from); r.Err() == nil && t[1] == 1 {
			mutable = append(mutable, i)
		}
		constant(r)
	}
	return mutable, r.End()
}

// addExports exports the mutable globals, and the function of the start section.
func addExports(exports []byte, mutable []uint32, start []byte) ([]byte, error) {
	r := reader(exports)
	n := r.Count(binary.MaxExports+1, 3)
	from := r.Offset()
	for range r.Each(n) {
		if name := r.Name(); strings.HasPrefix(name, exportPrefix) {
			r.Fail(fmt.Errorf("export %q begins with %s, which is the host's own: rename it", name, exportPrefix))
		}
		r.Byte()
		r.Uint32()
	}
	all := append([]byte{}, r.Since(from)...)
	for i, global := range mutable {
		all = append(binary.AppendName(all, exportGlobal+strconv.Itoa(i)), binary.KindGlobal)
		all = binary.AppendUint32(all, global)
	}
	n += uint32(len(mutable))
	if start != nil {
		all = append(binary.AppendName(all, exportStart), binary.KindFunction)
		all = append(all, start...) // its index
		n++
	}
	return append(binary.AppendUint32(nil, n), all...), r.End()
}

// takeData moves the contents of active data segments to m.segments, and leaves empty ones,
// so that the others keep their indices.
func (m *Module) takeData(body []byte) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	const explicit = 2 // the flags of others are 0
	r := reader(body)
	n := r.Uint32()
	out := binary.AppendUint32(nil, n)
	for range r.Each(n) {
		flags := r.Uint32()
		out = binary.AppendUint32(out, flags)
		if flags == explicit {
			out = binary.AppendUint32(out, r.Uint32()) // the memory
		}
		offset, ok := constant(r)
		if r.Err() == nil && !ok {
			r.Fail(errors.New("offset is not a constant of type i32"))
		}
		out = append(out, binary.OpI32Const, 0, binary.OpEnd, 0) // nothing at address 0
		m.segments = append(m.segments, segment{offset, append([]byte{}, r.Bytes(r.Uint32())...)})
	}
	return out, r.End()
}

// reader returns a reader of the body of a section with a vector; nil is an empty one.
func reader(body []byte) *binary.Reader {
	if body == nil {
		body = []byte{0}
	}
	return binary.NewReader(body)
}

// constant reads a constant expression, which package meter has checked, and returns its
// value if that is a plain i32.
func constant(r *binary.Reader) (value uint32, ok bool) {
	for n := 0; r.Err() == nil; n++ {
		switch op := r.Byte(); op {
		case binary.OpEnd:
			return value, ok && n == 1
		case binary.OpGlobalGet, binary.OpRefFunc:
			r.Uint32()
		case binary.OpVector:
			r.Bytes(1 + 16) // the rest of its opcode, and the vector
		default:
			value, ok = uint32(r.Constant(op)), op == binary.OpI32Const
		}
	}
	return 0, false
}

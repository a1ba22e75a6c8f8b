package module

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The names of the exports that let package image reach the state of an instance.
const (
	imagePrefix = "sonde_image_"
	startExport = imagePrefix + "start"
)

// globalExport returns the name of a mutable global, from 0 on.
func globalExport(i int) string { return imagePrefix + "global_" + strconv.Itoa(i) }

// Rewritten is a module that is metered, and whose initialised state can be copied. Other than in the original
// one, a new instance lacks the contents of its data segments, and its start function has not been called: an
// instance that is not made from an image needs Initialize.
type Rewritten struct {
	Wasm       []byte // to be compiled
	Overhead   int64  // what the runtime takes for each instance, in bytes, beside its memory and what all modules need
	Configures bool   // the module checks settings itself

	globals  int // mutable ones, which are exported
	segments []segment
}

// segment is an active data segment.
type segment struct {
	offset uint32
	data   []byte
}

// Rewrite rewrites the module. An error means that the module is invalid, or uses a feature beyond WebAssembly 2.0, or
// exceeds a limit of this package, or that an instance has state which package image cannot copy.
func (m *Module) Rewrite() (*Rewritten, error) {
	bodies, info, err := m.meter()
	switch {
	case err != nil:
		return nil, err
	case info.noImage != "":
		return nil, fmt.Errorf("%s, which cannot be undone after an attempt: build it without references and threads", info.noImage)
	}
	r := &Rewritten{Overhead: info.overhead, Configures: m.hasExport(abi.ExportConfigure), globals: info.mutable}
	bodies[sectionStart] = nil
	if bodies[sectionData], err = r.takeData(bodies[sectionData]); err != nil {
		return nil, fmt.Errorf("data segments: %w", err)
	}
	if bodies[sectionDataCount] == nil {
		bodies[sectionData] = nil // the code cannot refer to a segment, and Go has 100,000 of them
	}
	r.Wasm = bodies.module(m.size)
	return r, nil
}

// takeData moves the contents of active data segments to r.segments, and leaves empty ones, so that the others
// keep their indices.
func (r *Rewritten) takeData(body []byte) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	const explicit = 2 // the flags of others are 0
	c := newReader(body)
	n := c.uint32()
	out := appendUint32(nil, n)
	for range c.each(n) {
		flags := c.uint32()
		out = appendUint32(out, flags)
		if flags == explicit {
			out = appendUint32(out, c.uint32()) // the memory
		}
		if c.byte() != opI32Const {
			c.fail(errOffset)
		}
		offset := uint32(c.signed(5))
		if c.byte() != opEnd {
			c.fail(errOffset)
		}
		out = append(out, opI32Const, 0, opEnd, 0) // nothing at address 0
		r.segments = append(r.segments, segment{offset, append([]byte{}, c.bytes(c.uint32())...)})
	}
	return out, c.end()
}

var errOffset = errors.New("offset is not a constant of type i32")

// Initialize writes the data segments to the memory of an instance without an image, and
// returns the start function, which is to be called next; nil if there is none.
func (r *Rewritten) Initialize(instance api.Module) (start api.Function, err error) {
	for i, s := range r.segments {
		if !instance.Memory().Write(s.offset, s.data) {
			return nil, fmt.Errorf("data segment %d: %d bytes at address %d are outside of the memory", i, len(s.data), s.offset)
		}
	}
	if start = instance.ExportedFunction(startExport); start == nil {
		return nil, nil
	}
	if d := start.Definition(); len(d.ParamTypes())+len(d.ResultTypes()) > 0 {
		return nil, errors.New("start function has parameters or results")
	}
	return start, nil
}

// DropSegments frees the data segments. Initialize must not be called again.
func (r *Rewritten) DropSegments() { r.segments = nil }

// Globals returns the mutable globals of an instance.
func (r *Rewritten) Globals(instance api.Module) []api.MutableGlobal {
	all := make([]api.MutableGlobal, r.globals)
	for i := range all {
		all[i] = instance.ExportedGlobal(globalExport(i)).(api.MutableGlobal)
	}
	return all
}

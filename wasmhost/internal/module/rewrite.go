package module

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The names of the exports by which package image accesses the state of an instance.
const (
	imagePrefix = "sonde_image_"
	startExport = imagePrefix + "start"
)

// globalExport returns the export name of the mutable global i, counted from 0.
func globalExport(i int) string { return imagePrefix + "global_" + strconv.Itoa(i) }

// Rewritten is a module that is metered and whose initialised state can be copied. Unlike the original, it
// does not write its data segments and does not call its start function on instantiation: an instance that is
// not created from an image needs Initialize.
type Rewritten struct {
	Wasm       []byte // the module to compile
	Overhead   int64  // memory of the runtime for each instance, in bytes, without linear memory and fixed overhead
	Configures bool   // the module exports sonde_configure

	globals  int // number of mutable globals, which are exported
	segments []segment
}

// segment is an active data segment.
type segment struct {
	offset uint32
	data   []byte
}

// Rewrite rewrites the module. An error means that the module is invalid, uses a feature beyond WebAssembly 2.0,
// exceeds a limit of this package, or has state that package image cannot copy.
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
		bodies[sectionData] = nil // the code cannot refer to segments; Go modules have 100,000 of them
	}
	r.Wasm = bodies.module(m.size)
	return r, nil
}

// takeData moves the contents of data segments to r.segments, and leaves empty segments, so that all indices
// stay the same.
func (r *Rewritten) takeData(body []byte) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	const explicit = 2 // otherwise the flags are 0
	c := newReader(body)
	n := c.uint32()
	out := appendUint32(nil, n)
	for range c.each(n) {
		flags := c.uint32()
		out = appendUint32(out, flags)
		if flags == explicit {
			out = appendUint32(out, c.uint32()) // index of the memory
		}
		if c.byte() != opI32Const {
			c.fail(errOffset)
		}
		offset := uint32(c.signed(5))
		if c.byte() != opEnd {
			c.fail(errOffset)
		}
		out = append(out, opI32Const, 0, opEnd, 0) // zero bytes at address 0
		r.segments = append(r.segments, segment{offset, append([]byte{}, c.bytes(c.uint32())...)})
	}
	return out, c.end()
}

var errOffset = errors.New("offset is not a constant of type i32")

// Initialize writes the data segments to the memory of an instance without an image. It returns the
// start function, which the caller must call next, or nil if there is none.
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

// Package meter rewrites a module so that its code counts what it executes, and asks the
// host before it goes on for long. Nothing else stops code that neither calls a host
// function nor returns: the Go scheduler cannot interrupt compiled code, and a garbage
// collection waits for it.
//
// The count is the global FuelExport, which Rewrite adds. One unit pays for 16 cycles of code, by
// estimate. Code takes from the count
//
//   - at the entry of each function,
//   - in each iteration of a loop,
//   - after each stretch of straight code of at most maxUncharged cycles,
//   - for each 64 bytes, or 8 elements, that one instruction copies or fills,
//
// and calls the host function Module.Tick when it falls below 0. Tick sets a new count, or
// ends the call by a panic. Otherwise a rewritten module behaves as the original one; a
// module that was invalid stays so. In particular the original code cannot use what was
// added to it: each index in the code is checked against the original sections.
//
// # Files
//
//	meter.go        Rewrite: the sections of a module
//	bounds.go       what is too much for a runtime
//	code.go         the bodies of functions: where they pay
//	instruction.go  one instruction: its length, its cost, the index that it has
package meter

import (
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/wasmhost/internal/binary"
)

// What Rewrite adds to a module: the import of function Tick, without parameters and
// results, from Module, and the export of a mutable global of type i32.
const (
	Module     = "sonde_meter"
	Tick       = "tick"
	FuelExport = "sonde_meter_fuel"
)

// MaxFuel bounds the count that Tick sets; that of a new instance is 0. What it pays for
// takes at most some milliseconds, whatever the code is: a unit takes half a nanosecond in an
// empty loop, SlowUnit where each load misses all caches, and a microsecond or two where each
// store is the first one to its page.
const MaxFuel = 4000

// SlowUnit is how long what one unit pays for takes, at most, when it causes no page faults.
const SlowUnit = 64 * time.Nanosecond

// Info is what a host has to know of a module that was rewritten.
type Info struct {
	Overhead int64 // what the runtime takes for each instance, in bytes, beside its memory and what all modules need

	// NoImage is why an instance has state that package image cannot copy, "" if it has none: "function 12 changes a
	// table", "function 12 makes a reference to a function", "data segment 3 is passive", or "global 1 is a mutable
	// reference or vector".
	NoImage string
}

// What wazero 1.12 takes for each instance, in bytes.
const (
	sizeGlobal   = 128 // with what a host has for it
	sizeImport   = 48
	sizeElement  = 8  // of a table, or of a passive segment
	sizeFunction = 48 // of each function that is an element of a segment
	sizeSegment  = 24
)

// Rewrite returns the module with its code metered, and without its custom sections. An error
// means that the module is invalid, or uses a feature beyond WebAssembly 2.0, or exceeds a limit
// of this package.
func Rewrite(wasm []byte) (out []byte, info Info, err error) {
	bodies, err := binary.Split(wasm)
	if err != nil {
		return nil, Info{}, err
	}
	r := &rewriter{size: len(wasm)}
	out = append(make([]byte, 0, len(wasm)+len(wasm)/4), wasm[:8]...)
	for _, id := range binary.Order {
		body, err := r.section(id, bodies[id])
		if err != nil {
			return nil, Info{}, fmt.Errorf("section %d: %w", id, err)
		}
		if body != nil {
			out = binary.AppendSection(out, id, body)
		}
	}
	return out, r.info, nil
}

// rewriter knows what the sections that were read declare.
type rewriter struct {
	size       int         // of the module
	types      []signature // the types of functions
	functions  []uint32    // the types of functions, imported ones first
	imported   uint32      // functions, which is also the index of Tick
	globals    uint32      // which is also the index of the count
	bodies     uint32      // functions that have a body
	elements   uint32      // of all segments
	countsData bool        // there is a section that allows the code to use data segments

	info    Info
	noImage string // what an instruction of those that were read does: see Info.NoImage
}

// signature is the type of a function or a block: the number of its parameters and results.
type signature struct{ params, results uint32 }

func (s signature) values() uint32 { return s.params + s.results }

// section returns the new body of a section; nil if the module has none.
func (r *rewriter) section(id byte, body []byte) (out []byte, err error) {
	added := id == binary.SectionType || id == binary.SectionImport || id == binary.SectionGlobal || id == binary.SectionExport
	switch {
	case body == nil && !added:
		return nil, nil
	case body == nil:
		body = []byte{0} // an empty vector
	}
	c := binary.NewReader(body)
	switch id {
	case binary.SectionType:
		out = r.typeSection(c)
	case binary.SectionImport:
		out = r.importSection(c)
	case binary.SectionFunction:
		r.functionSection(c)
		out = body
	case binary.SectionTable:
		out = r.tableSection(c)
	case binary.SectionMemory:
		for range c.Each(c.Count(1, 2)) {
			c.Limits()
		}
		out = body
	case binary.SectionGlobal:
		out = r.globalSection(c)
	case binary.SectionExport:
		out = r.exportSection(c)
	case binary.SectionStart:
		out = binary.AppendUint32(nil, r.renumber(r.function(c)))
	case binary.SectionElement:
		out = r.elementSection(c)
	case binary.SectionDataCount:
		c.Uint32()
		out, r.countsData = body, true
	case binary.SectionCode:
		out = r.codeSection(c)
	case binary.SectionData:
		r.dataSection(c)
		out = body
	}
	return out, c.End()
}

// rejectImage notes why there can be no image of an instance. Only the first reason counts.
func (r *rewriter) rejectImage(format string, a ...any) {
	if r.info.NoImage == "" {
		r.info.NoImage = fmt.Sprintf(format, a...)
	}
}

func (r *rewriter) typeSection(c *binary.Reader) []byte {
	n := c.Count(binary.MaxTypes, 3)
	from := c.Offset()
	for range c.Each(n) {
		params, results := c.FunctionType()
		r.types = append(r.types, signature{uint32(len(params)), uint32(len(results))})
	}
	out := append(binary.AppendUint32(nil, n+1), c.Since(from)...)
	return append(out, binary.FunctionForm, 0, 0) // of Tick: no parameters, no results
}

func (r *rewriter) importSection(c *binary.Reader) []byte {
	n := c.Count(binary.MaxImports, 4)
	from := c.Offset()
	for range c.Each(n) {
		if c.Name() == Module {
			c.Fail(errors.New("module " + Module + " must not be imported: it is the host's own"))
		}
		c.Name()
		switch kind, functionType := c.Import(); kind {
		case binary.KindFunction:
			r.functions = append(r.functions, r.functionType(c, functionType))
		case binary.KindGlobal:
			r.globals++
		}
	}
	r.imported = uint32(len(r.functions))
	r.info.Overhead += int64(n) * sizeImport
	out := append(binary.AppendUint32(nil, n+1), c.Since(from)...)
	out = append(binary.AppendName(binary.AppendName(out, Module), Tick), binary.KindFunction)
	return binary.AppendUint32(out, uint32(len(r.types)))
}

// functionType returns the index of the type of a function, after checking it.
func (r *rewriter) functionType(c *binary.Reader, index uint32) uint32 {
	if uint64(index) >= uint64(len(r.types)) {
		c.Fail(fmt.Errorf("there is no type %d", index))
	}
	return index
}

func (r *rewriter) functionSection(c *binary.Reader) {
	r.bodies = c.Count(binary.MaxFunctions, 1)
	for range c.Each(r.bodies) {
		r.functions = append(r.functions, r.functionType(c, c.Uint32()))
	}
}

// tableSection gives each table a maximum, because the runtime has none.
func (r *rewriter) tableSection(c *binary.Reader) []byte {
	n := c.Count(binary.MaxTables, 3)
	out := binary.AppendUint32(nil, n)
	for range c.Each(n) {
		element, l := c.Table()
		if l.Min > maxTable {
			c.Fail(fmt.Errorf("table of %d elements, at most %d are allowed", l.Min, maxTable))
		}
		if !l.HasMax || l.Max > maxTable {
			l.Max, l.HasMax = maxTable, true
		}
		r.info.Overhead += int64(l.Min) * sizeElement
		out = binary.AppendLimits(append(out, element), l)
	}
	return out
}

func (r *rewriter) globalSection(c *binary.Reader) []byte {
	const mutable = 1
	n := c.Count(maxGlobals, 4)
	var out []byte
	for range c.Each(n) {
		from := c.Offset()
		c.GlobalType()
		t := c.Since(from)
		if c.Err() == nil && t[1] == mutable && t[0] < binary.F64 { // the others are numbers
			r.rejectImage("global %d is a mutable reference or vector", r.globals)
		}
		out = r.expression(c, append(out, t...))
		r.globals++
	}
	r.info.Overhead += int64(n) * sizeGlobal
	out = append(out, binary.I32, mutable, binary.OpI32Const, 0, binary.OpEnd)
	return append(binary.AppendUint32(nil, n+1), out...)
}

func (r *rewriter) exportSection(c *binary.Reader) []byte {
	n := c.Count(binary.MaxExports, 3)
	if exports := uint64(n) + uint64(r.globals); exports*uint64(len(r.functions)) > maxDefinitions { // package image exports globals
		c.Fail(fmt.Errorf("%d exports and globals with %d functions are too many", exports, len(r.functions)))
	}
	out := binary.AppendUint32(nil, n+1)
	for range c.Each(n) {
		name := c.Name()
		if name == FuelExport {
			c.Fail(errors.New("export " + FuelExport + " is the host's own: rename it"))
		}
		kind := c.Byte()
		out = append(binary.AppendName(out, name), kind)
		switch kind {
		case binary.KindFunction:
			out = binary.AppendUint32(out, r.renumber(r.function(c)))
		case binary.KindGlobal:
			out = binary.AppendUint32(out, r.global(c))
		default:
			out = binary.AppendUint32(out, c.Uint32())
		}
	}
	out = append(binary.AppendName(out, FuelExport), binary.KindGlobal)
	return binary.AppendUint32(out, r.globals)
}

// function reads the index of a function.
func (r *rewriter) function(c *binary.Reader) uint32 { return c.Index(len(r.functions), "function") }

// renumber returns the new index of a function: Tick takes the one after the imported ones.
func (r *rewriter) renumber(f uint32) uint32 {
	if f >= r.imported {
		f++
	}
	return f
}

// global reads the index of a global. That of the count does not occur in a valid module.
func (r *rewriter) global(c *binary.Reader) uint32 { return c.Index(int(r.globals), "global") }

// elementSection: the three low bits of a segment's flags say whether it is passive or
// declarative, has the index of a table or a kind, and consists of expressions
// (specification 2, section 5.5.12).
func (r *rewriter) elementSection(c *binary.Reader) []byte {
	n := c.Count(maxElementSegments, 2)
	r.info.Overhead += int64(n) * sizeSegment
	out := binary.AppendUint32(nil, n)
	for range c.Each(n) {
		flags := c.Uint32()
		if flags > 7 {
			c.Fail(fmt.Errorf("element segment with unknown flags %#x", flags))
		}
		out = binary.AppendUint32(out, flags)
		passive, explicit, expressions := flags&1 != 0, flags&2 != 0, flags&4 != 0
		if explicit && !passive {
			out = binary.AppendUint32(out, c.Uint32())
		}
		if !passive {
			out = r.expression(c, out)
		}
		switch {
		case !explicit && !passive:
		case expressions:
			out = append(out, c.RefType())
		default:
			out = append(out, zero(c)) // the kind: functions
		}
		elements := c.Count(maxElements-r.elements, 1)
		r.elements += elements
		r.info.Overhead += int64(elements) * sizeFunction
		if passive {
			r.info.Overhead += int64(elements) * sizeElement
		}
		out = binary.AppendUint32(out, elements)
		for range c.Each(elements) {
			if expressions {
				out = r.expression(c, out)
			} else {
				out = binary.AppendUint32(out, r.renumber(r.function(c)))
			}
		}
	}
	return out
}

func (r *rewriter) dataSection(c *binary.Reader) {
	n := c.Count(maxDataSegments, 2)
	if r.countsData { // otherwise package image drops them
		r.info.Overhead += int64(n) * sizeSegment
	}
	for i := range c.Each(n) {
		switch flags := c.Uint32(); flags {
		case 0:
			r.expression(c, nil)
		case 1:
			r.rejectImage("data segment %d is passive", i)
		case 2:
			c.Index(1, "memory")
			r.expression(c, nil)
		default:
			c.Fail(fmt.Errorf("data segment with unknown flags %#x", flags))
		}
		c.Bytes(c.Uint32())
	}
}

// expression copies a constant expression to out.
func (r *rewriter) expression(c *binary.Reader, out []byte) []byte {
	for c.Err() == nil {
		at := c.Offset()
		in := r.instruction(c)
		if !in.constant {
			c.Fail(fmt.Errorf("instruction %#x is not allowed in a constant expression", in.op))
			break
		}
		out = in.append(out, c.Since(at))
		if in.op == binary.OpEnd {
			break
		}
	}
	return out
}

package module

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Metering makes a module's code count the instructions that it executes, and call the host
// regularly. Nothing else could stop code that neither calls a host function nor returns: the Go
// scheduler cannot interrupt compiled code, and garbage collection has to wait for it.
//
// The count is the mutable global FuelExport of type i32. One unit of fuel pays for an estimated 16
// cycles of code. Code subtracts from the count
//
//   - at the entry of each function,
//   - in each iteration of a loop,
//   - after each stretch of straight code of at most maxUncharged cycles,
//   - for each 64 bytes, or 8 elements, that one instruction copies or fills,
//
// and calls the host function MeterModule.Tick, which has no parameters or results, when the count falls
// below 0. Tick sets a new count, or ends the call by a panic. Otherwise a metered module behaves like the
// original; an invalid module remains invalid. In particular the original code cannot use the additions:
// each index in the code is checked against the original sections.
const (
	MeterModule = "sonde_meter"
	Tick        = "tick"
	FuelExport  = "sonde_meter_fuel"
)

// MaxFuel bounds the count that Tick sets; a new instance starts with 0. Code that uses up MaxFuel
// runs for at most a few milliseconds: one unit takes half a nanosecond in an empty loop, SlowUnit
// if each load misses all caches, and one or two microseconds if each store is the first to its
// page.
const MaxFuel = 4000

// SlowUnit is the maximum running time of code that one unit pays for, without page faults.
const SlowUnit = 64 * time.Nanosecond

// info describes a metered module.
type info struct {
	overhead int64 // memory of the runtime for each instance, in bytes, without linear memory and fixed overhead
	mutable  int   // number of mutable globals; each has an export

	// noImage describes state of an instance that package image cannot copy, or is "" if there is none: "function 12
	// changes a table", "function 12 makes a reference to a function", "data segment 3 is passive", or "global 1 is
	// a mutable reference or vector".
	noImage string
}

// The memory of wazero 1.12 for each instance, in bytes.
const (
	sizeGlobal   = 128 // including the host's data for it
	sizeImport   = 48
	sizeElement  = 8  // for each element of a table or of a passive segment
	sizeFunction = 48 // for each function in an element segment
	sizeSegment  = 24
)

// meter returns the sections of the metered module, without custom sections. It adds exports for the mutable
// globals and the start function, which Rewritten uses.
func (m *Module) meter() (all bodies, _ info, err error) {
	r := &rewriter{Module: m}
	for _, id := range order {
		if all[id], err = r.section(id, m.sections[id]); err != nil {
			return bodies{}, info{}, fmt.Errorf("section %d: %w", id, err)
		}
	}
	r.info.mutable = len(r.mutable)
	return all, r.info, nil
}

// rewriter rewrites sections, and collects their declarations. The number of imported functions is the index of
// Tick.
type rewriter struct {
	*Module
	globals    uint32   // number of globals; also the index of the count
	mutable    []uint32 // the indices of mutable globals
	elements   uint32   // number of elements of all segments
	countsData bool     // there is a data count section, which allows code to refer to data segments

	info    info
	noImage string // set by an instruction that was read: see info.noImage
}

// section returns the new body of a section, or nil if the module does not have the section.
func (r *rewriter) section(id byte, body []byte) (out []byte, err error) {
	added := id == sectionType || id == sectionImport || id == sectionGlobal || id == sectionExport
	switch {
	case body == nil && !added:
		return nil, nil
	case body == nil:
		body = []byte{0} // an empty vector
	}
	c := newReader(body)
	switch id {
	case sectionType:
		out = append(appendUint32(nil, c.uint32()+1), c.rest()...)
		out = append(out, functionForm, 0, 0) // the type of Tick: no parameters, no results
	case sectionImport:
		out = r.importSection(c)
	case sectionFunction:
		return body, nil // Parse has validated it
	case sectionTable:
		out = r.tableSection(c)
	case sectionMemory:
		if len(r.memories) > 1 {
			return nil, fmt.Errorf("%d memories, one is allowed", len(r.memories))
		}
		return body, nil
	case sectionGlobal:
		out = r.globalSection(c)
	case sectionExport:
		out = r.exportSection(c)
	case sectionStart:
		out = appendUint32(nil, r.renumber(r.function(c)))
	case sectionElement:
		out = r.elementSection(c)
	case sectionDataCount:
		c.uint32()
		out, r.countsData = body, true
	case sectionCode:
		out = r.codeSection(c)
	case sectionData:
		r.dataSection(c)
		out = body
	}
	return out, c.end()
}

// rejectImage records a reason why an instance can have no image. Only the first reason counts.
func (r *rewriter) rejectImage(format string, a ...any) {
	if r.info.noImage == "" {
		r.info.noImage = fmt.Sprintf(format, a...)
	}
}

func (r *rewriter) importSection(c *reader) []byte {
	for _, i := range r.imports {
		if strings.HasPrefix(i.name, MeterModule+".") {
			c.fail(errors.New("module " + MeterModule + " must not be imported: it is reserved for the host"))
		}
		if i.kind == kindGlobal {
			r.globals++
		}
	}
	r.info.overhead += int64(len(r.imports)) * sizeImport
	out := append(appendUint32(nil, c.uint32()+1), c.rest()...)
	out = append(appendName(appendName(out, MeterModule), Tick), kindFunction)
	return appendUint32(out, uint32(len(r.types)))
}

// tableSection adds a maximum to each table, because the runtime has no limit.
func (r *rewriter) tableSection(c *reader) []byte {
	n := c.count(maxTables, 3)
	out := appendUint32(nil, n)
	for range c.each(n) {
		element, l := c.tableType()
		if l.Min > maxTable {
			c.fail(fmt.Errorf("table of %d elements, at most %d are allowed", l.Min, maxTable))
		}
		if !l.HasMax || l.Max > maxTable {
			l.Max, l.HasMax = maxTable, true
		}
		r.info.overhead += int64(l.Min) * sizeElement
		out = appendLimits(append(out, element), l)
	}
	return out
}

func (r *rewriter) globalSection(c *reader) []byte {
	const mutable = 1
	n := c.count(maxGlobals, 4)
	var out []byte
	for range c.each(n) {
		from := c.offset()
		c.globalType()
		t := c.since(from)
		if c.err == nil && t[1] == mutable {
			r.mutable = append(r.mutable, r.globals)
			if t[0] < typeF64 { // the higher values are numbers
				r.rejectImage("global %d is a mutable reference or vector", r.globals)
			}
		}
		out = r.expression(c, append(out, t...))
		r.globals++
	}
	r.info.overhead += int64(n) * sizeGlobal
	out = append(out, typeI32, mutable, opI32Const, 0, opEnd)
	return append(appendUint32(nil, n+1), out...)
}

func (r *rewriter) exportSection(c *reader) []byte {
	n := c.count(maxExports, 3)
	if exports := uint64(n) + uint64(r.globals); exports*uint64(len(r.functions)) > maxDefinitions {
		c.fail(fmt.Errorf("%d exports and globals with %d functions are too many", exports, len(r.functions)))
	}
	var out []byte
	for range c.each(n) {
		name, kind := c.name(), c.byte()
		if name == FuelExport || strings.HasPrefix(name, imagePrefix) {
			c.fail(fmt.Errorf("export %q is reserved for the host: rename it", name))
		}
		switch kind {
		case kindFunction:
			out = appendExport(out, name, kind, r.renumber(r.function(c)))
		case kindGlobal:
			out = appendExport(out, name, kind, r.global(c))
		default:
			out = appendExport(out, name, kind, c.uint32())
		}
	}
	for i, global := range r.mutable {
		out = appendExport(out, globalExport(i), kindGlobal, global)
	}
	n += uint32(len(r.mutable))
	if body := r.sections[sectionStart]; body != nil {
		out = appendExport(out, startExport, kindFunction, r.renumber(r.function(newReader(body))))
		n++
	}
	out = appendExport(out, FuelExport, kindGlobal, r.globals)
	return append(appendUint32(nil, n+1), out...)
}

func appendExport(out []byte, name string, kind byte, index uint32) []byte {
	return appendUint32(append(appendName(out, name), kind), index)
}

// function reads the index of a function.
func (r *rewriter) function(c *reader) uint32 { return c.index(len(r.functions), "function") }

// renumber returns the new index of a function: Tick is inserted after the imported ones.
func (r *rewriter) renumber(f uint32) uint32 {
	if f >= r.imported {
		f++
	}
	return f
}

// global reads the index of a global. The index of the count cannot occur in a valid module.
func (r *rewriter) global(c *reader) uint32 { return c.index(int(r.globals), "global") }

// elementSection rewrites the element section. The three low bits of a segment's flags state
// whether it is passive or declarative, has a table index or an element kind, and consists of
// expressions (specification 2, section 5.5.12).
func (r *rewriter) elementSection(c *reader) []byte {
	n := c.count(maxElementSegments, 2)
	r.info.overhead += int64(n) * sizeSegment
	out := appendUint32(nil, n)
	for range c.each(n) {
		flags := c.uint32()
		if flags > 7 {
			c.fail(fmt.Errorf("element segment with unknown flags %#x", flags))
		}
		out = appendUint32(out, flags)
		passive, explicit, expressions := flags&1 != 0, flags&2 != 0, flags&4 != 0
		if explicit && !passive {
			out = appendUint32(out, c.uint32())
		}
		if !passive {
			out = r.expression(c, out)
		}
		switch {
		case !explicit && !passive:
		case expressions:
			out = append(out, c.refType())
		default:
			out = append(out, zero(c)) // the kind: functions
		}
		elements := c.count(maxElements-r.elements, 1)
		r.elements += elements
		r.info.overhead += int64(elements) * sizeFunction
		if passive {
			r.info.overhead += int64(elements) * sizeElement
		}
		out = appendUint32(out, elements)
		for range c.each(elements) {
			if expressions {
				out = r.expression(c, out)
			} else {
				out = appendUint32(out, r.renumber(r.function(c)))
			}
		}
	}
	return out
}

func (r *rewriter) dataSection(c *reader) {
	n := c.count(maxDataSegments, 2)
	if r.countsData { // otherwise Rewrite drops the segments
		r.info.overhead += int64(n) * sizeSegment
	}
	for i := range c.each(n) {
		switch flags := c.uint32(); flags {
		case 0:
			r.expression(c, nil)
		case 1:
			r.rejectImage("data segment %d is passive", i)
		case 2:
			c.index(1, "memory")
			r.expression(c, nil)
		default:
			c.fail(fmt.Errorf("data segment with unknown flags %#x", flags))
		}
		c.bytes(c.uint32())
	}
}

// expression copies a constant expression to out.
func (r *rewriter) expression(c *reader, out []byte) []byte {
	for c.err == nil {
		at := c.offset()
		in := r.instruction(c)
		if !in.constant {
			c.fail(fmt.Errorf("instruction %#x is not allowed in a constant expression", in.op))
			break
		}
		out = in.append(out, c.since(at))
		if in.op == opEnd {
			break
		}
	}
	return out
}

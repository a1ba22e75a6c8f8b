// Package meter rewrites a module so that its code counts what it executes, and asks the
// host before it goes on for long. Nothing else stops code that neither calls a host
// function nor returns: the Go scheduler cannot interrupt compiled code, and a garbage
// collection waits for it.
//
// The count is the global FuelExport, which Rewrite adds. Code takes one unit from it
//
//   - at the entry of each function, and in each iteration of a loop,
//   - for each stretch of straight code of at most maxStretch cycles, by estimate,
//   - for 256 bytes, or 32 elements, that one instruction copies or fills,
//
// and calls the host function Module.Tick when it falls below 0. Tick sets a new count, or
// ends the call by a panic. Otherwise a rewritten module behaves as the original one; a
// module that was invalid stays so. In particular the original code cannot use what was
// added to it: each index in the code is checked against the original sections.
//
// # Files
//
//	meter.go        Rewrite: the sections of a module
//	code.go         the bodies of functions: where they pay
//	instruction.go  one instruction: its length, its cost, the index that it has
//	cursor.go       the binary encoding
package meter

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// What Rewrite adds to a module: the import of function Tick, without parameters and
// results, from Module, and the export of a mutable global of type i32.
const (
	Module     = "sonde_meter"
	Tick       = "tick"
	FuelExport = "sonde_meter_fuel"
)

// FirstFuel is the count of a new instance.
const FirstFuel = 1000

// Sections that package abi has no name for (WebAssembly core specification 2, section
// 5.5.2).
const (
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

// order is the order of sections in a module. The specification has no section 0 here:
// custom sections may be anywhere.
var order = []byte{
	abi.SectionType, abi.SectionImport, abi.SectionFunction, abi.SectionTable, abi.SectionMemory, abi.SectionGlobal,
	abi.SectionExport, sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

// Rewrite returns the module with its code metered. It keeps the names of functions, and
// drops other custom sections. An error means that the module is invalid, or uses a
// feature beyond WebAssembly 2.0, or exceeds a limit of this package.
func Rewrite(wasm []byte) ([]byte, error) {
	sections, names, err := read(wasm)
	if err != nil {
		return nil, err
	}
	r := &rewriter{}
	out := append(make([]byte, 0, len(wasm)+len(wasm)/4), wasm[:8]...)
	for _, id := range order {
		body, err := r.section(id, sections[id])
		if err != nil {
			return nil, fmt.Errorf("section %d: %w", id, err)
		}
		if body != nil {
			out = appendSection(out, id, body)
		}
	}
	if body, err := r.names(names); err == nil && body != nil { // the specification ignores an invalid custom section
		out = appendSection(out, abi.SectionCustom, append(appendName(nil, nameSection), body...))
	}
	return out, nil
}

// read returns the bodies of the module's sections, by their ID, and the body of its name
// section. They share the module's memory.
func read(wasm []byte) (sections map[byte][]byte, names []byte, err error) {
	sections = make(map[byte][]byte)
	next := 0
	for s, err := range abi.Sections(wasm) {
		if err != nil {
			return nil, nil, err
		}
		if s.ID == abi.SectionCustom {
			if !utf8.ValidString(s.Name) {
				return nil, nil, errors.New("name of a custom section is not UTF-8")
			}
			if s.Name == nameSection {
				names = s.Body
			}
			continue
		}
		for next < len(order) && order[next] != s.ID {
			next++
		}
		if next == len(order) {
			return nil, nil, fmt.Errorf("section %d is unknown, occurs twice, or is out of order", s.ID)
		}
		next++
		sections[s.ID] = s.Body
	}
	return sections, names, nil
}

// rewriter knows what the sections that were read declare.
type rewriter struct {
	types     []uint32 // the number of parameters of each
	functions []uint32 // the types of functions, imported ones first
	imported  uint32   // functions, which is also the index of Tick
	globals   uint32   // which is also the index of the count
	bodies    uint32   // functions that have a body
}

// section returns the new body of a section; nil if the module has none.
func (r *rewriter) section(id byte, body []byte) ([]byte, error) {
	c := &cursor{b: body}
	added := id == abi.SectionType || id == abi.SectionImport || id == abi.SectionGlobal || id == abi.SectionExport
	if body == nil && !added {
		return nil, nil
	}
	if body == nil {
		c.b = []byte{0} // an empty vector
	}
	var out []byte
	switch id {
	case abi.SectionType:
		out = r.typeSection(c)
	case abi.SectionImport:
		out = r.importSection(c)
	case abi.SectionFunction:
		r.functionSection(c)
		return body, c.end()
	case abi.SectionGlobal:
		out = r.globalSection(c)
	case abi.SectionExport:
		out = r.exportSection(c)
	case sectionStart:
		out = abi.AppendUint32(nil, r.function(c))
	case sectionElement:
		out = r.elementSection(c)
	case sectionCode:
		out = r.codeSection(c)
	case sectionData:
		r.dataSection(c)
		return body, c.end()
	default:
		return body, nil
	}
	return out, c.end()
}

func (r *rewriter) typeSection(c *cursor) []byte {
	n := c.uint32()
	from := c.at
	for range c.count(n, 3) {
		if c.byte() != 0x60 {
			c.fail(errors.New("type is not the type of a function"))
		}
		params := c.uint32()
		c.skip(params)
		c.skip(c.uint32())
		r.types = append(r.types, params)
	}
	out := append(abi.AppendUint32(nil, n+1), c.b[from:c.at]...)
	return append(out, 0x60, 0, 0) // of Tick: no parameters, no results
}

func (r *rewriter) importSection(c *cursor) []byte {
	n := c.uint32()
	from := c.at
	for range c.count(n, 4) {
		if string(c.name()) == Module {
			c.fail(errors.New("module " + Module + " must not be imported: it is the host's own"))
		}
		c.name()
		r.importDescription(c)
	}
	r.imported = uint32(len(r.functions))
	out := append(abi.AppendUint32(nil, n+1), c.b[from:c.at]...)
	out = append(appendName(appendName(out, Module), Tick), kindFunction)
	return abi.AppendUint32(out, uint32(len(r.types)))
}

// The kinds of imports and exports.
const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
	kindGlobal   = 3
)

func (r *rewriter) importDescription(c *cursor) {
	switch kind := c.byte(); kind {
	case kindFunction:
		r.functions = append(r.functions, c.index(len(r.types), "type"))
	case kindTable:
		c.byte()
		c.limits()
	case kindMemory:
		c.limits()
	case kindGlobal:
		c.byte()
		c.byte()
		r.globals++
	default:
		c.fail(fmt.Errorf("import of unknown kind %d", kind))
	}
}

func (r *rewriter) functionSection(c *cursor) {
	for range c.count(c.uint32(), 1) {
		r.functions = append(r.functions, c.index(len(r.types), "type"))
		r.bodies++
	}
}

func (r *rewriter) globalSection(c *cursor) []byte {
	n := c.uint32()
	var out []byte
	for range c.count(n, 4) {
		r.globals++
		out = append(out, c.byte(), c.byte())
		out = r.expression(c, out)
	}
	const i32, mutable, i32Const, end = 0x7f, 1, 0x41, 0x0b
	out = append(out, i32, mutable, i32Const)
	out = append(appendInt32(out, FirstFuel), end)
	return append(abi.AppendUint32(nil, n+1), out...)
}

func (r *rewriter) exportSection(c *cursor) []byte {
	n := c.uint32()
	out := abi.AppendUint32(nil, n+1)
	for range c.count(n, 3) {
		name := c.name()
		if string(name) == FuelExport {
			c.fail(errors.New("export " + FuelExport + " is the host's own: rename it"))
		}
		kind := c.byte()
		out = append(appendName(out, string(name)), kind)
		switch kind {
		case kindFunction:
			out = abi.AppendUint32(out, r.function(c))
		case kindGlobal:
			out = abi.AppendUint32(out, r.global(c))
		default:
			out = abi.AppendUint32(out, c.uint32())
		}
	}
	out = append(appendName(out, FuelExport), kindGlobal)
	return abi.AppendUint32(out, r.globals)
}

// function reads the index of a function, and returns its new one: Tick takes the index
// after the imported ones.
func (r *rewriter) function(c *cursor) uint32 {
	f := c.index(len(r.functions), "function")
	if f >= r.imported {
		f++
	}
	return f
}

// global reads the index of a global. That of the count does not occur in a valid module.
func (r *rewriter) global(c *cursor) uint32 { return c.index(int(r.globals), "global") }

// elementSection: the three low bits of a segment's flags say whether it is passive or
// declarative, has the index of a table or a kind, and consists of expressions
// (specification 2, section 5.5.12).
func (r *rewriter) elementSection(c *cursor) []byte {
	n := c.uint32()
	out := abi.AppendUint32(nil, n)
	for range c.count(n, 2) {
		flags := c.uint32()
		if flags > 7 {
			c.fail(fmt.Errorf("element segment with unknown flags %#x", flags))
		}
		out = abi.AppendUint32(out, flags)
		passive, explicit, expressions := flags&1 != 0, flags&2 != 0, flags&4 != 0
		if explicit && !passive {
			out = abi.AppendUint32(out, c.uint32())
		}
		if !passive {
			out = r.expression(c, out)
		}
		if explicit || passive {
			out = append(out, c.byte())
		}
		elements := c.uint32()
		out = abi.AppendUint32(out, elements)
		for range c.count(elements, 1) {
			if expressions {
				out = r.expression(c, out)
			} else {
				out = abi.AppendUint32(out, r.function(c))
			}
		}
	}
	return out
}

func (r *rewriter) dataSection(c *cursor) {
	for range c.count(c.uint32(), 2) {
		flags := c.uint32()
		switch flags {
		case 0:
			r.expression(c, nil)
		case 1:
		case 2:
			c.uint32()
			r.expression(c, nil)
		default:
			c.fail(fmt.Errorf("data segment with unknown flags %#x", flags))
		}
		c.skip(c.uint32())
	}
}

// expression copies a constant expression to out.
func (r *rewriter) expression(c *cursor, out []byte) []byte {
	for c.err == nil {
		at := c.at
		in := r.instruction(c)
		if !in.constant {
			c.fail(fmt.Errorf("instruction %#x is not allowed in a constant expression", in.op))
			break
		}
		out = in.append(out, c.b[at:c.at])
		if in.op == opEnd {
			break
		}
	}
	return out
}

// nameSection is the name of the custom section with the names of functions.
const nameSection = "name"

// names returns a new name section with the names of the module and of its functions.
func (r *rewriter) names(body []byte) ([]byte, error) {
	const module, functions = 0, 1
	var out []byte
	c := &cursor{b: body}
	for c.at < len(c.b) && c.err == nil {
		id := c.byte()
		part := c.bytes(c.uint32())
		switch id {
		case module:
			out = appendSection(out, id, part)
		case functions:
			p := &cursor{b: part}
			n := p.uint32()
			renamed := abi.AppendUint32(nil, n)
			for range p.count(n, 2) {
				renamed = abi.AppendUint32(renamed, r.function(p))
				renamed = appendName(renamed, string(p.name()))
			}
			if err := p.end(); err != nil {
				return nil, err
			}
			out = appendSection(out, id, renamed)
		}
	}
	return out, c.err
}

func appendSection(out []byte, id byte, body []byte) []byte {
	return append(abi.AppendUint32(append(out, id), uint32(len(body))), body...)
}

func appendName(out []byte, name string) []byte {
	return append(abi.AppendUint32(out, uint32(len(name))), name...)
}

// appendInt32 appends n as signed LEB128.
func appendInt32(out []byte, n int32) []byte {
	for n < -64 || n > 63 {
		out = append(out, byte(n)|0x80)
		n >>= 7
	}
	return append(out, byte(n)&0x7f)
}

// Package module parses a plugin's binary without running it, rejects modules that do not follow
// package abi, and rewrites the others, so that their code counts the instructions that it executes
// and package image can access their state. It is the only package that parses the binary format
// (WebAssembly core specification 2, section 5), on top of package abi, which splits a module into
// sections. The module that is rewritten is therefore exactly the module that was checked.
//
// The binary is untrusted. Types are parsed by lists of allowed values, because a runtime may
// support types beyond WebAssembly 2.0 that have other lengths: an unknown byte is an error. Every
// count is bounded before memory is allocated for its entries.
//
// # Files
//
//	module.go       Parse: imports, exports and memories of a module
//	check.go        Check: static checks against package abi
//	rewrite.go      Rewrite; Rewritten: access to the state of an instance
//	meter.go        metering: how code counts itself; the sections of a metered module
//	bounds.go       limits that protect the runtime
//	code.go         the bodies of functions, and where charges are inserted
//	instruction.go  one instruction: its length, its cost, its index operand
//	reader.go       numbers, names, counts and indices
//	type.go         the types of values, functions, blocks, tables, memories and globals
//	section.go      splitting a module into sections, and writing them
package module

import "fmt"

// PageSize is the unit of a module's memory, in bytes.
const PageSize = 64 << 10

// Module is the part of a module that a host needs before it runs the module. Names are copied from
// the binary without validation: they may contain any bytes.
type Module struct {
	size        int // in bytes
	sections    bodies
	types       []functionType
	functions   []uint32 // the type indices of functions, imported ones first
	imported    uint32   // number of imported functions
	imports     []importEntry
	memories    []limits // in pages
	exports     map[string]exportEntry
	exportNames []string // in the module's order
}

type functionType struct {
	signature
	letters string // "parameters:results", in the letters of abi.Function
}

// signature has the numbers of parameters and results of a function or a block.
type signature struct{ params, results uint32 }

func (s signature) values() uint32 { return s.params + s.results }

type importEntry struct {
	name         string // "sonde_v1.dial"
	kind         byte
	functionType uint32
}

type exportEntry struct {
	kind  byte
	index uint32
}

// Parse parses a module. An error means that wasm is not a core module, or uses features that this
// host does not support.
func Parse(wasm []byte) (*Module, error) {
	sections, err := split(wasm)
	if err != nil {
		return nil, err
	}
	m := &Module{size: len(wasm), sections: sections, exports: make(map[string]exportEntry)}
	for _, id := range []byte{sectionType, sectionImport, sectionFunction, sectionMemory, sectionExport} {
		if body := sections[id]; body != nil {
			r := newReader(body)
			m.readSection(id, r)
			if err := r.end(); err != nil {
				return nil, fmt.Errorf("section %d: %w", id, err)
			}
		}
	}
	return m, nil
}

// Imports returns the module's imports, such as "sonde_v1.dial", in the module's order.
func (m *Module) Imports() []string {
	var names []string
	for _, i := range m.imports {
		names = append(names, i.name)
	}
	return names
}

// Exports returns the names of the module's exports, in the module's order.
func (m *Module) Exports() []string { return m.exportNames }

// hasExport reports whether the module has an export with a name.
func (m *Module) hasExport(name string) bool {
	_, ok := m.exports[name]
	return ok
}

// Memory returns the initial and the maximum size of the module's first memory in bytes. The
// maximum is 0 if the module declares none.
func (m *Module) Memory() (initial, maximum int64) {
	if len(m.memories) == 0 {
		return 0, 0
	}
	return int64(m.memories[0].Min) * PageSize, int64(m.memories[0].Max) * PageSize
}

func (m *Module) readSection(id byte, r *reader) {
	switch id {
	case sectionType:
		for range r.each(r.count(maxTypes, 3)) {
			params, results := r.functionType()
			counts := signature{uint32(len(params)), uint32(len(results))}
			m.types = append(m.types, functionType{counts, letters(params) + ":" + letters(results)})
		}
	case sectionImport:
		for range r.each(r.count(maxImports, 4)) {
			m.readImport(r)
		}
	case sectionFunction:
		for range r.each(r.count(maxFunctions, 1)) {
			m.functions = append(m.functions, r.index(len(m.types), "type"))
		}
	case sectionMemory:
		for range r.each(r.count(maxMemories, 2)) {
			m.memories = append(m.memories, r.limits())
		}
	case sectionExport:
		for range r.each(r.count(maxExports, 3)) {
			name := r.name()
			m.exports[name] = exportEntry{r.byte(), r.uint32()}
			m.exportNames = append(m.exportNames, name)
		}
	}
}

func (m *Module) readImport(r *reader) {
	i := importEntry{name: r.name() + "." + r.name()}
	if i.kind, i.functionType = r.importType(len(m.types)); i.kind == kindFunction {
		m.functions = append(m.functions, i.functionType)
		m.imported++
	}
	m.imports = append(m.imports, i)
}

// letters returns the letter of package abi for each type, or ? for a type that no host function
// uses.
func letters(types []byte) string {
	text := make([]byte, len(types))
	for i, t := range types {
		switch t {
		case typeI32:
			text[i] = 'i'
		case typeI64:
			text[i] = 'l'
		case typeF32:
			text[i] = 'f'
		case typeF64:
			text[i] = 'd'
		default:
			text[i] = '?'
		}
	}
	return string(text)
}

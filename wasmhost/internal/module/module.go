// Package module reads a plugin's binary without running it, rejects one that does
// not follow package abi, and rewrites it: its code counts what it executes, and package
// image can reach its state. It is the only package that reads the binary format
// (WebAssembly core specification 2, section 5), on top of package abi, which splits a
// module into sections: what is checked is what is rewritten.
//
// The binary comes from outside. Types are read by lists of what is allowed, because a runtime
// may know types beyond WebAssembly 2.0, of other lengths: a byte that is not known is an
// error. Every count is bounded before memory is taken for what is counted.
//
// # Files
//
//	module.go       Parse: imports, exports and memories of a module
//	check.go        Check: the static checks
//	rewrite.go      Rewrite; Rewritten: what reaches the state of an instance
//	meter.go        how code pays for what it executes; the sections of a metered module
//	bounds.go       what is too much for a runtime
//	code.go         the bodies of functions: where they pay
//	instruction.go  one instruction: its length, its cost, the index that it has
//	reader.go       numbers, names, counts and indices
//	type.go         the types of values, functions, blocks, tables, memories and globals
//	section.go      the sections of a module, in their order; writing them
package module

import "fmt"

// PageSize is the unit of a module's memory, in bytes.
const PageSize = 64 << 10

// Module is the part of a module that a host has to know before it runs it. Names are
// as they stand in the binary: they may hold anything.
type Module struct {
	size        int // in bytes
	sections    bodies
	types       []functionType
	functions   []uint32 // the types of functions, imported ones first
	imported    uint32   // functions
	imports     []importEntry
	memories    []limits // in pages
	exports     map[string]exportEntry
	exportNames []string // in the module's order
}

type functionType struct {
	signature
	letters string // "parameters:results", in the letters of abi.Function
}

// signature is the type of a function or a block: the number of its parameters and results.
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

// Parse reads a module. An error means that wasm is not a core module, or is one that this
// host cannot run.
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

// Imports returns what the module imports, as "sonde_v1.dial", in the module's order.
func (m *Module) Imports() []string {
	var names []string
	for _, i := range m.imports {
		names = append(names, i.name)
	}
	return names
}

// Exports returns the names of what the module exports, in the module's order.
func (m *Module) Exports() []string { return m.exportNames }

// hasExport reports whether the module exports something under a name.
func (m *Module) hasExport(name string) bool {
	_, ok := m.exports[name]
	return ok
}

// Memory returns the initial and the maximum size of the module's first memory in bytes.
// The maximum is 0 when the module declares none.
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

// letters returns a letter for each type, as package abi writes them, or ? for one that the
// host's functions do not use.
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

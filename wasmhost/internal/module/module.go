// Package module reads a plugin's binary without running it, and rejects one that does
// not follow package abi.
//
// The binary comes from outside: every count in it is bounded before memory is taken for
// what is counted.
//
// # Files
//
//	module.go  Parse: imports, exports, memories and tables of a module
//	check.go   Check: the static checks, and the bounds that tables are given
//	reader.go  the binary encoding of numbers, names, types and limits
package module

import (
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// PageSize is the unit of a module's memory, in bytes.
const PageSize = 64 << 10

// Module is the part of a module that a host has to know before it runs it. Names are
// as they stand in the binary: they may hold anything.
type Module struct {
	wasm        []byte
	types       []abi.Function // without names
	functions   []uint32       // the types of functions, imported ones first
	imports     []importEntry
	memories    []limits // in pages
	tables      []limits // in elements
	exports     map[string]exportEntry
	exportNames []string // in the module's order
}

type importEntry struct {
	name         string // "sonde_v1.dial"
	kind         byte
	functionType uint32
}

type exportEntry struct {
	kind  byte
	index uint32
}

// The kinds of imports and exports (WebAssembly core specification 1, sections 5.5.5 and
// 5.5.10; tags: the exception handling proposal).
const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
	kindGlobal   = 3
	kindTag      = 4
)

// Bounds on the entries of each section. A Go plugin of 4 MB has 2,500 functions of 20
// types; compilers make one table and one memory.
const (
	maxTypes     = 1 << 16
	maxImports   = 1 << 12
	maxFunctions = 1 << 20
	maxTables    = 4
	maxMemories  = 16
	maxExports   = 1 << 12
)

// Parse reads a module. It keeps wasm, which must not be changed afterwards. An error
// means that wasm is not a core module, or is one that this host cannot run.
func Parse(wasm []byte) (*Module, error) {
	m := &Module{wasm: wasm, exports: make(map[string]exportEntry)}
	var seen [256]bool
	for s, err := range abi.Sections(wasm) {
		switch {
		case err != nil:
			return nil, err
		case seen[s.ID] && s.ID != abi.SectionCustom: // otherwise the bounds above could be exceeded
			return nil, fmt.Errorf("section %d occurs twice", s.ID)
		}
		seen[s.ID] = true
		r := &reader{rest: s.Body}
		m.readSection(s.ID, r)
		if r.err != nil {
			return nil, fmt.Errorf("section %d: %w", s.ID, r.err)
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

// HasExport reports whether the module exports something under a name.
func (m *Module) HasExport(name string) bool {
	_, ok := m.exports[name]
	return ok
}

// Memory returns the initial and the maximum size of the module's first memory in bytes.
// The maximum is 0 when the module declares none.
func (m *Module) Memory() (initial, maximum int64) {
	if len(m.memories) == 0 {
		return 0, 0
	}
	return int64(m.memories[0].min) * PageSize, int64(m.memories[0].max) * PageSize
}

func (m *Module) readSection(id byte, r *reader) {
	switch id {
	case abi.SectionType:
		r.each(maxTypes, func() { m.types = append(m.types, r.functionType()) })
	case abi.SectionImport:
		r.each(maxImports, func() { m.readImport(r) })
	case abi.SectionFunction:
		r.each(maxFunctions, func() { m.functions = append(m.functions, r.uint32()) })
	case abi.SectionTable:
		r.each(maxTables, func() { m.tables = append(m.tables, r.table()) })
	case abi.SectionMemory:
		r.each(maxMemories, func() { m.memories = append(m.memories, r.limits()) })
	case abi.SectionExport:
		r.each(maxExports, func() {
			name := r.name()
			m.exports[name] = exportEntry{r.byte(), r.uint32()}
			m.exportNames = append(m.exportNames, name)
		})
	}
}

func (m *Module) readImport(r *reader) {
	i := importEntry{name: r.name() + "." + r.name(), kind: r.byte()}
	switch i.kind {
	case kindFunction:
		i.functionType = r.uint32()
		m.functions = append(m.functions, i.functionType)
	case kindTable:
		r.table()
	case kindMemory:
		r.limits()
	case kindGlobal:
		r.byte()
		r.byte()
	case kindTag:
		r.byte()
		r.uint32()
	default:
		r.fail(fmt.Errorf("import of unknown kind %d", i.kind))
	}
	m.imports = append(m.imports, i)
}

// Package module reads a plugin's binary without running it, and rejects one that does
// not follow package abi.
//
// The binary comes from outside: every count in it is bounded before memory is taken for
// what is counted.
//
// # Files
//
//	module.go  Parse: imports, exports and memories of a module
//	check.go   Check: the static checks
package module

import (
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/internal/binary"
)

// PageSize is the unit of a module's memory, in bytes.
const PageSize = 64 << 10

// Module is the part of a module that a host has to know before it runs it. Names are
// as they stand in the binary: they may hold anything.
type Module struct {
	types       []string // "parameters:results", in the letters of abi.Function
	functions   []uint32 // the types of functions, imported ones first
	imports     []importEntry
	memories    []binary.Limits // in pages
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

// Parse reads a module. An error means that wasm is not a core module, or is one that this
// host cannot run.
func Parse(wasm []byte) (*Module, error) {
	bodies, err := binary.Split(wasm)
	if err != nil {
		return nil, err
	}
	m := &Module{exports: make(map[string]exportEntry)}
	for _, id := range binary.Order {
		if body := bodies[id]; body != nil {
			r := binary.NewReader(body)
			m.readSection(id, r)
			if err := r.Err(); err != nil {
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
	return int64(m.memories[0].Min) * PageSize, int64(m.memories[0].Max) * PageSize
}

func (m *Module) readSection(id byte, r *binary.Reader) {
	switch id {
	case binary.SectionType:
		for range r.Each(r.Count(binary.MaxTypes, 3)) {
			params, results := r.FunctionType()
			m.types = append(m.types, letters(params)+":"+letters(results))
		}
	case binary.SectionImport:
		for range r.Each(r.Count(binary.MaxImports, 4)) {
			m.readImport(r)
		}
	case binary.SectionFunction:
		for range r.Each(r.Count(binary.MaxFunctions, 1)) {
			m.functions = append(m.functions, r.Uint32())
		}
	case binary.SectionMemory:
		for range r.Each(r.Count(binary.MaxMemories, 2)) {
			m.memories = append(m.memories, r.Limits())
		}
	case binary.SectionExport:
		for range r.Each(r.Count(binary.MaxExports, 3)) {
			name := r.Name()
			m.exports[name] = exportEntry{r.Byte(), r.Uint32()}
			m.exportNames = append(m.exportNames, name)
		}
	}
}

func (m *Module) readImport(r *binary.Reader) {
	i := importEntry{name: r.Name() + "." + r.Name()}
	i.kind, i.functionType = r.Import()
	if i.kind == binary.KindFunction {
		m.functions = append(m.functions, i.functionType)
	}
	m.imports = append(m.imports, i)
}

// letters returns a letter for each type, as package abi writes them, or ? for one that the
// host's functions do not use.
func letters(types []byte) string {
	text := make([]byte, len(types))
	for i, t := range types {
		switch t {
		case binary.I32:
			text[i] = 'i'
		case binary.I64:
			text[i] = 'l'
		case binary.F32:
			text[i] = 'f'
		case binary.F64:
			text[i] = 'd'
		default:
			text[i] = '?'
		}
	}
	return string(text)
}

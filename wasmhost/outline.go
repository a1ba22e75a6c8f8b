package wasmhost

import (
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Outline is what can be seen of a module without running it. The names are a
// stranger's: they are as they stand in the module.
type Outline struct {
	Imports   []string // "sonde_v1.dial", in the module's order
	Exports   []string // likewise
	Memory    int64    // bytes that it starts with
	MaxMemory int64    // bytes that it grows to at most by itself; 0: it sets no bound
}

// Look returns the outline of a module, whether Load would take it or not. An error
// says that it is no module, or not one of a kind that could be run.
func Look(module []byte) (Outline, error) {
	o, err := read(module)
	if err != nil {
		return Outline{}, err
	}
	seen := Outline{Exports: o.names}
	for _, i := range o.imports {
		seen.Imports = append(seen.Imports, i.module+"."+i.name)
	}
	if len(o.memories) > 0 {
		seen.Memory, seen.MaxMemory = int64(o.memories[0].least)*pageSize, int64(o.memories[0].most)*pageSize
	}
	return seen, nil
}

// The kinds of imports and exports.
const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
	kindGlobal   = 3
	kindTag      = 4
)

// How many there may be of each kind. A Go plugin of 4 MB has 2,500 functions of 20 types;
// compilers make one table and one memory.
const (
	maxTypes     = 1 << 16
	maxImports   = 1 << 12
	maxFunctions = 1 << 20
	maxTables    = 4
	maxMemories  = 16
	maxExports   = 1 << 12
)

// outline is what a module looks like from outside, as far as a host has to know
// before it runs any of it.
type outline struct {
	types     []abi.Function // without names
	functions []uint32       // the types of functions, imported ones first
	imports   []imported
	memories  []limits
	tables    []limits
	exports   map[string]exported
	names     []string // of exports, in the module's order
}

type imported struct {
	module, name string
	kind         byte
	function     uint32 // its type
}

type exported struct {
	kind  byte
	index uint32
}

// read reads the sections that say what a module looks like.
func read(module []byte) (*outline, error) {
	o := &outline{exports: make(map[string]exported)}
	var seen [256]bool
	for s, err := range abi.Sections(module) {
		switch {
		case err != nil:
			return nil, err
		case seen[s.ID] && s.ID != abi.SectionCustom: // or their bounds would not be any
			return nil, fmt.Errorf("section %d is there twice", s.ID)
		}
		seen[s.ID] = true
		r := &reader{rest: s.Body}
		o.read(s.ID, r)
		if r.err != nil {
			return nil, fmt.Errorf("section %d: %w", s.ID, r.err)
		}
	}
	return o, nil
}

func (o *outline) read(section byte, r *reader) {
	switch section {
	case abi.SectionType:
		r.each(maxTypes, func(int) { o.types = append(o.types, readType(r)) })
	case abi.SectionImport:
		r.each(maxImports, func(int) { o.readImport(r) })
	case abi.SectionFunction:
		r.each(maxFunctions, func(int) { o.functions = append(o.functions, r.uint32()) })
	case abi.SectionTable:
		r.each(maxTables, func(int) { o.tables = append(o.tables, readTable(r)) })
	case abi.SectionMemory:
		r.each(maxMemories, func(int) { o.memories = append(o.memories, r.limits()) })
	case abi.SectionExport:
		r.each(maxExports, func(int) {
			name := r.name()
			o.exports[name] = exported{r.byte(), r.uint32()}
			o.names = append(o.names, name)
		})
	}
}

func readType(r *reader) abi.Function {
	if form := r.byte(); form != 0x60 {
		r.fail(fmt.Errorf("type of the unknown form %#x", form))
	}
	return abi.Function{Params: r.values(), Results: r.values()}
}

func readTable(r *reader) limits {
	if element := r.byte(); element != 0x70 && element != 0x6f {
		r.fail(fmt.Errorf("table of the unknown type %#x", element))
	}
	return r.limits()
}

func (o *outline) readImport(r *reader) {
	i := imported{module: r.name(), name: r.name(), kind: r.byte()}
	switch i.kind {
	case kindFunction:
		i.function = r.uint32()
		o.functions = append(o.functions, i.function)
	case kindTable:
		readTable(r)
	case kindMemory:
		r.limits()
	case kindGlobal:
		r.byte()
		r.byte()
	case kindTag:
		r.byte()
		r.uint32()
	default:
		r.fail(fmt.Errorf("import of the unknown kind %d", i.kind))
	}
	o.imports = append(o.imports, i)
}

package wasmhost

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The kinds of imports and exports.
const (
	kindFunction = 0
	kindTable    = 1
	kindMemory   = 2
	kindGlobal   = 3
	kindTag      = 4
)

// maxTable bounds the elements of a table. The largest Go plugins have some 30,000.
const maxTable = 1 << 16

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

// check refuses a module that is none, that does not follow the contract, or that
// asks for more than its limits.
func check(module []byte, most Limits) error {
	o, err := read(module)
	if err != nil {
		return err
	}
	return errors.Join(o.checkImports(), o.checkExports(), o.checkMemory(most.Memory), o.checkTables())
}

// read reads the sections that say what a module looks like.
func read(module []byte) (*outline, error) {
	o := &outline{exports: make(map[string]exported)}
	for s, err := range abi.Sections(module) {
		if err != nil {
			return nil, err
		}
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

// maxImportErrors bounds how many unknown imports are told of.
const maxImportErrors = 8

func (o *outline) checkImports() error {
	known := offered()
	var wrong []error
	for _, i := range o.imports {
		name := i.module + "." + i.name
		f, ok := known[name]
		switch {
		case i.kind != kindFunction:
			wrong = append(wrong, fmt.Errorf("imports %.160q, which is not a function", name))
		case !ok:
			wrong = append(wrong, fmt.Errorf("imports the function %.160q, which this host does not know", name))
		case o.typeOf(i.function) != f.Params+":"+f.Results:
			wrong = append(wrong, fmt.Errorf("imports the function %q with other parameters or results than it has", name))
		}
		if len(wrong) == maxImportErrors {
			break
		}
	}
	return errors.Join(wrong...)
}

// offered returns the functions that a module may import.
func offered() map[string]abi.Function {
	all := make(map[string]abi.Function)
	for module, functions := range map[string][]abi.Function{
		abi.HostModule: abi.Functions(),
		abi.WASIModule: slices.Concat(abi.WASI(), abi.WASIRefused()),
	} {
		for _, f := range functions {
			all[module+"."+f.Name] = f
		}
	}
	return all
}

// typeOf returns a function type as its parameters and results.
func (o *outline) typeOf(index uint32) string {
	if int64(index) >= int64(len(o.types)) {
		return "?"
	}
	return o.types[index].Params + ":" + o.types[index].Results
}

func (o *outline) checkExports() error {
	marker, ok := o.exports[abi.ExportMarker]
	switch {
	case !ok:
		return fmt.Errorf("does not export %s: it is not made for Sonde, or for another version", abi.ExportMarker)
	case marker.kind != kindFunction && marker.kind != kindGlobal:
		return fmt.Errorf("exports %s, which is neither a function nor a global", abi.ExportMarker)
	}
	if m, ok := o.exports[abi.ExportMemory]; !ok || m.kind != kindMemory {
		return fmt.Errorf("does not export its memory as %q", abi.ExportMemory)
	}
	if _, ok := o.exports[abi.ExportRun]; !ok {
		return fmt.Errorf("does not export the function %s", abi.ExportRun)
	}
	want := map[string]string{abi.ExportRun: ":i", abi.ExportConfigure: ":i", abi.ExportInitialize: ":"}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if e, ok := o.exports[name]; ok && o.exportType(e) != want[name] {
			return fmt.Errorf("exports %s, which is not a function with the right parameters and results", name)
		}
	}
	return nil
}

func (o *outline) exportType(e exported) string {
	if e.kind != kindFunction || int64(e.index) >= int64(len(o.functions)) {
		return "?"
	}
	return o.typeOf(o.functions[e.index])
}

func (o *outline) checkMemory(most int64) error {
	if len(o.memories) != 1 {
		return fmt.Errorf("has %d memories, it must have one", len(o.memories))
	}
	if need := int64(o.memories[0].least) * pageSize; need > most {
		return fmt.Errorf("needs %d bytes of memory to start, limits.memory allows %d", need, most)
	}
	return nil
}

func (o *outline) checkTables() error {
	for _, t := range o.tables {
		if t.least > maxTable {
			return fmt.Errorf("has a table of %d elements, at most %d are allowed", t.least, maxTable)
		}
	}
	return nil
}

// boundTables returns a module whose tables cannot grow above maxTable, since the
// runtime has no bound of its own. A module where that is so already is returned as it
// is. It must have passed check.
func boundTables(module []byte) ([]byte, error) {
	o, err := read(module)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(o.tables, func(t limits) bool { return !t.bounded || t.most > maxTable }) {
		return module, nil
	}
	return abi.ReplaceSection(module, abi.SectionTable, tightened)
}

// tightened returns the body of a table section with bounds.
func tightened(body []byte) ([]byte, error) {
	r := &reader{rest: body}
	var out []byte
	count := 0
	r.each(maxTables, func(int) {
		count++
		out = append(out, r.peek())
		t := readTable(r)
		most := uint32(maxTable)
		if t.bounded {
			most = min(most, t.most)
		}
		out = append(out, limitBounded)
		out = abi.AppendUint32(abi.AppendUint32(out, t.least), most)
	})
	return append(abi.AppendUint32(nil, uint32(count)), out...), r.err
}

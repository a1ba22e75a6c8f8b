package wasmhost

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// maxTable bounds the elements of a table. The largest Go plugins have some 30,000.
const maxTable = 1 << 16

// check refuses a module that is none, that does not follow the contract, or that
// asks for more than its limits.
func check(module []byte, most Limits) error {
	o, err := read(module)
	if err != nil {
		return err
	}
	return errors.Join(o.checkImports(), o.checkExports(), o.checkMemory(most.Memory), o.checkTables())
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

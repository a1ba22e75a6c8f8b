package module

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Check returns an error if the module does not follow package abi. If it does, but needs more than maxMemory bytes
// of memory to start, the error is a *probe.FieldError for the field "limits.memory".
func (m *Module) Check(maxMemory int64) error {
	errs := []error{m.checkImports(), m.checkExports()}
	if len(m.memories) != 1 {
		errs = append(errs, fmt.Errorf("has %d memories, must have exactly one", len(m.memories)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if initial, _ := m.Memory(); initial > maxMemory {
		const MiB = 1 << 20
		return &probe.FieldError{
			Field: "limits.memory", Problem: fmt.Sprintf("is %v, but the module needs %v to start", bytesize.Size(maxMemory), bytesize.Size(initial)),
			Hint: fmt.Sprintf("write at least \"%v\"; most modules need some more for their attempts", bytesize.Size((initial+MiB-1)/MiB*MiB)),
		}
	}
	return nil
}

// maxImportErrors is the maximum number of invalid imports that an error lists.
const maxImportErrors = 8

func (m *Module) checkImports() error {
	known := hostFunctions()
	var errs []error
	for _, i := range m.imports {
		f, ok := known[i.name]
		switch {
		case i.kind != kindFunction:
			errs = append(errs, fmt.Errorf("imports %.160q, which is not a function: only functions can be imported", i.name))
		case !ok:
			errs = append(errs, fmt.Errorf("imports unknown function %.160q: rebuild the plugin without it, or upgrade Sonde", i.name))
		case m.types[i.functionType].letters != f.Params+":"+f.Results:
			errs = append(errs, fmt.Errorf("imports function %q with wrong parameters or results: rebuild the plugin with a current SDK", i.name))
		}
		if len(errs) == maxImportErrors {
			break
		}
	}
	return errors.Join(errs...)
}

// hostFunctions returns the functions that a module may import, by "module.name".
func hostFunctions() map[string]abi.Function {
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

func (m *Module) checkExports() error {
	marker, ok := m.exports[abi.ExportMarker]
	switch {
	case !ok:
		return fmt.Errorf("does not export %s: not a Sonde plugin, or built for another ABI version", abi.ExportMarker)
	case marker.kind != kindFunction && marker.kind != kindGlobal:
		return fmt.Errorf("exports %s, which must be a function or a global", abi.ExportMarker)
	}
	if e, ok := m.exports[abi.ExportMemory]; !ok || e.kind != kindMemory {
		return fmt.Errorf("does not export its memory as %q", abi.ExportMemory)
	}
	if !m.hasExport(abi.ExportRun) {
		return fmt.Errorf("does not export function %s", abi.ExportRun)
	}
	want := map[string]string{abi.ExportRun: ":i", abi.ExportConfigure: ":i", abi.ExportInitialize: ":"}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		e, ok := m.exports[name]
		if ok && (e.kind != kindFunction || int64(e.index) >= int64(len(m.functions)) || m.types[m.functions[e.index]].letters != want[name]) {
			return fmt.Errorf("exports %s, which must be a function with the parameters and results of the ABI", name)
		}
	}
	return nil
}

package wasmhost

import "github.com/sonde-probe/sonde/wasmhost/internal/module"

// ModuleInfo describes a module that was not run. Names are copied from the module without
// validation: they may contain any bytes.
type ModuleInfo struct {
	Imports   []string // "sonde_v1.dial", in the module's order
	Exports   []string // in the module's order
	Memory    int64    // initial size, in bytes
	MaxMemory int64    // declared maximum size, in bytes; 0 if there is none
}

// Inspect describes a module, even one that Load would reject. An error means that wasm is not a
// core module, or uses features that this host does not support.
func Inspect(wasm []byte) (ModuleInfo, error) {
	m, err := module.Parse(wasm)
	if err != nil {
		return ModuleInfo{}, err
	}
	initial, maximum := m.Memory()
	return ModuleInfo{Imports: m.Imports(), Exports: m.Exports(), Memory: initial, MaxMemory: maximum}, nil
}

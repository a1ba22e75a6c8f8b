package wasmhost

import "github.com/sonde-probe/sonde/wasmhost/internal/module"

// ModuleInfo describes a module that was not run. Names are as they stand in the module:
// they may hold anything.
type ModuleInfo struct {
	Imports   []string // "sonde_v1.dial", in the module's order
	Exports   []string // likewise
	Memory    int64    // initial size, in bytes
	MaxMemory int64    // maximum size that the module declares, in bytes; 0: none
}

// Inspect describes a module, whether Load would accept it or not. An error means that
// wasm is not a core module, or is one that this host cannot run.
func Inspect(wasm []byte) (ModuleInfo, error) {
	m, err := module.Parse(wasm)
	if err != nil {
		return ModuleInfo{}, err
	}
	initial, maximum := m.Memory()
	return ModuleInfo{Imports: m.Imports(), Exports: m.Exports(), Memory: initial, MaxMemory: maximum}, nil
}

package wasmhost_test

import (
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func TestWASIFunctionsHaveTheStandardTypes(t *testing.T) {
	r := wazero.NewRuntime(t.Context())
	defer r.Close(t.Context())
	b := r.NewHostModuleBuilder(abi.WASIModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	compiled, err := b.Compile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	standard := compiled.ExportedFunctions()
	ours := make(map[string]bool)
	for _, f := range append(abi.WASI(), abi.WASIRefused()...) {
		ours[f.Name] = true
		want, ok := standard[f.Name]
		if !ok {
			t.Errorf("%s is not in WASI preview 1", f.Name)
			continue
		}
		if letters(want.ParamTypes()) != f.Params || letters(want.ResultTypes()) != f.Results {
			t.Errorf("%s is (%s) -> (%s), want (%s) -> (%s)", f.Name, f.Params, f.Results, letters(want.ParamTypes()), letters(want.ResultTypes()))
		}
	}
	for name := range standard {
		if !ours[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func letters(types []api.ValueType) string {
	names := map[api.ValueType]string{api.ValueTypeI32: "i", api.ValueTypeI64: "l", api.ValueTypeF64: "d"}
	s := ""
	for _, t := range types {
		s += names[t]
	}
	return s
}

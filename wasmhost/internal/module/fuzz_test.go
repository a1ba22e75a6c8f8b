package module_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// FuzzRewrite verifies that wazero accepts a rewritten module if and only if it accepts the
// original. An independent decoder verifies that the code of accepted modules is metered
// throughout.
func FuzzRewrite(f *testing.F) {
	f.Add(wattest.Assemble(`(memory 1) (func $run (result i32) loop i32.const 1 br_if 0 end i32.const 1) (export "run" (func $run))`))
	f.Add(wattest.Assemble(`(table 1) (global $g (mut i32) 5) (func $run i32.const 0 i32.const 1 i32.const 2 memory.fill) (memory 1) (data 0 "x") (start $run)`))
	f.Add(wattest.Assemble(`(table 1) (func $run block loop i32.const 0 br_table 0 1 end end i32.const 0 call_indirect) (elem 0 $run)`))
	for _, b := range []byte{0x63, 0x64, 0x69, 0x70, 0x6f, 0x7f, 0x7b} {
		for _, wasm := range beyond(b) {
			f.Add(wasm)
		}
	}
	for _, path := range specificationModules(f) {
		wasm, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wasm)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(16).WithCoreFeatures(api.CoreFeaturesV2))
	if _, err := host(r, func(*uint32) {}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		out, info, err := module.Meter(wasm)
		if err != nil {
			return // Rewrite may reject modules that wazero accepts, but not the other way round
		}
		checkMetered(t, wasm, out)
		original, invalid := r.CompileModule(ctx, withoutCustomSections(wasm))
		if invalid == nil {
			defer original.Close(ctx)
		}
		rewritten, err := r.CompileModule(ctx, out)
		if err == nil {
			defer rewritten.Close(ctx)
		}
		if strings.Contains(info.NoImage, "reference to a function") && err == nil {
			return // the export of the start function may make the module valid: Rewrite rejects it
		}
		if (invalid == nil) != (err == nil) {
			t.Errorf("wazero says %v of the rewritten module, and of the original %v", err, invalid)
		}
	})
}

// withoutCustomSections returns a module without custom sections: the specification ignores invalid
// ones, but wazero does not.
func withoutCustomSections(wasm []byte) []byte {
	out := bytes.Clone(wasm[:8])
	for s := range abi.Sections(wasm) {
		if s.ID != abi.SectionCustom {
			out = append(abi.AppendUint32(append(out, s.ID), uint32(len(s.Body))), s.Body...)
		}
	}
	return out
}

// specificationModules returns the shorter modules of the specification's tests.
func specificationModules(f *testing.F) (short []string) {
	all, err := filepath.Glob(filepath.Join(specification(f), "v2", "testdata", "*.wasm"))
	if err != nil || len(all) < 100 {
		f.Fatalf("%d modules of the specification's tests: %v", len(all), err)
	}
	for _, path := range all {
		if info, err := os.Stat(path); err == nil && info.Size() < 1000 {
			short = append(short, path)
		}
	}
	return short
}

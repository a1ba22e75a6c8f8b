package module_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// TestTheSpecificationsTestsRunAlike runs the tests of the WebAssembly core specification, version
// 2, which are part of wazero's Go module: the original modules in one runtime, the rewritten
// modules in another. Each command must have the same effect in both, and an invalid module must
// remain invalid.
func TestTheSpecificationsTestsRunAlike(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(specification(t), "v2", "testdata", "*.json"))
	if err != nil || len(scripts) < 100 {
		t.Fatalf("%d scripts of the specification's tests: %v", len(scripts), err)
	}
	for i, path := range scripts {
		if !tier.InCI() && i%8 != 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			t.Parallel()
			runScript(t, path)
		})
	}
}

// different lists the commands that have a different effect with a rewritten module.
var different = map[string]int{
	// A valid module is rejected: the opcode of an instruction is not in the shortest encoding. No
	// compiler emits that, and different parts of wazero decode it differently.
	"binary-leb128.json": 969,
	// An error names the maximum of a table that had none.
	"imports.json": 423,
	// The export of the start function allows a reference to it, which Rewrite rejects.
	"ref_func.json": 113,
}

// specification returns the directory of wazero's copy of the specification's tests.
func specification(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatalf("find wazero's module: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "integration_test", "spectest")
}

// command is a command of a script, in the JSON format of wast2json.
type command struct {
	Type       string
	Line       int
	Filename   string
	Name, As   string
	ModuleType string `json:"module_type"`
	Action     struct {
		Type, Module, Field string
		Args                []argument
	}
}

type argument struct {
	Type     string
	LaneType string `json:"lane_type"`
	Value    json.RawMessage
}

// runScript runs a script in both runtimes.
func runScript(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var script struct{ Commands []command }
	if err := json.Unmarshal(text, &script); err != nil {
		t.Fatal(err)
	}
	original, metered := newWorld(t, false), newWorld(t, true)
	for i, c := range script.Commands {
		if next := i + 1; next < len(script.Commands) && script.Commands[next].Type == "register" {
			c.As = script.Commands[next].As // wazero sets a module's name on instantiation
		}
		want, got := original.do(filepath.Dir(path), c), metered.do(filepath.Dir(path), c)
		if want != got && c.Line != different[filepath.Base(path)] {
			t.Errorf("line %d, %s %s: %s, originally %s", c.Line, c.Type, c.Action.Field, got, want)
		}
	}
}

// world is a runtime with the modules of a script.
type world struct {
	runtime wazero.Runtime
	metered bool
	modules map[string]api.Module // by name in the script; the latest one also under ""
}

func newWorld(t *testing.T, metered bool) *world {
	ctx := context.Background()
	w := &world{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2)), metered: metered, modules: make(map[string]api.Module)}
	t.Cleanup(func() { w.runtime.Close(ctx) })
	if _, err := host(w.runtime, func(*uint32) {}); err != nil {
		t.Fatal(err)
	}
	wasm, err := os.ReadFile(filepath.Join(specification(t), "testdata", "spectest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.runtime.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig()); err != nil {
		t.Fatal(err)
	}
	return w
}

// host creates the module that rewritten modules import. Its tick calls f with the address of the
// new count.
func host(r wazero.Runtime, f func(fuel *uint32)) (api.Module, error) {
	tick := api.GoModuleFunc(func(_ context.Context, m api.Module, _ []uint64) {
		fuel := uint32(1000)
		f(&fuel)
		m.ExportedGlobal(module.FuelExport).(api.MutableGlobal).Set(uint64(fuel))
	})
	return r.NewHostModuleBuilder(module.MeterModule).NewFunctionBuilder().WithGoModuleFunction(tick, nil, nil).Export(module.Tick).Instantiate(context.Background())
}

// do executes a command and returns its effect as comparable text.
func (w *world) do(dir string, c command) string {
	switch c.Type {
	case "module":
		m, err := w.load(filepath.Join(dir, c.Filename), c.As)
		if err != nil {
			return "error: " + err.Error()
		}
		w.modules[""] = m
		if c.Name != "" {
			w.modules[c.Name] = m
		}
		return "loaded"
	case "register":
		return ""
	case "assert_return", "action", "assert_trap", "assert_exhaustion":
		return w.act(c)
	case "assert_invalid", "assert_malformed", "assert_unlinkable", "assert_uninstantiable":
		if c.ModuleType == "text" {
			return ""
		}
		_, err := w.load(filepath.Join(dir, c.Filename), "")
		if c.Type == "assert_invalid" || c.Type == "assert_malformed" {
			return fmt.Sprint(err != nil)
		}
		return withoutStack(err)
	}
	return "unknown command"
}

// load instantiates a module under a name that other modules import.
func (w *world) load(path, name string) (api.Module, error) {
	wasm, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if w.metered {
		if wasm, _, err = module.Meter(wasm); err != nil {
			return nil, err
		}
	}
	return w.runtime.InstantiateWithConfig(context.Background(), wasm, wazero.NewModuleConfig().WithName(name).WithStartFunctions())
}

// act calls a function, or reads a global.
func (w *world) act(c command) string {
	m := w.modules[c.Action.Module]
	if m == nil {
		return "no module"
	}
	if c.Action.Type == "get" {
		return fmt.Sprint(m.ExportedGlobal(c.Action.Field).Get())
	}
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.values()...)
	}
	f := m.ExportedFunction(c.Action.Field)
	results, err := f.Call(context.Background(), args...)
	if err != nil {
		return withoutStack(err)
	}
	if slices.Contains(f.Definition().ResultTypes(), api.ValueTypeExternref) || slices.Contains(f.Definition().ResultTypes(), 0x70) {
		return fmt.Sprint(results[0] != 0) // a reference is an address
	}
	return fmt.Sprint(results)
}

// withoutStack returns the text of an error without the parts that rewriting changes: the call
// stack and the indices of functions.
func withoutStack(err error) string {
	if err == nil {
		return "no error"
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return "error: " + indices.ReplaceAllString(first, "[]")
}

var indices = regexp.MustCompile(`\[\d+\]`)

// values returns an argument in wazero's encoding.
func (a argument) values() []uint64 {
	if a.Type != "v128" {
		var text string
		if err := json.Unmarshal(a.Value, &text); err != nil {
			panic(err)
		}
		return []uint64{number(text)}
	}
	var lanes []string
	if err := json.Unmarshal(a.Value, &lanes); err != nil {
		panic(err)
	}
	var all []byte
	size := 16 / len(lanes)
	for _, lane := range lanes {
		all = append(all, binary.LittleEndian.AppendUint64(nil, number(lane))[:size]...)
	}
	return []uint64{binary.LittleEndian.Uint64(all), binary.LittleEndian.Uint64(all[8:])}
}

// number parses a 64-bit number; it returns 0 for "null".
func number(text string) uint64 {
	if text == "null" {
		return 0
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		panic(errors.New("not a number: " + text))
	}
	if n.Sign() < 0 {
		return uint64(n.Int64())
	}
	return n.Uint64()
}

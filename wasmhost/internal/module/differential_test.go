package module_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// machine is a runtime in which modules run with or without metering.
type machine struct {
	runtime wazero.Runtime
	metered bool
	ticks   int
	fuel    uint32 // set by each tick
}

func newMachine(tb testing.TB, config wazero.RuntimeConfig, metered bool) *machine {
	ctx := context.Background()
	m := &machine{metered: metered}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(16))
	tb.Cleanup(func() { m.runtime.Close(ctx) })
	if _, err := host(m.runtime, func(fuel *uint32) { m.ticks++; *fuel = m.fuel }); err != nil {
		tb.Fatal(err)
	}
	return m
}

// outcome runs a module and returns all observable results.
func (m *machine) outcome(tb testing.TB, wasm []byte, arg uint64) string {
	ctx := context.Background()
	if m.metered {
		out, _, err := module.Meter(wasm)
		if err != nil {
			tb.Fatalf("rewrite: %v of %x", err, wasm)
		}
		checkMetered(tb, wasm, out)
		wasm = out
	}
	instance, err := m.runtime.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		tb.Fatalf("instantiate: %v of %x", err, wasm)
	}
	defer instance.Close(ctx)
	return outcomeOf(instance, arg)
}

// outcomeOf calls the function run of an instance and returns all observable results.
func outcomeOf(instance api.Module, arg uint64) string {
	results, err := instance.ExportedFunction("run").Call(context.Background(), arg)
	memory := instance.Memory()
	b, _ := memory.Read(0, memory.Size())
	h := fnv.New64a()
	h.Write(b)
	text := fmt.Sprint(results, " ", withoutStack(err), " memory ", memory.Size(), h.Sum64())
	for _, name := range []string{"l", "i", "j"} {
		text += fmt.Sprint(" ", name, " ", instance.ExportedGlobal(name).Get())
	}
	return text
}

// seeds yields choices for generate.
func seeds(n int) iter.Seq2[[]byte, *rand.Rand] {
	random := rand.New(rand.NewPCG(1, 2))
	return func(yield func([]byte, *rand.Rand) bool) {
		for range n {
			choices := make([]byte, 50+random.IntN(1500))
			for i := range choices {
				choices[i] = byte(random.Uint32())
			}
			if !yield(choices, random) {
				return
			}
		}
	}
}

// FuzzDifferential verifies that a valid module behaves the same with and without metering,
// compiled and interpreted, and for any frequency of ticks.
func FuzzDifferential(f *testing.F) {
	for choices, random := range seeds(40) {
		f.Add(choices, uint8(random.Uint32()), random.Uint32())
	}
	machines := []*machine{
		newMachine(f, wazero.NewRuntimeConfigCompiler(), false), newMachine(f, wazero.NewRuntimeConfigCompiler(), true),
		newMachine(f, wazero.NewRuntimeConfigInterpreter(), false), newMachine(f, wazero.NewRuntimeConfigInterpreter(), true),
	}
	f.Fuzz(func(t *testing.T, choices []byte, fuel uint8, arg uint32) {
		if len(choices) > 4000 {
			return
		}
		wasm := generate(bytes.Clone(choices), false)
		var want string
		for i, m := range machines {
			m.fuel, m.ticks = uint32(fuel), 0
			got := m.outcome(t, wasm, uint64(arg))
			if i == 0 {
				want = got
			}
			if got != want {
				t.Errorf("machine %d: %s\nthe first: %s\n%x", i, got, want, wasm)
			}
		}
	})
}

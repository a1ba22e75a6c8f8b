package module_test

import (
	"bytes"
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sonde-probe/sonde/wasmhost/internal/image"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// rewritten is a rewritten module, compiled in a machine.
type rewritten struct {
	*module.Rewritten
	machine  *machine
	compiled wazero.CompiledModule
}

func (m *machine) rewrite(tb testing.TB, wasm []byte) rewritten {
	tb.Helper()
	p, err := module.Rewrite(wasm)
	if err != nil {
		tb.Fatalf("%v\n%x", err, wasm)
	}
	compiled, err := m.runtime.CompileModule(context.Background(), p.Wasm)
	if err != nil {
		tb.Fatal(err)
	}
	return rewritten{p, m, compiled}
}

// instantiate returns an uninitialised instance and its memory. Closing the instance frees both.
func (p rewritten) instantiate(tb testing.TB, from *image.Image) (instance api.Module, memory *image.Memory) {
	tb.Helper()
	const page, limit = 64 << 10, 16 * 64 << 10
	memory, err := image.NewMemory(from, page, limit, func(int64) error { return nil })
	if err != nil {
		tb.Fatal(err)
	}
	ctx := experimental.WithMemoryAllocator(context.Background(), memory)
	instance, err = p.machine.runtime.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().WithName("").WithRandSource(rand.Reader))
	if err != nil {
		memory.Free()
		tb.Fatal(err)
	}
	return instance, memory
}

// take returns the image of the module.
func (p rewritten) take(tb testing.TB) *image.Image {
	tb.Helper()
	first, memory := p.instantiate(tb, nil)
	defer memory.Free()
	defer first.Close(context.Background())
	if _, err := p.Initialize(first); err != nil {
		tb.Fatal(err)
	}
	taken, err := image.Take(first, p.Globals(first))
	if err != nil {
		tb.Fatal(err)
	}
	return taken
}

// scribble modifies parts of the memory and all globals of an instance, because many calls modify
// little.
func scribble(instance api.Module, seed uint64) {
	random := mathrand.New(mathrand.NewPCG(seed, 1))
	for range random.IntN(40) {
		instance.Memory().WriteUint64Le(uint32(random.IntN(int(instance.Memory().Size()))), random.Uint64())
	}
	for _, name := range []string{"l", "i", "j"} {
		instance.ExportedGlobal(name).(api.MutableGlobal).Set(uint64(random.Uint32()))
	}
}

// FuzzReset verifies that an instance that was created from an image, and one that was reset after
// a call, behave like a new instance of the original module. Only an instance whose memory has
// grown cannot be reset.
func FuzzReset(f *testing.F) {
	for choices, random := range seeds(40) {
		f.Add(choices, uint8(random.Uint32()), random.Uint32(), random.Uint32())
	}
	fresh := newMachine(f, wazero.NewRuntimeConfigCompiler(), false)
	again := newMachine(f, wazero.NewRuntimeConfigCompiler(), true)
	f.Fuzz(func(t *testing.T, choices []byte, fuel uint8, first, second uint32) {
		if len(choices) > 4000 {
			return
		}
		again.fuel = uint32(fuel)
		wasm := generate(bytes.Clone(choices), true)
		p := again.rewrite(t, wasm)
		defer p.compiled.Close(context.Background())
		taken := p.take(t)
		defer taken.Close()
		instance, memory := p.instantiate(t, taken)
		defer memory.Free()
		defer instance.Close(context.Background())
		globals := p.Globals(instance)
		if err := taken.Complete(instance, globals); err != nil {
			t.Fatal(err)
		}
		for n, arg := range []uint64{uint64(first), uint64(second), uint64(first)} {
			if got, want := outcomeOf(instance, arg), fresh.outcome(t, wasm, arg); got != want {
				t.Fatalf("call %d: %s\nof a new instance: %s\n%x", n, got, want, wasm)
			}
			scribble(instance, uint64(n)<<32|arg)
			grown := int64(instance.Memory().Size()) > taken.Size()
			if reset := taken.Reset(memory, globals); reset == grown {
				t.Fatalf("after call %d: reset is %v although its memory has %d bytes\n%x", n, reset, instance.Memory().Size(), wasm)
			}
			if grown {
				return
			}
		}
	})
}

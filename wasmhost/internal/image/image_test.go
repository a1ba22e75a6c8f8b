package image_test

import (
	"bytes"
	"context"
	seed "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sonde-probe/sonde/tests/wattest"
	"github.com/sonde-probe/sonde/wasmhost/internal/image"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

const (
	pageSize = 64 << 10
	limit    = 64 * pageSize
)

// counter is a module that counts in a global and in memory, in its start function and in each call
// of run. run returns 1000 times the count in memory plus the global.
const counter = `(memory 2) (data 65536 "\x07") (global $n (mut i32) 40)
	(func $count i32.const 65536 i32.const 65536 i32.load8_u i32.const 1 i32.add i32.store8
		global.get $n i32.const 1 i32.add global.set $n)
	(func $run (result i32) i32.const 65536 i32.load8_u i32.const 1000 i32.mul global.get $n i32.add call $count)
	(start $count) (export "run" (func $run)) (export "memory" (memory 0))
	(func $grow i32.const 1 memory.grow drop) (export "grow" (func $grow))`

// instance is an instance with its memory and its globals.
type instance struct {
	api.Module
	memory  *image.Memory
	globals []api.MutableGlobal
}

// program is a rewritten and compiled module.
type program struct {
	*module.Rewritten
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

func compile(tb testing.TB, wat string) program {
	tb.Helper()
	parsed, err := module.Parse(wattest.Assemble(wat))
	if err != nil {
		tb.Fatal(err)
	}
	m, err := parsed.Rewrite()
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	p := program{m, wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2)), nil}
	tb.Cleanup(func() { p.runtime.Close(ctx) })
	tick := p.runtime.NewHostModuleBuilder(module.MeterModule).NewFunctionBuilder().WithFunc(func() {}).Export(module.Tick)
	if _, err := tick.Instantiate(ctx); err != nil {
		tb.Fatal(err)
	}
	if p.compiled, err = p.runtime.CompileModule(ctx, m.Wasm); err != nil {
		tb.Fatal(err)
	}
	return p
}

// instantiate creates an instance from an image, or initialises one if from is nil.
func (p program) instantiate(tb testing.TB, from *image.Image) instance {
	tb.Helper()
	initial := int64(p.compiled.ExportedMemories()["memory"].Min()) * pageSize
	memory, err := image.NewMemory(from, initial, limit, unlimited)
	if err != nil {
		tb.Fatal(err)
	}
	ctx := context.Background()
	m, err := p.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, memory), p.compiled, wazero.NewModuleConfig().WithName("").WithRandSource(seed.Reader))
	if err != nil {
		tb.Fatal(err)
	}
	i := instance{m, memory, p.Globals(m)}
	if from == nil {
		err = p.initialize(ctx, m)
	} else {
		err = from.Complete(m, i.globals)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// initialize writes the data segments and calls the start function.
func (p program) initialize(ctx context.Context, m api.Module) error {
	start, err := p.Initialize(m)
	if err == nil && start != nil {
		err = start.CallWithStack(ctx, nil)
	}
	return err
}

// unlimited lets a memory grow up to its limit.
func unlimited(int64) error { return nil }

// take returns the image of a new instance.
func (p program) take(tb testing.TB) *image.Image {
	tb.Helper()
	first := p.instantiate(tb, nil)
	taken, err := image.Take(first, first.globals)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := taken.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := first.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return taken
}

// call calls a function of an instance, and returns its result if it has one.
func (i instance) call(tb testing.TB, name string) int32 {
	tb.Helper()
	got, err := i.ExportedFunction(name).Call(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	if len(got) == 0 {
		return 0
	}
	return api.DecodeI32(got[0])
}

// content returns the whole memory of an instance.
func (i instance) content() []byte {
	all, _ := i.Memory().Read(0, i.Memory().Size())
	return all
}

func TestInstancesStartAndStartAgainFromTheImage(t *testing.T) {
	const initialised = 8041 // the start function counted once
	p := compile(t, counter)
	taken := p.take(t)
	if taken.Size() != 2*pageSize {
		t.Fatalf("the size is %d", taken.Size())
	}
	first, second := p.instantiate(t, taken), p.instantiate(t, taken)
	for n := range int32(3) {
		if got := first.call(t, "run"); got != initialised+1001*n {
			t.Errorf("call %d: got %d", n, got)
		}
	}
	if got := second.call(t, "run"); got != initialised {
		t.Errorf("the other instance: got %d", got)
	}
	if !taken.Reset(first.memory, first.globals) {
		t.Fatal("it cannot be reset")
	}
	if got := first.call(t, "run"); got != initialised {
		t.Errorf("after a reset: got %d", got)
	}
}

func TestAnInstanceThatHasGrownIsNotReset(t *testing.T) {
	p := compile(t, counter)
	taken := p.take(t)
	i := p.instantiate(t, taken)
	i.call(t, "grow")
	if taken.Reset(i.memory, i.globals) {
		t.Error("it was reset: it would keep its size")
	}
	if got := p.instantiate(t, taken).Memory().Size(); got != 2*pageSize {
		t.Errorf("a new instance has %d bytes", got)
	}
}

func TestAnImageMayBeLargerThanTheModuleSays(t *testing.T) {
	p := compile(t, `(memory 1) (func $start i32.const 3 memory.grow drop i32.const 262140 i32.const 5 i32.store)
		(start $start) (func $run (result i32) i32.const 262140 i32.load) (export "run" (func $run)) (export "memory" (memory 0))`)
	i := p.instantiate(t, p.take(t))
	if got := i.call(t, "run"); got != 5 || i.Memory().Size() != 4*pageSize {
		t.Errorf("got %d in %d bytes", got, i.Memory().Size())
	}
}

func TestInstancesOfOneImageShareNoWrites(t *testing.T) {
	p := compile(t, `(memory 8) (func $run) (export "run" (func $run)) (export "memory" (memory 0))`)
	taken := p.take(t)
	var all sync.WaitGroup
	for n := range 8 {
		i := p.instantiate(t, taken)
		all.Go(func() {
			own := bytes.Repeat([]byte{byte(n + 1)}, 8*pageSize)
			for range 50 {
				if copy(i.content(), own); !bytes.Equal(i.content(), own) {
					t.Error("it sees the writes of another instance")
				}
				if !taken.Reset(i.memory, i.globals) || !bytes.Equal(i.content(), make([]byte, 8*pageSize)) {
					t.Error("it is not what it was after a reset")
				}
			}
		})
	}
	all.Wait()
}

// FuzzReset verifies that a reset restores the image after arbitrary writes.
func FuzzReset(f *testing.F) {
	for _, writes := range []uint16{0, 1, 20, 1000} {
		f.Add(uint64(writes), writes, uint16(8))
	}
	p := compile(f, `(memory 12) (data 70000 "initial") (func $run) (export "run" (func $run)) (export "memory" (memory 0))`)
	taken := p.take(f)
	i := p.instantiate(f, taken)
	want := bytes.Clone(i.content())
	f.Fuzz(func(t *testing.T, seed uint64, writes, length uint16) {
		random := rand.New(rand.NewPCG(seed, 1))
		memory := i.content()
		for range writes % 2048 {
			at := random.IntN(len(memory))
			for n := range memory[at:min(at+int(length), len(memory))] {
				memory[at+n] = byte(random.Uint32())
			}
		}
		if !taken.Reset(i.memory, i.globals) || !bytes.Equal(i.content(), want) {
			t.Error("the memory is not the image")
		}
	})
}

func TestAnInitialisationThatCannotBeMadeIsAnError(t *testing.T) {
	for name, test := range map[string]struct{ wat, want string }{
		"data outside of the memory": {`(memory 1) (data 65530 "0123456789") (export "memory" (memory 0))`, "data segment 0: 10 bytes at address 65530 are outside"},
		"data at a negative address": {`(memory 1) (data -1 "0") (export "memory" (memory 0))`, "at address 4294967295 are outside"},
		"a start that traps":         {`(memory 1) (func $f unreachable) (start $f)`, "unreachable"},
		"a start with a parameter":   {`(memory 1) (func $f (param i32)) (start $f)`, "parameters or results"},
		"a start with a result":      {`(memory 1) (func $f (result i32) i32.const 1) (start $f)`, "parameters or results"},
	} {
		t.Run(name, func(t *testing.T) {
			p := compile(t, test.wat)
			memory, err := image.NewMemory(nil, pageSize, limit, unlimited)
			if err != nil {
				t.Fatal(err)
			}
			ctx := experimental.WithMemoryAllocator(t.Context(), memory)
			i, err := p.runtime.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().WithName("").WithRandSource(seed.Reader))
			if err == nil {
				err = p.initialize(ctx, i)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestMemoryGrowsWithinItsLimit(t *testing.T) {
	const limit = 4 * pageSize
	taken := int64(0)
	full := errors.New("full")
	m, err := image.NewMemory(nil, pageSize, limit, func(n int64) error {
		if taken+n > 2*pageSize {
			return full
		}
		taken += n
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	m.Allocate(pageSize, 1<<32)
	first := m.Reallocate(pageSize)
	first[7] = 1
	for _, pages := range []uint64{2, 3} {
		if got := m.Reallocate(pages * pageSize); uint64(len(got)) != pages*pageSize || got[7] != 1 || got[len(got)-1] != 0 {
			t.Errorf("%d pages are %d bytes", pages, len(got))
		}
	}
	if taken != 2*pageSize || m.Refused || m.Err != nil {
		t.Errorf("%d bytes were taken, refused is %v, the error %v", taken, m.Refused, m.Err)
	}
	if m.Reallocate(limit+1) != nil || !m.Refused || m.Err != nil {
		t.Errorf("above the limit: refused is %v, the error %v", m.Refused, m.Err)
	}
	if m.Reallocate(limit) != nil || m.Err != full {
		t.Errorf("below the limit: the error is %v", m.Err)
	}
}

// BenchmarkInstances measures the creation of an instance, and a reset after a call that wrote to a
// few pages.
func BenchmarkInstances(b *testing.B) {
	for _, size := range []int{1, 2, 64} {
		p := compile(b, fmt.Sprintf(`(memory %d) (global $sp (mut i32) 1) (func $run) (export "run" (func $run)) (export "memory" (memory 0))`, size))
		taken := p.take(b)
		b.Run(fmt.Sprintf("new/%dKiB", size*64), func(b *testing.B) {
			for b.Loop() {
				p.instantiate(b, taken).Close(context.Background())
			}
		})
		for _, changed := range []int{1, 8, 60} {
			if changed*4096 > size*pageSize {
				continue
			}
			b.Run(fmt.Sprintf("reset/%dKiB/%dpages", size*64, changed), func(b *testing.B) {
				i := p.instantiate(b, taken)
				b.ReportAllocs()
				for b.Loop() {
					content := i.content()
					for n := range changed {
						content[n*len(content)/changed] = 1
					}
					if !taken.Reset(i.memory, i.globals) {
						b.Fatal("it cannot be reset")
					}
				}
			})
		}
	}
}

package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// HostCall has the fields of wasmhost.HostCall, which documents them, so that it can be converted.
type HostCall struct {
	Target   string
	Function string
	Args     []uint64
	Result   int64
	Detail   string
	Took     time.Duration
}

// args are the arguments of a host function. Only the low half of an i32 is defined.
type args []uint64

func (a args) u32(i int) uint32 { return api.DecodeU32(a[i]) }
func (a args) i32(i int) int32  { return api.DecodeI32(a[i]) }

// link adds the modules that a plugin may import to a runtime.
func (s *Sandbox) link(ctx context.Context, r wazero.Runtime) error {
	if err := linkModule(ctx, s, r, abi.HostModule, abi.Functions(), nativeFunctions()); err != nil {
		return err
	}
	wasi := wasiFunctions()
	for _, f := range abi.WASIRefused() {
		wasi[f.Name] = func(*call, args) abi.Errno { return abi.ENOSYS }
	}
	if err := linkModule(ctx, s, r, abi.WASIModule, slices.Concat(abi.WASI(), abi.WASIRefused()), wasi); err != nil {
		return err
	}
	tick := api.GoModuleFunc(func(ctx context.Context, _ api.Module, _ []uint64) { callOf(ctx).cpu.tick() })
	_, err := r.NewHostModuleBuilder(module.MeterModule).NewFunctionBuilder().WithGoModuleFunction(tick, nil, nil).Export(module.Tick).Instantiate(ctx)
	return err
}

// linkModule adds a module with one function for each of types.
func linkModule[R int64 | abi.Errno](ctx context.Context, s *Sandbox, r wazero.Runtime, module string, types []abi.Function, functions map[string]func(*call, args) R) error {
	b := r.NewHostModuleBuilder(module)
	for _, t := range types {
		f := functions[t.Name]
		wrapped := s.wrap(module+"."+t.Name, t, func(c *call, a args) uint64 { return uint64(f(c, a)) })
		b.NewFunctionBuilder().WithGoModuleFunction(wrapped, valueTypes(t.Params), valueTypes(t.Results)).Export(t.Name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// wrap returns a function that the runtime can call. It counts calls and, if Config.Trace is set,
// reports them. Host functions that compute must call cpu.charge; those that wait must call
// cpu.releaseSlot.
func (s *Sandbox) wrap(name string, t abi.Function, f func(*call, args) uint64) api.GoModuleFunction {
	hasResult := t.Results != ""
	plain := func(ctx context.Context, _ api.Module, stack []uint64) {
		c := callOf(ctx)
		c.count()
		if result := f(c, stack); hasResult {
			stack[0] = result
		}
	}
	if s.config.Trace == nil {
		return api.GoModuleFunc(plain)
	}
	return api.GoModuleFunc(func(ctx context.Context, guest api.Module, stack []uint64) {
		c, start := callOf(ctx), time.Now()
		traced := HostCall{Target: c.input.Target.Name, Function: name, Args: append([]uint64{}, stack[:len(t.Params)]...)}
		failed := c.failures.count
		plain(ctx, guest, stack)
		traced.Took = time.Since(start)
		switch t.Results {
		case "i":
			traced.Result = int64(api.DecodeI32(stack[0]))
		case "l":
			traced.Result = int64(stack[0])
		}
		if c.failures.count > failed {
			traced.Detail = c.last.Detail
		}
		s.config.Trace(traced)
	})
}

// The charges of host functions, in units of fuel (see package module).
const (
	unitsCall         = 32 // for each host call
	unitsPart         = 4  // for each buffer of a vector
	unitsPort         = 64 // for each port in InputTarget
	unitsSubscription = 16 // for each subscription of poll_oneoff
	unitsOptionByte   = 16 // for each byte of TLS options, which may contain certificates and keys

	unitsHandshake = 200_000 // for each TLS handshake: a few milliseconds

	copiedPerUnit = 64 // bytes
	randomPerUnit = 4  // bytes
	textPerUnit   = 1  // bytes of text that is escaped or sanitized
)

func valueTypes(letters string) []api.ValueType {
	var types []api.ValueType
	for _, l := range letters {
		types = append(types, map[rune]api.ValueType{'i': api.ValueTypeI32, 'l': api.ValueTypeI64, 'd': api.ValueTypeF64}[l])
	}
	return types
}

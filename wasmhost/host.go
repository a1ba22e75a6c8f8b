package wasmhost

import (
	"context"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// HostCall is one call of the host by a plugin, as Config.Trace is told of it.
type HostCall struct {
	Target   string        // the target's name; empty while an instance starts
	Function string        // "sonde_v1.dial"
	Args     []uint64      // as they stand on the stack: of an i32, only half of the bits count
	Result   int64         // as the plugin got it; 0 where there is none
	Detail   string        // what was wrong, if something was
	Took     time.Duration // with the time that was waited
}

// args are the arguments of a call of the host. Of an i32 only half of the bits are
// defined.
type args []uint64

func (a args) u32(i int) uint32 { return api.DecodeU32(a[i]) }
func (a args) i32(i int) int32  { return api.DecodeI32(a[i]) }

// hostFunction is a function of the host; its result is encoded already.
type hostFunction func(*call, args) uint64

// link gives a runtime the modules that a plugin may import.
func (p *Plugin) link(ctx context.Context, r wazero.Runtime) error {
	mine := make(map[string]hostFunction)
	for name, f := range native() {
		mine[name] = func(c *call, a args) uint64 { return uint64(f(c, a)) }
	}
	if err := p.offer(ctx, r, abi.HostModule, abi.Functions(), mine); err != nil {
		return err
	}
	theirs := make(map[string]hostFunction)
	for name, f := range wasi() {
		theirs[name] = func(c *call, a args) uint64 { return uint64(f(c, a)) }
	}
	for _, f := range abi.WASIRefused() {
		theirs[f.Name] = func(*call, args) uint64 { return uint64(abi.ENOSYS) }
	}
	return p.offer(ctx, r, abi.WASIModule, append(abi.WASI(), abi.WASIRefused()...), theirs)
}

// offer makes one module of host functions.
func (p *Plugin) offer(ctx context.Context, r wazero.Runtime, module string, types []abi.Function, do map[string]hostFunction) error {
	b := r.NewHostModuleBuilder(module)
	for _, t := range types {
		f := p.watch(module+"."+t.Name, t, do[t.Name])
		b.NewFunctionBuilder().WithGoModuleFunction(f, valueTypes(t.Params), valueTypes(t.Results)).Export(t.Name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// watch makes a function that the runtime can call: it counts and, where asked for,
// tells of the call.
func (p *Plugin) watch(name string, t abi.Function, f hostFunction) api.GoModuleFunction {
	returns := t.Results != ""
	plain := func(ctx context.Context, guest api.Module, stack []uint64) {
		c := callOf(ctx)
		if c.memory == nil { // it is the start function that calls
			c.memory = guest.Memory()
		}
		c.count()
		if result := f(c, stack); returns {
			stack[0] = result
		}
	}
	if p.trace == nil {
		return api.GoModuleFunc(plain)
	}
	return api.GoModuleFunc(func(ctx context.Context, guest api.Module, stack []uint64) {
		c, began := callOf(ctx), time.Now()
		told := HostCall{Target: c.target.Name, Function: name, Args: append([]uint64{}, stack[:len(t.Params)]...)}
		failures := c.failures
		plain(ctx, guest, stack)
		told.Took = time.Since(began)
		if returns {
			told.Result = decodeResult(t.Results, stack[0])
		}
		if c.failures > failures {
			told.Detail = c.last.detail
		}
		p.trace(told)
	})
}

func decodeResult(kind string, v uint64) int64 {
	if kind == "i" {
		return int64(api.DecodeI32(v))
	}
	return int64(v)
}

func valueTypes(letters string) []api.ValueType {
	var types []api.ValueType
	for _, l := range letters {
		switch l {
		case 'i':
			types = append(types, api.ValueTypeI32)
		case 'l':
			types = append(types, api.ValueTypeI64)
		case 'd':
			types = append(types, api.ValueTypeF64)
		}
	}
	return types
}

package wasmhost

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// instance is one copy of a module that runs: its memory and what it exports. One
// call at a time uses it.
type instance struct {
	module    api.Module
	memory    *memory
	run       api.Function
	configure api.Function // nil: the module has none
	nextFD    int32
	stack     [1]uint64
	taken     time.Time // when it was given out last
}

// maxFD is where an instance is retired, since a descriptor is never used twice.
const maxFD = 1 << 30

// start makes an instance. It returns when the module has initialised itself, or soon
// after ctx is done.
func (p *Plugin) start(ctx context.Context) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.Start)
	defer cancel()
	began := time.Now()
	i := &instance{memory: &memory{limit: uint64(p.limits.Memory)}, nextFD: abi.FirstFD}
	if err := p.instantiate(ctx, i); err != nil {
		i.close()
		return nil, fmt.Errorf("start: %w", err)
	}
	if err := p.initialize(ctx, i); err != nil {
		i.close()
		return nil, fmt.Errorf("%s: %w", abi.ExportInitialize, err)
	}
	p.counters.started.Add(1)
	p.counters.startNS.Add(int64(time.Since(began)))
	return i, nil
}

// instantiate makes the instance's memory and runs the module's start function.
func (p *Plugin) instantiate(ctx context.Context, i *instance) error {
	c := &call{ctx: ctx, plugin: p, instance: i}
	defer c.finish()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	return c.guarded(func(ctx context.Context) error {
		module, err := p.runtime.InstantiateModule(i.memory.with(ctx), p.compiled, config)
		if err != nil {
			return err
		}
		i.module = module
		i.run, i.configure = i.module.ExportedFunction(abi.ExportRun), i.module.ExportedFunction(abi.ExportConfigure)
		return nil
	})
}

func (p *Plugin) initialize(ctx context.Context, i *instance) error {
	f := i.module.ExportedFunction(abi.ExportInitialize)
	if f == nil {
		return nil
	}
	c := &call{ctx: ctx, plugin: p, instance: i, memory: i.module.Memory()}
	defer c.finish()
	_, err := c.run(f)
	return err
}

// close frees the instance. It must not be running.
func (i *instance) close() {
	if i.module != nil {
		_ = i.module.Close(context.Background()) // memory alone, which cannot fail
	}
}

// tired reports whether the instance should not be used again.
func (i *instance) tired() bool { return i.nextFD > maxFD }

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
	used      time.Time // when it was given back last
}

// maxFD is where an instance is retired, since a descriptor is never used twice.
const maxFD = 1 << 30

// start makes an instance. It returns when the module has initialised itself, or soon
// after ctx is done.
func (p *Plugin) start(ctx context.Context) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.Start)
	defer cancel()
	i := &instance{memory: &memory{limit: uint64(p.limits.Memory)}, nextFD: abi.FirstFD}
	c := &call{ctx: ctx, plugin: p, instance: i}
	defer c.finish()
	began := time.Now()
	module, err := p.runtime.InstantiateModule(callContext{i.memory.with(ctx), c}, p.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	i.module, c.memory = module, module.Memory()
	i.run, i.configure = module.ExportedFunction(abi.ExportRun), module.ExportedFunction(abi.ExportConfigure)
	if initialize := module.ExportedFunction(abi.ExportInitialize); initialize != nil {
		if _, err := c.run(initialize); err != nil {
			i.close()
			return nil, fmt.Errorf("%s: %w", abi.ExportInitialize, err)
		}
	}
	p.counters.started.Add(1)
	p.counters.startNS.Add(int64(time.Since(began)))
	return i, nil
}

// close frees the instance. It must not be running.
func (i *instance) close() {
	_ = i.module.Close(context.Background()) // memory alone, which cannot fail
}

// tired reports whether the instance should not be used again.
func (i *instance) tired() bool { return i.nextFD > maxFD }

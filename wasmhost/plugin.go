package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/breaker"
	"github.com/sonde-probe/sonde/wasmhost/internal/codecache"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
	"github.com/sonde-probe/sonde/wasmhost/internal/pool"
)

// Plugin is a loaded module. Load makes it. It is safe for use by many goroutines at
// once.
type Plugin struct {
	name     string
	manifest abi.Manifest
	limits   Limits
	grants   grant.Rules
	env      []string // "NAME=value"
	onTrap   probe.Outcome
	logger   *slog.Logger
	trace    func(HostCall)
	guard    guard
	began    time.Time // a second before it was loaded: the monotonic clock must not be 0

	ready    chan struct{} // closed when compiling has ended
	broken   error         // why it failed; set before ready is closed
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	cache    wazero.CompilationCache // nil: none

	configures bool // the module checks settings
	mu         sync.Mutex
	pending    []*Handler // whose settings are checked once the module is compiled

	use    sync.RWMutex // read-locked by those that use an instance, locked for ever by Close
	closed atomic.Bool

	pool     *pool.Pool[instance]
	breaker  breaker.Breaker
	held     atomic.Int64 // connections
	lookout  lookout
	counters counters
	journal  journal
	gauges   gauges
}

var (
	errCompiling = errors.New("the plugin is being compiled")
	errClosed    = errors.New("the plugin was unloaded")
)

// Load reads and checks a module and begins to compile it. It returns without waiting
// for that: see Wait. What is wrong with c is a *probe.FieldError, what is wrong with
// the module another error. Close frees what Load has taken.
func Load(c Config) (*Plugin, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	wasm, err := c.read()
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		name: c.Name, limits: c.Limits, env: environment(c.Grant.Env), onTrap: c.OnTrap, logger: c.Logger, trace: c.Trace,
		guard: closing{}, began: time.Now().Add(-time.Second), ready: make(chan struct{}),
	}
	p.pool = pool.New(c.Limits.Instances, (*instance).close)
	if p.grants, err = grant.Parse(c.Grant.Dial, c.Grant.DNS); err != nil {
		return nil, err
	}
	m, err := p.inspect(wasm)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", p.name, err)
	}
	p.logger = p.logger.With("plugin", p.name)
	entry, err := codecache.Open(c.CacheDir, c.CacheSize, wasm)
	if err != nil {
		return nil, err
	}
	go p.prepare(m, entry)
	return p, nil
}

// environment returns the variables of this process that have one of the names.
func environment(names []string) []string {
	var env []string
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// inspect checks the module and reads its manifest.
func (p *Plugin) inspect(wasm []byte) (m *module.Module, err error) {
	if p.manifest, err = abi.ReadManifest(wasm); p.name == "" {
		p.name = p.manifest.Name
	}
	if err != nil {
		return nil, err
	}
	if m, err = module.Parse(wasm); err != nil {
		return nil, err
	}
	p.configures = m.HasExport(abi.ExportConfigure)
	return m, m.Check(p.limits.Memory)
}

// prepare compiles the module and checks the settings that wait for it.
func (p *Plugin) prepare(m *module.Module, code *codecache.Entry) {
	began := time.Now()
	if err := p.compile(m, code); err != nil {
		p.broken = fmt.Errorf("plugin %s: %w", p.name, err)
		p.logger.Error("compile", "error", err)
	}
	p.counters.compile.Store(int64(time.Since(began)))
	p.counters.cacheHit.Store(code.Hit())
	p.mu.Lock()
	pending := p.pending
	p.pending = nil
	close(p.ready)
	p.mu.Unlock()
	for _, h := range pending {
		h.checked.end(p.configure(h))
	}
}

// compile makes the module ready to run. The compiler reads what a stranger has
// written: if that makes it panic, it is an error like others.
func (p *Plugin) compile(m *module.Module, code *codecache.Entry) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("compile: panic: %v", r)
		}
	}()
	wasm, err := m.BoundTables()
	if err != nil {
		return err
	}
	if err = p.build(wasm, code.Cache()); err != nil && code.Enabled() {
		code.Discard() // it may be damaged
		err = p.build(wasm, code.Cache())
	}
	code.Finish()
	return err
}

// build compiles by one goroutine: of several, wazero would let a panic end the
// process, and probes need the processors too.
func (p *Plugin) build(wasm []byte, cache wazero.CompilationCache) error {
	ctx := context.Background() // compiling cannot be stopped
	config := p.guard.configure(wazero.NewRuntimeConfig().WithDebugInfoEnabled(false).WithCoreFeatures(api.CoreFeaturesV2))
	if cache != nil {
		config = config.WithCompilationCache(cache)
	}
	r := wazero.NewRuntimeWithConfig(ctx, config)
	err := p.link(ctx, r)
	var compiled wazero.CompiledModule
	if err == nil {
		compiled, err = r.CompileModule(ctx, wasm)
	}
	if err != nil {
		err = fmt.Errorf("compile: %w", err)
		return errors.Join(err, shut(ctx, r, cache))
	}
	p.runtime, p.compiled, p.cache = r, compiled, cache
	return nil
}

func shut(ctx context.Context, r wazero.Runtime, cache wazero.CompilationCache) error {
	err := r.Close(ctx)
	if cache != nil {
		err = errors.Join(err, cache.Close(ctx))
	}
	return err
}

// Manifest returns what the module says of itself. It must not be changed.
func (p *Plugin) Manifest() abi.Manifest { return p.manifest }

// Ready is closed once the module is compiled, or cannot be.
func (p *Plugin) Ready() <-chan struct{} { return p.ready }

// Wait returns when the module is compiled, with an error if it cannot be, or when
// ctx is done.
func (p *Plugin) Wait(ctx context.Context) error {
	select {
	case <-p.ready:
		return p.state()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// state says why no attempt can be made, or nil.
func (p *Plugin) state() error {
	select {
	case <-p.ready:
	default:
		return errCompiling
	}
	if p.closed.Load() {
		return errClosed
	}
	return p.broken
}

// Close frees everything the plugin has, once its attempts have ended and the compiler
// has. Attempts that come later are Unknown. It returns before that when ctx is done;
// the rest is done later then. Handlers must be closed for themselves.
func (p *Plugin) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- p.free() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Plugin) free() error {
	<-p.ready
	p.use.Lock() // and never unlocked: nothing may be used any more
	p.pool.CloseIdle()
	p.lookout.close()
	if p.runtime == nil {
		return nil
	}
	return shut(context.Background(), p.runtime, p.cache)
}

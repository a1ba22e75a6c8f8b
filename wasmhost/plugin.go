package wasmhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/codecache"
	"github.com/sonde-probe/sonde/wasmhost/internal/compiler"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// Plugin is a loaded module. Load makes it. It is safe for concurrent use by
// multiple goroutines.
type Plugin struct {
	*loaded
	isShare bool // Share has made it

	name       string
	logger     *slog.Logger
	tenant     *sandbox.Tenant
	breaker    breaker
	counters   counters
	closed     atomic.Bool
	checkHangs atomic.Bool // the latest check of settings has taken too long
}

// loaded is a module with its instances, which a Plugin and its shares use together.
type loaded struct {
	name          string
	manifest      abi.Manifest
	limits        Limits
	compileConfig Compile
	onTrap        probe.Outcome
	baseLogger    *slog.Logger
	logger        *slog.Logger
	configures    bool // the module checks settings itself
	targetOnly    bool // it may connect to the target only

	sandbox  *sandbox.Sandbox
	pool     *pool
	compiled *compilation
	prepared *preparedTexts
	starts   startCounters

	users     atomic.Int64    // plugins that are not closed
	closing   context.Context // done when the last of them is closed
	cancel    context.CancelFunc
	compiling sync.WaitGroup
	inUse     sync.RWMutex        // read-locked while an instance is in use or being started; the last Close locks it for good
	checking  *semaphore.Weighted // acquired by a check of settings: several that hang would not have half of a processor each
}

var (
	errCompiling = errors.New("plugin is being compiled")
	errClosed    = errors.New("plugin was unloaded")
)

// Load reads and checks a module, except for the types of its code, and starts to compile it
// in the background: see Wait. While the machine lacks the resources for that, it tries again
// until Close is called.
// An error about a field of c is a *probe.FieldError; other errors are about the module.
// Close frees what Load has taken.
func Load(c Config) (*Plugin, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	grants, err := grant.Parse(c.Grant.Dial, c.Grant.DNS, c.Grant.Env)
	if err != nil {
		return nil, err
	}
	p := &loaded{
		name: c.Name, limits: c.Limits, compileConfig: c.Compile, onTrap: c.OnTrap, targetOnly: c.Grant.targetOnly(),
		compiled: newCompilation(), checking: semaphore.NewWeighted(1),
	}
	m, err := p.check(c.Module)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", p.name, err)
	}
	code, err := codecache.Open(c.CacheDir, c.CacheSize, m.Wasm)
	if err != nil {
		return nil, err
	}
	p.configures = m.Configures
	p.baseLogger, p.logger = c.Logger, c.Logger.With("plugin", p.name)
	confine := sandbox.Config{
		Limits: sandbox.Limits(c.Limits), Grants: grants, Env: environment(c.Grant.Env), Logger: p.logger,
		CloseOldest: p.closeOldest, KeepAlive: c.KeepAlive.Config(),
	}
	if c.Trace != nil {
		confine.Trace = func(h sandbox.HostCall) { c.Trace(HostCall(h)) }
	}
	p.sandbox = sandbox.New(confine)
	p.prepared = newPreparedTexts(p.sandbox)
	p.pool = newPool(c.Limits.Instances, p.sandbox.Room, p.sandbox.Reclaim, (*sandbox.Instance).Close)
	p.closing, p.cancel = context.WithCancel(context.Background())
	p.compiling.Go(func() { p.compileOrFail(m, code) })
	p.users.Store(1)
	return &Plugin{loaded: p, name: p.name, logger: p.logger, tenant: p.sandbox.Own()}, nil
}

// Share returns a plugin with another name that uses the code and the instances of p, with the same
// grants and limits: for blocks of a configuration that run the same interpreter. What suspends a plugin, its
// log, its metrics, and the limit of held connections are of each one alone, and they take turns at the
// processors. The memory of the instances is that of p. Each must be closed; p must not have been.
func (p *Plugin) Share(name string) *Plugin {
	p.users.Add(1)
	logger := p.baseLogger.With("plugin", name)
	return &Plugin{loaded: p.loaded, isShare: true, name: name, logger: logger, tenant: p.sandbox.NewTenant(logger)}
}

// closeOldest closes the instance that was unused for longest, unless the plugin is being closed.
// It returns false if none is idle.
func (p *loaded) closeOldest() bool {
	if !p.inUse.TryRLock() {
		return false
	}
	defer p.inUse.RUnlock()
	return p.pool.closeOldest()
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

// check reads the module's manifest, checks the module, and returns it rewritten.
func (p *loaded) check(wasm []byte) (rewritten *module.Rewritten, err error) {
	if p.manifest, err = abi.ReadManifest(wasm); p.name == "" {
		p.name = p.manifest.Name
	}
	if err != nil {
		return nil, err
	}
	m, err := module.Parse(wasm)
	if err != nil {
		return nil, err
	}
	if err := m.Check(p.limits.Memory); err != nil {
		return nil, err
	}
	return m.Rewrite()
}

// compileOrFail compiles the module, and says how that has ended.
func (p *loaded) compileOrFail(m *module.Rewritten, code *codecache.Entry) {
	start := time.Now()
	err := p.compile(m, code)
	switch {
	case err != nil && p.closing.Err() != nil:
		err = errClosed
	case err != nil:
		p.logger.Error("plugin cannot be compiled", "error", err)
		err = fmt.Errorf("plugin %s: %w", p.name, err)
	}
	p.starts.compile.Store(int64(time.Since(start)))
	p.compiled.end(err)
}

// compile makes the module ready to run. The compiler reads untrusted input: if that makes
// it panic, compile returns an error.
func (p *loaded) compile(m *module.Rewritten, code *codecache.Entry) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("compile: panic: %v", r)
		}
	}()
	defer code.Close()
	if p.loadCached(m, code) {
		return nil
	}
	if p.compileConfig.InProcess || !compiler.Available {
		var written bytes.Buffer
		if err := p.sandbox.Compile(m, &written); err != nil {
			return err
		}
		p.store(code, &written)
		return nil
	}
	return p.compileInChild(m, code)
}

// loadCached loads the code of the module from the cache, if that has it.
func (p *loaded) loadCached(m *module.Rewritten, code *codecache.Entry) bool {
	cached := code.Code()
	if cached == nil {
		return false
	}
	defer cached.Close()
	err := p.sandbox.Load(m, cached)
	if err != nil && !errors.Is(err, sandbox.ErrNoCode) {
		code.Discard() // it is damaged
	}
	p.starts.cacheHit.Store(err == nil)
	return err == nil
}

// store stores the code of the module in the cache.
func (p *loaded) store(code *codecache.Entry, compiled io.Reader) {
	if err := code.Store(compiled); err != nil {
		p.logger.Warn("plugin cache cannot be written, compiled code is not kept", "error", err)
	}
}

// Pauses before something is tried again for which this machine lacks resources. Tests change them.
var (
	minRetryPause = time.Second
	maxRetryPause = time.Minute
)

// How long Wait waits for a compiler on a machine that lacks resources for it: for so many tries, or
// until one fails after this time.
const (
	maxWaitTries = 3
	maxWaitTime  = time.Minute
)

// compilerPause is how long the pause after a compiler is at least, as a multiple of how long that ran:
// a module that needs more memory than is left would take the processors on and on.
const compilerPause = 10

// compileInChild compiles the module in a child process, and loads its code. It tries again until
// the machine has the resources, or the plugin is closed: this process, which has no limits
// of its own, never compiles instead.
func (p *loaded) compileInChild(m *module.Rewritten, code *codecache.Entry) error {
	began, shortest := time.Now(), minRetryPause
	for tries := 1; ; tries++ {
		start := time.Now()
		err := p.tryChild(m, code)
		if !errors.Is(err, compiler.ErrUnavailable) {
			return err
		}
		pause := max(shortest, compilerPause*min(time.Since(start), maxRetryPause))
		shortest = min(2*shortest, maxRetryPause)
		p.logger.Warn("plugin cannot be compiled now, trying again", "pause", pause, "error", err)
		if tries >= maxWaitTries || time.Since(began) > maxWaitTime {
			p.compiled.lack(fmt.Errorf("plugin %s: %w", p.name, err))
		}
		if p.pause(pause); p.closing.Err() != nil {
			return p.closing.Err()
		}
	}
}

// pause returns after a time, or when the plugin is closed.
func (p *loaded) pause(d time.Duration) {
	select {
	case <-p.closing.Done():
	case <-time.After(d):
	}
}

// tryChild compiles the module in a child process, loads its code, and keeps it in the cache.
func (p *loaded) tryChild(m *module.Rewritten, code *codecache.Entry) error {
	compiled, err := compiler.Compile(p.closing, m.Wasm, compiler.Limits{Memory: p.compileConfig.Memory, CPU: p.compileConfig.Time})
	if err != nil {
		return err
	}
	defer compiled.Close()
	if err := p.sandbox.Load(m, compiled); err != nil { // the compiler has accepted the module
		return fmt.Errorf("%w: %w", compiler.ErrUnavailable, err)
	}
	if _, err := compiled.Seek(0, io.SeekStart); err == nil {
		p.store(code, compiled)
	}
	return nil
}

// Manifest returns the module's manifest. It must not be changed.
func (p *Plugin) Manifest() abi.Manifest { return p.manifest }

// Ready is closed when the module is compiled, or cannot be.
func (p *Plugin) Ready() <-chan struct{} { return p.compiled.ended }

// Wait returns when the module is compiled, with an error if it cannot be, or when
// ctx is done. If this machine lacks the resources three times, Wait returns that error, while the
// plugin goes on trying: Ready tells when it has succeeded.
func (p *Plugin) Wait(ctx context.Context) error {
	if err := p.compiled.wait(ctx); err != nil {
		return err
	}
	return p.state()
}

// state returns nil when attempts can be made, and the reason why not otherwise.
func (p *Plugin) state() error {
	err := p.compiled.state()
	if p.closed.Load() && !errors.Is(err, errCompiling) {
		return errClosed
	}
	return err
}

// Close cancels the compiler, the starts of instances and the checks of settings, and frees what the
// plugin uses after these and its attempts have ended. If others share the module, the last Close
// does that. Later attempts are Unknown. When ctx is done,
// Close returns early and the rest is freed in the background. Handlers must be closed separately.
func (p *Plugin) Close(ctx context.Context) error {
	if p.closed.Swap(true) || p.users.Add(-1) > 0 {
		return nil
	}
	p.cancel()
	done := make(chan error, 1)
	go func() {
		p.compiling.Wait()
		p.inUse.Lock() // never unlocked: no instance may be used after this
		p.pool.closeIdle()
		done <- p.sandbox.Close()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

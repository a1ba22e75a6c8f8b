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

// Plugin is a loaded module, created by Load or Share. It is safe for concurrent use by multiple
// goroutines.
type Plugin struct {
	*loaded
	isShare bool // created by Share

	name       string
	logger     *slog.Logger
	tenant     *sandbox.Tenant
	breaker    breaker
	counters   counters
	closed     atomic.Bool
	checkHangs atomic.Bool // the latest check of settings timed out
}

// loaded is a module with its instances. A Plugin and its shares have it in common.
type loaded struct {
	name          string
	manifest      abi.Manifest
	limits        Limits
	compileConfig Compile
	onTrap        probe.Outcome
	baseLogger    *slog.Logger
	logger        *slog.Logger
	configures    bool // the module exports sonde_configure
	targetOnly    bool // the plugin may connect to the target only

	sandbox  *sandbox.Sandbox
	pool     *pool
	compiled *compilation
	prepared *preparedTexts
	starts   startCounters

	users     atomic.Int64    // open plugins: the one from Load and its shares
	closing   context.Context // done when the last user is closed
	cancel    context.CancelFunc
	compiling sync.WaitGroup
	inUse     sync.RWMutex        // read-locked while an instance is in use or being started; the last Close locks it permanently
	checking  *semaphore.Weighted // one check of settings at a time: several hanging checks would get less than half a processor each
}

var (
	errCompiling = errors.New("plugin is being compiled")
	errClosed    = errors.New("plugin was unloaded")
)

// Load reads and validates a module, except for the types in its code, and starts compiling it in
// the background: see Wait. If the machine lacks the resources to compile, the compilation is
// retried until Close is called. An error about a field of c is a *probe.FieldError; other errors
// are about the module. Close releases the resources of the plugin.
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

// Share returns a plugin with another name that uses the code and the instances of p, with the same grants
// and limits. It is for several blocks of a configuration that run the same interpreter. Each share has its
// own suspensions, log, metrics, limit of held connections and turn on the processors. The memory of the
// instances is accounted to p. Each plugin must be closed separately; p must be open.
func (p *Plugin) Share(name string) *Plugin {
	p.users.Add(1)
	logger := p.baseLogger.With("plugin", name)
	return &Plugin{loaded: p.loaded, isShare: true, name: name, logger: logger, tenant: p.sandbox.NewTenant(logger)}
}

// closeOldest closes the instance that has been idle for longest. It returns false if no instance
// is idle or the plugin is being closed.
func (p *loaded) closeOldest() bool {
	if !p.inUse.TryRLock() {
		return false
	}
	defer p.inUse.RUnlock()
	return p.pool.closeOldest()
}

// environment returns the named variables of this process that are set, as NAME=value.
func environment(names []string) []string {
	var env []string
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// check reads the module's manifest, validates the module, and returns the rewritten module.
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

// compileOrFail compiles the module, and logs and records the result.
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

// compile makes the module ready to run. The compiler reads untrusted input: if it panics, compile
// returns an error.
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

// loadCached loads the code of the module from the cache. It returns false if the cache has no
// usable code.
func (p *loaded) loadCached(m *module.Rewritten, code *codecache.Entry) bool {
	cached := code.Code()
	if cached == nil {
		return false
	}
	defer cached.Close()
	err := p.sandbox.Load(m, cached)
	if err != nil && !errors.Is(err, sandbox.ErrNoCode) {
		code.Discard() // the cached code is damaged
	}
	p.starts.cacheHit.Store(err == nil)
	return err == nil
}

// store stores the code of the module in the cache.
func (p *loaded) store(code *codecache.Entry, compiled io.Reader) {
	if err := code.Store(compiled); err != nil {
		p.logger.Warn("plugin cache cannot be written: compiled code is not cached", "error", err)
	}
}

// The pauses before a compilation is retried after a shortage of resources. Tests change them.
var (
	minRetryPause = time.Second
	maxRetryPause = time.Minute
)

// Wait gives up on a machine that lacks resources for the compiler after maxWaitTries tries, or
// after the first try that fails when maxWaitTime has passed.
const (
	maxWaitTries = 3
	maxWaitTime  = time.Minute
)

// compilerPause is the minimum pause after a compiler run, as a multiple of the duration of that run:
// otherwise a module that needs more memory than is available would keep the processors busy.
const compilerPause = 10

// compileInChild compiles the module in a child process, and loads its code. It retries until the
// machine has the resources or the plugin is closed. This process never compiles instead, because
// the compiler would have no limits here.
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
		p.logger.Warn("plugin cannot be compiled now, retrying", "pause", pause, "error", err)
		if tries >= maxWaitTries || time.Since(began) > maxWaitTime {
			p.compiled.lack(fmt.Errorf("plugin %s: %w", p.name, err))
		}
		if p.pause(pause); p.closing.Err() != nil {
			return p.closing.Err()
		}
	}
}

// pause waits for d, or until the plugin is closed.
func (p *loaded) pause(d time.Duration) {
	select {
	case <-p.closing.Done():
	case <-time.After(d):
	}
}

// tryChild compiles the module in a child process, loads the code, and stores it in the cache.
func (p *loaded) tryChild(m *module.Rewritten, code *codecache.Entry) error {
	compiled, err := compiler.Compile(p.closing, m.Wasm, compiler.Limits{Memory: p.compileConfig.Memory, CPU: p.compileConfig.Time})
	if err != nil {
		return err
	}
	defer compiled.Close()
	if err := p.sandbox.Load(m, compiled); err != nil { // the compiler accepted the module, so the module is not at fault
		return fmt.Errorf("%w: %w", compiler.ErrUnavailable, err)
	}
	if _, err := compiled.Seek(0, io.SeekStart); err == nil {
		p.store(code, compiled)
	}
	return nil
}

// Manifest returns the module's manifest. It must not be changed.
func (p *Plugin) Manifest() abi.Manifest { return p.manifest }

// Ready returns a channel that is closed when compilation has succeeded or failed.
func (p *Plugin) Ready() <-chan struct{} { return p.compiled.ended }

// Wait waits until the module is compiled or ctx is done. It returns an error if the module cannot
// be compiled. If this machine lacks the resources in three tries, or in a try that fails after
// more than a minute, Wait returns that error while the plugin continues to retry: the channel from
// Ready is closed when a retry succeeds.
func (p *Plugin) Wait(ctx context.Context) error {
	if err := p.compiled.wait(ctx); err != nil {
		return err
	}
	return p.state()
}

// state returns nil if attempts can be made, or else an error with the cause.
func (p *Plugin) state() error {
	err := p.compiled.state()
	if p.closed.Load() && !errors.Is(err, errCompiling) {
		return errClosed
	}
	return err
}

// Close cancels the compiler, the starts of instances and the checks of settings. After these and
// the running attempts have finished, it frees the plugin's resources. If several plugins share the
// module, the last Close does all this. Later attempts are Unknown. When ctx is done, Close returns
// early and the rest is freed in the background. Handlers must be closed separately.
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

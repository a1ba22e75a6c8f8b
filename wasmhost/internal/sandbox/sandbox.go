// Package sandbox runs the instances of one plugin, and provides their host functions within grants
// and limits.
//
// It reports how a call ended; package wasmhost converts the report to the result of a probe.
//
// # What a host function can access
//
// A call consists of parts, each with its own state. A host function is a method of the part that it
// needs, and can access only the fields of that part. nativeFunctions and wasiFunctions list the host
// functions.
//
//	lifetime     the deadline of the call, and its stop
//	failures     errors of host calls, and the limit that was reached
//	cpu          fuel, and a slot to compute
//	memory       the guest's memory: arguments in it, and results
//	guestLog     the plugin's log
//	descriptors  the open connections, by number
//	streams      reads and writes of connections, and waits for them
//	network      new connections, lookups, TLS, and held connections
//
// An instance has a footprint, which cpu and memory modify.
//
// # Files
//
//	sandbox.go      Sandbox: a compiled plugin, and the data that its instances share
//	instance.go     Instance: start, call and reset; Report: the result of a call
//	footprint.go    the memory that an instance uses
//	stack.go        the stacks of calls, up to a limit
//	budget.go       the memory of the instances of all plugins together
//	call.go         one call: its parts, and its report
//	lifetime.go     the deadline of a call, and its stop
//	hosterror.go    failures of host calls; conversion of network errors for plugins
//	cpu.go          fuel and slots of a call
//	fuel.go         the amount of fuel that is granted at a time
//	slots.go        the calls that compute at the same time, and the queue for slots
//	tenant.go       Tenant: one of the blocks of a configuration that use the sandbox
//	state.go        State: the data that a probe keeps between attempts
//	host.go         linking host functions to the runtime; tracing
//	native.go       the functions of module sonde_v1
//	wasi.go         the functions of module wasi_snapshot_preview1
//	poll.go         WASI's poll_oneoff
//	memory.go       arguments and results in the guest's memory
//	dial.go         dial and resolve
//	tls.go          start_tls and conn_info
//	held.go         hold and held
//	lines.go        the key=value lines that some functions return
//	descriptors.go  the connections of a call
//	socket.go       one connection of a plugin
//	stream.go       reads, writes and waits on sockets
//	log.go          the plugin's log, with its limits
//	metric.go       the plugin's metrics
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sync/singleflight"

	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/compiler"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
	"github.com/sonde-probe/sonde/wasmhost/internal/image"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// Config has the grants, the limits and the environment of a plugin's instances.
type Config struct {
	Limits Limits
	Grants grant.Rules
	Env    []string // "NAME=value"
	Logger *slog.Logger
	Trace  func(HostCall) // may be nil

	KeepAlive net.KeepAliveConfig // of held connections, if Enable is set

	CloseOldest func() bool // closes the instance that is idle for longest, to free memory for other plugins; false if none is idle
}

// Limits has the fields of wasmhost.Limits, which documents them, so that one can be converted to
// the other.
type Limits struct {
	Memory      int64
	ModuleSize  int64
	Instances   int
	Held        int
	Connections int
	Dials       int
	BytesIn     int64
	BytesOut    int64
	HostCalls   int
	Fuel        int
	Log         int
	Metrics     int
	Start       time.Duration
}

// Sandbox is a compiled plugin with the data that its instances share.
type Sandbox struct {
	config Config
	clocks clocks

	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	cache    wazero.CompilationCache
	module   *module.Rewritten
	image    atomic.Pointer[image.Image] // nil until the first initialisation has finished

	initialising singleflight.Group // sets image

	account *account // in totalMemory
	own     *Tenant  // runs the initialisations
	network sharedNetwork
}

// New returns a sandbox. Load or Compile must have returned without an error before instances are
// started.
func New(c Config) *Sandbox {
	aSecondAgo := time.Now().Add(-time.Second) // because 0 means no time in WASI
	s := &Sandbox{config: c, account: totalMemory.open(c.CloseOldest), clocks: clocks{aSecondAgo}}
	s.own = s.NewTenant(c.Logger)
	return s
}

// ErrNoCode means that the compiled code of the module is missing. There may be code for another
// version of the runtime, or for another processor.
var ErrNoCode = errors.New("compiled code is missing")

// Load loads the code of a rewritten module, as written by package compiler. It never compiles.
func (s *Sandbox) Load(m *module.Rewritten, code io.Reader) error {
	// wazero 1.12 ignores the context while it loads code, but checks it before it compiles the
	// first function if it uses several goroutines. The cancelled context therefore prevents a
	// compilation.
	ctx, cancel := context.WithCancel(experimental.WithCompilationWorkers(context.Background(), 2))
	cancel()
	err := s.compile(ctx, m, code, nil)
	if errors.Is(err, context.Canceled) {
		return ErrNoCode
	}
	return err
}

// Compile compiles a rewritten module in this process, and writes its code for Load. It cannot be
// cancelled. It uses one goroutine: with several, a panic in wazero would crash the process, and
// probes need the processors too.
func (s *Sandbox) Compile(m *module.Rewritten, code io.Writer) error {
	return s.compile(context.Background(), m, nil, code)
}

func (s *Sandbox) compile(compiling context.Context, m *module.Rewritten, from io.Reader, to io.Writer) error {
	cache, err := compiler.NewCache(from, to)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, compiler.RuntimeConfig().WithCompilationCache(cache))
	err = s.link(ctx, r)
	var compiled wazero.CompiledModule
	if err == nil {
		compiled, err = r.CompileModule(compiling, m.Wasm)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compile: %w", err), closeRuntime(ctx, r, cache))
	}
	s.runtime, s.compiled, s.cache, s.module = r, compiled, cache, m
	m.Wasm = nil // the bytes are no longer needed
	return nil
}

func closeRuntime(ctx context.Context, r wazero.Runtime, cache wazero.CompilationCache) error {
	return errors.Join(r.Close(ctx), cache.Close(ctx))
}

// declaredMemory returns the initial memory size that the module declares, in bytes.
func (s *Sandbox) declaredMemory() int64 {
	return int64(s.compiled.ExportedMemories()[abi.ExportMemory].Min()) * module.PageSize
}

// memoryFor returns the size in bytes of an instance that starts from an image, or without an image
// if from is nil, including one connection. All of it is counted, although the instance may modify
// only a part.
func (s *Sandbox) memoryFor(from *image.Image) int64 {
	overhead := instanceOverhead + connSize + s.module.Overhead
	if from == nil {
		return overhead + s.declaredMemory()
	}
	return overhead + from.Size()
}

// initialMemory returns the size in bytes of an instance that starts now.
func (s *Sandbox) initialMemory() int64 { return s.memoryFor(s.image.Load()) }

// Room returns the number of further instances for which there is memory.
func (s *Sandbox) Room() int { return totalMemory.room(s.account, s.initialMemory()) }

// Reclaim closes idle instances of plugins that use more than their share of the memory, if this
// plugin lacks memory for an instance within its own share.
func (s *Sandbox) Reclaim() { totalMemory.reclaimInstance(s.account, s.initialMemory()) }

// Reserve counts memory that the host uses for the plugin. It returns false if not enough is left.
// Otherwise the caller must return the memory with Unreserve.
func (s *Sandbox) Reserve(bytes int64) bool { return totalMemory.reserveShared(s.account, bytes) }

// Unreserve returns memory that Reserve counted.
func (s *Sandbox) Unreserve(bytes int64) { totalMemory.use(s.account, -bytes, -bytes) }

// Close frees the compiled code and the image. All instances must have been closed.
func (s *Sandbox) Close() error {
	var err error
	if s.runtime != nil {
		err = closeRuntime(context.Background(), s.runtime, s.cache)
	}
	if i := s.image.Swap(nil); i != nil {
		totalMemory.use(s.account, -i.Size(), -i.Size())
		err = errors.Join(err, i.Close())
	}
	totalMemory.close(s.account)
	return err
}

// Memory returns the number of bytes that the plugin uses.
func (s *Sandbox) Memory() int64 { return totalMemory.usedBy(s.account) }

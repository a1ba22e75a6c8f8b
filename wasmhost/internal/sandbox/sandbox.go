// Package sandbox runs the instances of one plugin and gives them what they are granted
// of the outside world, within limits.
//
// It knows how a call ended, not what that means for a probe: package wasmhost makes
// results of it.
//
// # What a host function may touch
//
// A call has parts, each with a state of its own. A host function is a method of the part that it needs,
// and reaches only what that part names in its fields; nativeFunctions and wasiFunctions list them.
//
//	lifetime     when the call is over, and when it is stopped
//	failures     why host calls failed, and which limit was reached
//	cpu          fuel, and a slot to compute
//	memory       the guest's memory: arguments in it, and results
//	guestLog     the plugin's log
//	descriptors  the open connections, by number
//	streams      reads, writes and waits on these
//	network      new connections, lookups, TLS, and connections that are held
//
// An instance has a footprint, which cpu and memory change.
//
// # Files
//
//	sandbox.go      Sandbox: a compiled plugin, and what its instances share
//	instance.go     Instance: starting it, calling it, resetting it; Report: how a call ended
//	footprint.go    the memory that an instance uses
//	stack.go        the stacks of calls, up to a limit
//	budget.go       the memory of the instances of all plugins together
//	call.go         one call: its parts, and what it reports
//	lifetime.go     when a call is over, and when it is stopped
//	hosterror.go    failures, and what an error of the network means to a plugin
//	cpu.go          what a call computes with, and what it waits for
//	fuel.go         how long a call computes before the host is asked
//	slots.go        how many calls compute at the same time, and which is next
//	tenant.go       Tenant: one of the blocks of a configuration that use the sandbox
//	state.go        State: what a probe keeps from one attempt to the next
//	host.go         how the runtime reaches host functions; tracing
//	native.go       the functions of module sonde_v1
//	wasi.go         the functions of module wasi_snapshot_preview1
//	poll.go         WASI's poll_oneoff
//	memory.go       arguments and results in the guest's memory
//	dial.go         dial and resolve
//	tls.go          start_tls and conn_info
//	held.go         hold and held
//	lines.go        the lines of keys and values that some functions return
//	descriptors.go  the connections of a call
//	socket.go       a connection as a plugin sees it
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

// Config says what the instances of a plugin may do.
type Config struct {
	Limits Limits
	Grants grant.Rules
	Env    []string // "NAME=value"
	Logger *slog.Logger
	Trace  func(HostCall) // may be nil

	KeepAlive net.KeepAliveConfig // of held connections, if Enable is set

	CloseOldest func() bool // closes the instance that is idle for longest, whose memory other plugins need; false: none is idle
}

// Limits are documented at wasmhost.Limits, which converts into them.
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

// Sandbox is a plugin and what its instances share.
type Sandbox struct {
	config Config
	clocks clocks

	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	cache    wazero.CompilationCache
	module   *module.Rewritten
	image    atomic.Pointer[image.Image] // nil until an instance has initialised itself

	initialising singleflight.Group // by which image is set

	account *account // in totalMemory
	own     *Tenant  // of the starts of instances
	network sharedNetwork
}

// New returns a sandbox. Load or Compile must have returned without an error before instances are
// started.
func New(c Config) *Sandbox {
	aSecondAgo := time.Now().Add(-time.Second) // because 0 stands for no time in WASI
	s := &Sandbox{config: c, account: totalMemory.open(c.CloseOldest), clocks: clocks{aSecondAgo}}
	s.own = s.NewTenant(c.Logger)
	return s
}

// ErrNoCode says that there is no code of a module, but perhaps that of another version of the
// runtime, or for another processor.
var ErrNoCode = errors.New("compiled code is missing")

// Load loads the code of a module that was rewritten, as package compiler has written it,
// and never compiles.
func (s *Sandbox) Load(m *module.Rewritten, code io.Reader) error {
	// wazero 1.12 does not look at the context when it loads code. With it, and several goroutines,
	// it ends a compilation before the first function.
	ctx, cancel := context.WithCancel(experimental.WithCompilationWorkers(context.Background(), 2))
	cancel()
	err := s.compile(ctx, m, code, nil)
	if errors.Is(err, context.Canceled) {
		return ErrNoCode
	}
	return err
}

// Compile compiles a module that was rewritten, in this process, and writes its code for
// Load. It cannot be cancelled, and uses one goroutine, since with several wazero would let a panic
// end the process, and probes need the processors too.
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
	m.Wasm = nil // frees it
	return nil
}

func closeRuntime(ctx context.Context, r wazero.Runtime, cache wazero.CompilationCache) error {
	return errors.Join(r.Close(ctx), cache.Close(ctx))
}

// declaredMemory returns the size of memory in bytes that the module has at first.
func (s *Sandbox) declaredMemory() int64 {
	return int64(s.compiled.ExportedMemories()[abi.ExportMemory].Min()) * module.PageSize
}

// memoryFor returns how many bytes an instance uses when it starts from an image, or without
// one, with one connection. It may have changed only a part of them, but can change all.
func (s *Sandbox) memoryFor(from *image.Image) int64 {
	overhead := instanceOverhead + connSize + s.module.Overhead
	if from == nil {
		return overhead + s.declaredMemory()
	}
	return overhead + from.Size()
}

// initialMemory returns how many bytes an instance uses that starts now.
func (s *Sandbox) initialMemory() int64 { return s.memoryFor(s.image.Load()) }

// Room returns how many more instances there is memory for.
func (s *Sandbox) Room() int { return totalMemory.room(s.account, s.initialMemory()) }

// Reclaim closes idle instances of plugins that use more than their share of the memory, if
// this one lacks memory for an instance, which belongs to its own.
func (s *Sandbox) Reclaim() { totalMemory.reclaimInstance(s.account, s.initialMemory()) }

// Reserve counts memory that the host uses for the plugin, and returns false if there is none
// left. Unless it does, the caller returns the memory to Unreserve.
func (s *Sandbox) Reserve(bytes int64) bool { return totalMemory.reserveShared(s.account, bytes) }

// Unreserve returns memory that Reserve has counted.
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

// Memory returns how many bytes the sandbox uses.
func (s *Sandbox) Memory() int64 { return totalMemory.usedBy(s.account) }

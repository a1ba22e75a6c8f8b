package wasmhost

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/internal/bytesize"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// Config selects the module to load, and its grants and limits. The zero value of a field means its
// default.
type Config struct {
	Name string // the plugin's name in logs and errors; default: the name in its manifest

	// Module is the content of the module's file, which is not modified; required. It is executed:
	// unless its hash is compared with a known one, anyone who can write the file controls the code
	// that the engine runs.
	Module []byte

	Grant   Grant         `hcl:"grant,block" doc:"what the plugin may reach"`
	Limits  Limits        `hcl:"limits,block" doc:"how much the plugin may use"`
	OnTrap  probe.Outcome `hcl:"on_trap,optional" oneof:"unknown failure" doc:"outcome of an attempt in which the plugin crashes" default:"unknown"`
	Compile Compile       `hcl:"compile,block" doc:"bounds of the compilation of the module, which a child process does on Linux"`

	KeepAlive *KeepAlive `hcl:"keepalive,block" doc:"settings of the TCP keepalive packets over connections that the plugin holds between attempts. Without the block none are sent"`

	// CacheDir is a directory for compiled code, created with mode 0700. It must be owned by the
	// user of this process and inaccessible to others, because its content is executed. Default: no
	// cache.
	CacheDir string

	// CacheSize is the maximum size of CacheDir in bytes, for all plugins together. The least
	// recently used code is removed first. Default 1 GiB.
	CacheSize int64

	Logger *slog.Logger // default: no logging

	// Trace is called after each host call of the plugin, concurrently from all attempts; it is for
	// development. Default: no tracing.
	Trace func(HostCall)
}

// KeepAlive is the keepalive block.
type KeepAlive = dial.KeepAlive

// HostCall is one call of a host function by a plugin.
type HostCall struct {
	Target   string        // the target's name; empty while an instance starts
	Function string        // "sonde_v1.dial"
	Args     []uint64      // as on the stack: only the low half of an i32 is defined
	Result   int64         // the value returned to the plugin; 0 if the function returns nothing
	Detail   string        // description of the error; empty if there was none
	Took     time.Duration // including waiting time
}

// Grant lists the destinations, variables and names that a plugin may access. The zero value grants
// the probe's target only.
type Grant struct {
	// Dial lists the destinations that the plugin may connect to. Each entry is "target", which stands
	// for the probed target's own address and ports (its named ports, and the setting called port unless
	// that has the manifest's default), or a URL: a scheme (tcp, tls, udp or unix), a host (an IP
	// address, a CIDR block, a name or a pattern such as *.internal) and a port (a number, a range
	// 8000-8999, or *); for unix, a path or a pattern. A symbolic link must not lead outside the
	// pattern; a path without wildcards may be a symbolic link.
	//
	//	tcp://10.0.0.0/8:6379   tls://*.internal:6380   unix:///run/x/*.sock
	//
	// Link-local addresses, cloud metadata services and multicast need an entry with that exact
	// address. Loopback addresses need an entry with a loopback address or block, or with the exact
	// host name. Nil means "target"; an empty list grants nothing.
	Dial []string `hcl:"dial,optional" doc:"destinations that the plugin may connect to. Each is target, which stands for the address and the ports of the probed target, or a URL of a scheme (tcp, tls, udp, unix), a host (an IP address, a network, a name or a pattern such as *.internal) and a port (a number, a range such as 8000-8999, or *). An empty list permits none. Loopback and link-local addresses need an entry of their own" default:"[\"target\"]"`
	Env  []string `hcl:"env,optional" doc:"environment variables of the engine that the plugin sees" default:"none"`
	DNS  []string `hcl:"dns,optional" doc:"host names, or patterns such as *.internal, that the plugin may look up" default:"none"`
}

// targetOnly reports whether a plugin may connect to the target only.
func (g Grant) targetOnly() bool {
	return g.Dial == nil || len(g.Dial) > 0 && !slices.ContainsFunc(g.Dial, func(entry string) bool { return entry != grant.Target })
}

// Limits bounds the resources of a plugin. A zero field means its default.
type Limits struct {
	Memory      int64         `hcl:"memory,optional,nonzero,bytes" doc:"memory of each instance" default:"32MiB" min:"64KiB" max:"4194240KiB"`
	ModuleSize  int64         `hcl:"module_size,optional,nonzero,bytes" doc:"size of the module" default:"64MiB" min:"1B" max:"1GiB"`
	Instances   int           `hcl:"instances,optional,nonzero" doc:"concurrent instances, and thus attempts" default:"65536" min:"1" max:"65536"`
	Held        int           `hcl:"held,optional,nonzero" doc:"connections that are kept for later attempts of all probes" default:"1024" min:"1" max:"1048576"`
	Connections int           `hcl:"connections,optional,nonzero" doc:"open connections of an attempt" default:"8" min:"1" max:"65536"`
	Dials       int           `hcl:"dials,optional,nonzero" doc:"connections, lookups and TLS handshakes that an attempt may make" default:"16" min:"1" max:"65536"`
	BytesIn     int64         `hcl:"bytes_in,optional,nonzero,bytes" doc:"bytes that an attempt may read" default:"1MiB" min:"1B" max:"1024GiB"`
	BytesOut    int64         `hcl:"bytes_out,optional,nonzero,bytes" doc:"bytes that an attempt may write" default:"256KiB" min:"1B" max:"1024GiB"`
	HostCalls   int           `hcl:"host_calls,optional,nonzero" doc:"calls of host functions by an attempt" default:"100000" min:"1"`
	Fuel        int           `hcl:"fuel,optional,nonzero" doc:"computation of an attempt, in units of fuel; the default takes some ten seconds of processor time" default:"10000000000" min:"1"`
	Log         int           `hcl:"log,optional,nonzero,bytes" doc:"text that an attempt may log, with 64 bytes for each record; the rest is dropped" default:"4KiB" min:"1B" max:"1GiB"`
	Metrics     int           `hcl:"metrics,optional,nonzero" doc:"names of metrics that the plugin may define" default:"32" min:"1" max:"65536"`
	Start       time.Duration `hcl:"start,optional,nonzero" doc:"time that an instance may take to start, and a check of settings to end" default:"10s" min:"1ms" max:"1h"`
}

// Compile bounds the compilation of the module, in a child process on Linux.
type Compile struct {
	Memory    int64         `hcl:"memory,optional,nonzero,bytes" doc:"memory of the compiler; a control group may leave it less" default:"256MiB, and 32 bytes for each byte of the module" min:"64MiB" max:"64GiB"`
	Time      time.Duration `hcl:"time,optional,nonzero" doc:"processor time of the compiler, in whole seconds" default:"30s, and 8µs for each byte of the module" min:"1s" max:"1h"`
	InProcess bool          `hcl:"in_process,optional" doc:"lets the engine compile the module itself, where it cannot start a child process. The compiler has no limits then. On other systems than Linux it is always so" default:"false"`
}

// DefaultMemory is the default of Limits.Memory.
const DefaultMemory = 32 << 20

// DefaultModuleSize is the default of Limits.ModuleSize.
const DefaultModuleSize = 64 << 20

// DefaultTotalMemory is the memory limit for all instances together until SetTotalMemory is called.
const DefaultTotalMemory = sandbox.DefaultTotalMemory

// SetTotalMemory sets the maximum memory, in bytes, that the instances of all plugins in this
// process may use together. Half of it is divided equally among the plugins, and the other half is
// used on demand; one instance of each plugin may always start. An attempt for which there is no
// memory for an instance waits until another attempt finishes, and is Unknown with ReasonBusy after
// half of its timeout. An attempt whose instance is refused growth is Unknown with
// probe.ReasonResources. Lowering the limit does not affect running instances. SetTotalMemory may
// be called at any time.
func SetTotalMemory(bytes int64) { sandbox.SetTotalMemory(bytes) }

// complete sets zero fields to their defaults, and returns an error if another field is invalid.
func (l *Limits) complete() error {
	if err := limits.Check(l, "limits.").Err(); err != nil {
		return err
	}
	*l = Limits{
		Memory: cmp.Or(l.Memory, DefaultMemory), ModuleSize: cmp.Or(l.ModuleSize, DefaultModuleSize), Instances: cmp.Or(l.Instances, 1<<16),
		Held: cmp.Or(l.Held, 1024), Connections: cmp.Or(l.Connections, 8), Dials: cmp.Or(l.Dials, 16),
		BytesIn: cmp.Or(l.BytesIn, 1<<20), BytesOut: cmp.Or(l.BytesOut, 256<<10), HostCalls: cmp.Or(l.HostCalls, 100_000),
		Fuel: cmp.Or(l.Fuel, min(1e10, math.MaxInt)), Log: cmp.Or(l.Log, 4<<10), Metrics: cmp.Or(l.Metrics, 32), Start: cmp.Or(l.Start, 10*time.Second),
	}
	return nil
}

// complete sets unset fields to their defaults, and returns an error if another field is invalid.
func (c *Config) complete() error {
	c.CacheSize = cmp.Or(c.CacheSize, 1<<30)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Module == nil:
		return probe.FieldErrorf("source", "must be set")
	case c.OnTrap != probe.Unknown && c.OnTrap != probe.Failure:
		return probe.FieldErrorf("on_trap", "must be unknown or failure")
	case c.CacheSize < 0:
		return probe.FieldErrorf("cache_size", "must not be negative")
	}
	if err := errors.Join(limits.Check(c.Compile, "compile.").Err(), c.KeepAlive.Check()); err != nil {
		return err
	}
	if err := c.Limits.complete(); err != nil {
		return err
	}
	if int64(len(c.Module)) > c.Limits.ModuleSize {
		return probe.FieldErrorf("source", "is larger than limits.module_size, %v", bytesize.Size(c.Limits.ModuleSize))
	}
	return nil
}

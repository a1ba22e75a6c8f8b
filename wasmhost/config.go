package wasmhost

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// Config says which module to load and what it may do. The zero value of a field
// stands for its default.
type Config struct {
	Name string // what the plugin is called in logs and errors; default: its manifest's name

	// Path is the module's file, and Module its bytes, which are not written.
	// Exactly one is set.
	Path   string
	Module []byte

	// SHA256 is what the module's bytes must have, as 64 hexadecimal digits. It is
	// required unless AllowUnpinned is set: whoever can write the file could
	// otherwise change what the engine runs.
	SHA256        string
	AllowUnpinned bool

	Grant  Grant
	Limits Limits

	// OnTrap says what an attempt is that the plugin did not end: probe.Unknown
	// (the default) or probe.Failure.
	OnTrap probe.Outcome

	// CacheDir is a directory for compiled code, which is made with mode 0700. It
	// must belong to the user that the process runs as, nobody else may be able to
	// read or write it, and those above it must belong to that user or root and not
	// be writable by everybody: its content is run. Default: nothing is kept.
	CacheDir string

	// CacheSize bounds what CacheDir holds of all plugins, in bytes: the ones that
	// were used longest ago go first. Default 1 GiB.
	CacheSize int64

	Logger *slog.Logger // default: nothing is logged

	// Trace is told of each call of the host by the plugin, for development. It is
	// called from the goroutines of all attempts at once. Default: nobody is told.
	Trace func(HostCall)
}

// HostCall is one call of a host function by a plugin.
type HostCall struct {
	Target   string        // the target's name; empty while an instance starts
	Function string        // "sonde_v1.dial"
	Args     []uint64      // as on the stack: of an i32, only the low half is defined
	Result   int64         // what the plugin received; 0 if the function returns nothing
	Detail   string        // what went wrong; empty if nothing did
	Took     time.Duration // including the time that was waited
}

// trace returns Trace for the sandbox.
func (c Config) trace() func(sandbox.HostCall) {
	if c.Trace == nil {
		return nil
	}
	return func(h sandbox.HostCall) { c.Trace(HostCall(h)) }
}

// Grant is what a plugin may reach. The zero value is "target" alone.
type Grant struct {
	// Dial is where it may connect to. Each entry is "target", which is the
	// probed target's own address and ports (those it names, and that of a
	// setting called port), or a URL: a scheme (tcp, tls, udp or unix), a host (an
	// IP address, a CIDR block, a name or a pattern such as *.internal) and a port
	// (a number, a range 8000-8999, or *); for unix, a path or a pattern.
	//
	//	tcp://10.0.0.0/8:6379   tls://*.internal:6380   unix:///run/x/*.sock
	//
	// Link-local addresses, among them those of the clouds' metadata services,
	// and multicast are only reached by an entry with that very address, and this
	// machine's loopback addresses by one that is about them. Nil stands for
	// "target"; an empty list for nothing.
	Dial []string

	// Env are names of environment variables of this process that the plugin
	// sees. Default: none.
	Env []string

	// DNS are host names, or patterns such as *.internal, that it may look up, to
	// see their addresses or to connect to what Dial allows by address.
	// Default: none.
	DNS []string
}

// Limits are what a plugin may use. Limits on an attempt count from its start.
type Limits struct {
	Memory      int64         // bytes of an instance's memory; default 32 MiB, from 64 KiB to 4 GiB
	ModuleSize  int64         // bytes of the module; default 64 MiB
	Instances   int           // instances, and so attempts, at once; default 64
	Held        int           // connections held for later attempts, of all probes; default 1024
	Connections int           // open connections of an attempt; default 8
	Dials       int           // dials and lookups of an attempt; default 16
	BytesIn     int64         // bytes read in an attempt; default 1 MiB
	BytesOut    int64         // bytes written in an attempt; default 256 KiB
	HostCalls   int           // calls of the host in an attempt; default 100000
	Log         int           // bytes logged in an attempt, the rest is dropped; default 4 KiB
	Metrics     int           // names of metrics; default 32
	Start       time.Duration // for an instance to start, and for checking settings; default 10s
}

// The defaults of Limits.
const (
	DefaultMemory      = 32 << 20
	DefaultModuleSize  = 64 << 20
	DefaultInstances   = 64
	DefaultHeld        = 1024
	DefaultConnections = 8
	DefaultDials       = 16
	DefaultBytesIn     = 1 << 20
	DefaultBytesOut    = 256 << 10
	DefaultHostCalls   = 100000
	DefaultLog         = 4 << 10
	DefaultMetrics     = 32
	DefaultStart       = 10 * time.Second
)

// DefaultCacheSize is the default of Config.CacheSize.
const DefaultCacheSize = 1 << 30

// Bounds of Limits that are not bounded by being a number alone.
const (
	maxMemory    = 4<<30 - module.PageSize
	maxModule    = 1 << 30
	maxInstances = 1 << 16
)

func (l Limits) withDefaults() Limits {
	l.Memory = cmp.Or(l.Memory, DefaultMemory)
	l.ModuleSize = cmp.Or(l.ModuleSize, DefaultModuleSize)
	l.Instances = cmp.Or(l.Instances, DefaultInstances)
	l.Held = cmp.Or(l.Held, DefaultHeld)
	l.Connections = cmp.Or(l.Connections, DefaultConnections)
	l.Dials = cmp.Or(l.Dials, DefaultDials)
	l.BytesIn = cmp.Or(l.BytesIn, DefaultBytesIn)
	l.BytesOut = cmp.Or(l.BytesOut, DefaultBytesOut)
	l.HostCalls = cmp.Or(l.HostCalls, DefaultHostCalls)
	l.Log = cmp.Or(l.Log, DefaultLog)
	l.Metrics = cmp.Or(l.Metrics, DefaultMetrics)
	l.Start = cmp.Or(l.Start, DefaultStart)
	return l
}

func (l Limits) check() error {
	for _, limit := range []struct {
		field             string
		value, least, max int64
	}{
		{"memory", l.Memory, module.PageSize, maxMemory},
		{"module_size", l.ModuleSize, 1, maxModule},
		{"instances", int64(l.Instances), 1, maxInstances},
		{"held", int64(l.Held), 1, 1 << 20},
		{"connections", int64(l.Connections), 1, 1 << 16},
		{"dials", int64(l.Dials), 1, 1 << 16},
		{"bytes_in", l.BytesIn, 1, 1 << 40},
		{"bytes_out", l.BytesOut, 1, 1 << 40},
		{"host_calls", int64(l.HostCalls), 1, 1 << 40},
		{"log", int64(l.Log), 1, 1 << 30},
		{"metrics", int64(l.Metrics), 1, 1 << 16},
		{"start", int64(l.Start), int64(time.Millisecond), int64(time.Hour)},
	} {
		if limit.value < limit.least || limit.value > limit.max {
			return field("limits."+limit.field, "is %d, it must be from %d to %d", limit.value, limit.least, limit.max)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	c.CacheSize = cmp.Or(c.CacheSize, DefaultCacheSize)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) check() error {
	switch {
	case (c.Path == "") == (c.Module == nil):
		return field("source", "must be set")
	case c.SHA256 == "" && !c.AllowUnpinned:
		return field("sha256", "must be set, unless allow_unpinned is true")
	case c.OnTrap != probe.Unknown && c.OnTrap != probe.Failure:
		return field("on_trap", "must be unknown or failure")
	case c.CacheSize < 0:
		return field("cache_size", "must not be negative")
	}
	return c.Limits.check()
}

// read returns the module's bytes once their length and hash are right.
func (c Config) read() ([]byte, error) {
	wasm, err := c.Module, error(nil)
	if c.Path != "" {
		wasm, err = files.ReadRegular(c.Path, c.Limits.ModuleSize)
	}
	switch {
	case errors.Is(err, files.ErrTooLarge), int64(len(wasm)) > c.Limits.ModuleSize:
		return nil, field("source", "is larger than the %d bytes that limits.module_size allows", c.Limits.ModuleSize)
	case err != nil:
		return nil, field("source", "cannot be read: %v", err)
	}
	sum := sha256.Sum256(wasm)
	want, err := hex.DecodeString(c.SHA256)
	if c.SHA256 != "" && (err != nil || len(want) != len(sum)) {
		return nil, field("sha256", "must be %d hexadecimal digits", 2*len(sum))
	}
	if c.SHA256 != "" && [sha256.Size]byte(want) != sum {
		return nil, field("sha256", "does not match the module, whose SHA-256 is %x", sum)
	}
	return wasm, nil
}

func field(name, format string, a ...any) error {
	return &probe.FieldError{Field: name, Problem: fmt.Sprintf(format, a...)}
}

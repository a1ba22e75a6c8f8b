package abi

import "time"

// Version is the version that this package describes.
const Version = 1

// The names of modules, exports and the custom section.
const (
	HostModule = "sonde_v1"
	WASIModule = "wasi_snapshot_preview1"

	ExportMarker     = "sonde_abi_v1"
	ExportMemory     = "memory"
	ExportRun        = "sonde_run"
	ExportConfigure  = "sonde_configure"
	ExportInitialize = "_initialize"

	manifestSection = "sonde.plugin"
)

// Grace is how long after the attempt's deadline a call may continue, so that the plugin
// can report what it was waiting for.
const Grace = 100 * time.Millisecond

// The kinds of input.
const (
	// InputSettings is the settings of the probe's handler block as one JSON object. It
	// has every setting that was given or has a default, by name. Durations are whole
	// numbers of nanoseconds, lists are arrays, maps and blocks are objects. Plugins must
	// ignore unknown settings.
	InputSettings = 1

	// InputTarget is the probed target, as lines. A line is a key, =, and a value in
	// which a backslash is written as \\, a line feed as \n and a carriage return as \r.
	// Plugins must ignore unknown keys.
	//
	//	name=shop/web         always present
	//	address=10.0.0.7      IP address or host name; absent if the target has none
	//	port=8080 http        once for each named port: number, space, name
	//	revision=7f3a…        of the settings, in hexadecimal; differs if the settings differ
	//
	// The revision lets a plugin recognize state that is from other settings.
	InputTarget = 2

	// InputState is the OutputState of the same probe's previous attempt; empty for the
	// first one, and after a restart.
	InputState = 3

	// InputError describes the host call that failed last, as lines like those of
	// InputTarget: a reason (a stable code such as "tcp.refused") and a detail (a
	// sentence). Empty when none has failed.
	InputError = 4

	// InputPrepared is, in sonde_run, the OutputPrepared of sonde_configure for the same
	// settings. Empty if there was none, or if the host has no memory for it: then the plugin
	// prepares in the attempt what it needs.
	InputPrepared = 5
)

// The kinds of output.
const (
	OutputDetail = 1 // a text for people; cut at MaxDetail bytes
	OutputReason = 2 // a stable code such as "redis.loading": see CheckReason
	OutputState  = 3 // at most MaxState bytes for the probe's next attempt; ignored if the call does not return
	OutputField  = 4 // in sonde_configure: the wrong setting, such as "tls.server_name"

	// OutputPrepared is, in sonde_configure, what was computed from the settings, in at most
	// MaxPrepared bytes of any kind: see InputPrepared. In another call it is -ENOTCAPABLE.
	OutputPrepared = 5
)

// The levels of log and log_level.
const (
	LogDebug = 1
	LogInfo  = 2
	LogWarn  = 3
	LogError = 4
)

// The kinds of metrics.
const (
	MetricGauge   = 1 // the value replaces the previous one
	MetricCounter = 2 // the value, 0 or more, is added

	// MetricAttempt is a number about this attempt only. While nobody has asked for it,
	// -ENOTCAPABLE is returned, and the plugin need not tell further ones in this attempt. Earlier
	// hosts return -ENOTSUP.
	MetricAttempt = 3
)

// The clocks. WASI's clock_time_get has the same numbers.
const (
	ClockReal      = 0
	ClockMonotonic = 1
)

// The flags of dial and held.
const (
	FlagNonblock = 1 // WASI calls return EAGAIN instead of waiting; read and write of sonde_v1 wait nevertheless
)

// The properties of conn_info. A property without a value is empty.
const (
	InfoRemote      = 1 // the peer's address as "10.0.0.7:8080", or a path
	InfoLocal       = 2 // the local address
	InfoALPN        = 3 // the protocol negotiated by TLS, "h2"
	InfoTLS         = 4 // the TLS version, "1.3"
	InfoCertificate = 5 // of the peer, as lines like those of InputTarget: sha256 (hexadecimal), not_before, not_after (seconds since 1970), subject, issuer, dns (once for each name)
)

// The operations that a deadline is for; they may be combined.
const (
	DeadlineRead  = 1
	DeadlineWrite = 2
)

// FirstFD is the lowest descriptor of a connection. 0 to 2 are the standard descriptors;
// those between are unused, for libraries that expect low ones to be files.
const FirstFD = 1000

// Limits in bytes. They are part of the contract: within a version they may grow but not
// shrink. The operator limits memory, time and traffic of a plugin.
const (
	MaxDetail     = 4 << 10   // of OutputDetail
	MaxReason     = 63        // of OutputReason
	MaxState      = 4 << 10   // of OutputState
	MaxField      = 255       // of OutputField
	MaxPrepared   = 256 << 10 // of OutputPrepared
	MaxLog        = 4 << 10   // of one log record; the rest is cut
	MaxMetricName = 63
	MaxAddress    = 512 // of dial's address and resolve's name
	MaxOptions    = 64 << 10
	MaxKey        = 63      // of a held connection
	MaxRandom     = 1 << 16 // of one call of random, and of WASI's random_get
)

// CheckReason reports whether s is valid as OutputReason: a layer and a cause, both of
// letters a-z, digits and underscores, joined by a dot. The layers plugin, engine,
// handler, target and restart are reserved for the host.
func CheckReason(s string) bool {
	dot := -1
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.' && dot < 0:
			dot = i
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
		default:
			return false
		}
	}
	if dot <= 0 || dot == len(s)-1 || len(s) > MaxReason {
		return false
	}
	switch s[:dot] {
	case "plugin", "engine", "handler", "target", "restart":
		return false
	}
	return true
}

// Function is the type of a host function: a letter for each parameter and result, i for
// i32, l for i64 and d for f64.
type Function struct {
	Name    string
	Params  string
	Results string
}

// Functions returns the functions of the module sonde_v1.
func Functions() []Function {
	return []Function{
		{"input", "iii", "i"},
		{"output", "iii", "i"},
		{"log", "iii", "i"},
		{"log_level", "", "i"},
		{"metric", "iiid", "i"},
		{"clock", "i", "l"},
		{"remaining", "", "l"},
		{"random", "ii", "i"},
		{"resolve", "iiii", "i"},
		{"dial", "iiiiiiii", "i"},
		{"start_tls", "iii", "i"},
		{"conn_info", "iiii", "i"},
		{"deadline", "iil", "i"},
		{"read", "iii", "i"},
		{"write", "iii", "i"},
		{"close", "i", "i"},
		{"hold", "iii", "i"},
		{"held", "iii", "i"},
	}
}

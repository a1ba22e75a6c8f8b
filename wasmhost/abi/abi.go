package abi

import "time"

// Version is the version of the contract that this package describes.
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

// Grace is the time after the attempt's deadline for which a call may continue, so that the plugin
// can report what it was waiting for.
const Grace = 100 * time.Millisecond

// The kinds of input.
const (
	// InputSettings is the settings of the probe's handler block as one JSON object. Its keys are
	// the names of all settings that were given or have a default. Durations are whole numbers of
	// nanoseconds, lists are arrays, maps and blocks are objects. Plugins must ignore unknown
	// settings.
	InputSettings = 1

	// InputTarget is the probed target, as lines. A line is a key, =, and a value in
	// which a backslash is written as \\, a line feed as \n and a carriage return as \r.
	// Plugins must ignore unknown keys.
	//
	//	name=shop/web         always present
	//	address=10.0.0.7      IP address or host name; absent if the target has none
	//	port=8080 http        once for each named port: number, space, name
	//	revision=7f3a…        hash of the settings, in hexadecimal
	//
	// The revision lets a plugin detect state that was written under other settings.
	InputTarget = 2

	// InputState is the OutputState of the probe's previous attempt. It is empty for the first
	// attempt, and after a restart.
	InputState = 3

	// InputError describes the last failed host call, as lines like those of InputTarget: a reason
	// (a stable code such as "tcp.refused") and a detail (a sentence). It is empty if no host call
	// has failed.
	InputError = 4

	// InputPrepared is, in sonde_run, the OutputPrepared of sonde_configure for the same settings.
	// It is empty if there was no such output, or if the host lacks the memory for it: then the
	// plugin must prepare the data itself, in the attempt.
	InputPrepared = 5
)

// The kinds of output.
const (
	OutputDetail = 1 // a text for people; cut at MaxDetail bytes
	OutputReason = 2 // a stable code such as "redis.loading": see CheckReason
	OutputState  = 3 // at most MaxState bytes for the probe's next attempt; ignored if the call does not return
	OutputField  = 4 // in sonde_configure: the wrong setting, such as "tls.server_name"

	// OutputPrepared is data that sonde_configure computes from the settings, at most MaxPrepared
	// arbitrary bytes: see InputPrepared. In any other call it returns -ENOTCAPABLE.
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

	// MetricAttempt is a number about this attempt only. If nothing uses such numbers, metric
	// returns -ENOTCAPABLE, and the plugin need not report more of them in this attempt. Earlier
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
	InfoCertificate = 5 // the peer's certificate, as lines like those of InputTarget: sha256 (hexadecimal), not_before, not_after (seconds since 1970), subject, issuer, dns (one line per name)
)

// The operations to which a deadline applies; they may be combined.
const (
	DeadlineRead  = 1
	DeadlineWrite = 2
)

// FirstFD is the lowest descriptor of a connection. Descriptors 0 to 2 are the standard ones. Those
// in between are unused, because some libraries expect low descriptors to be files.
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

// CheckReason reports whether s is valid as OutputReason: a layer and a cause, joined by a dot.
// Both consist of letters a-z, digits and underscores. The layers plugin, engine, handler, target
// and restart are reserved for the host.
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

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

	ManifestSection = "sonde.plugin"
)

// Outcome is what sonde_run returns. Any other number is a mistake of the plugin's
// and makes the attempt Unknown.
type Outcome int32

// The outcomes. The numbers are those of probe.Outcome.
const (
	Unknown Outcome = 0 // the attempt could not be made, through no fault of the target
	Success Outcome = 1
	Warning Outcome = 2 // counts as Success; OutputDetail says what to look at
	Failure Outcome = 3
)

// Grace is how long after the attempt's deadline a call may go on, so that the
// plugin can say what it was waiting for.
const Grace = 100 * time.Millisecond

// The kinds of input.
const (
	// InputSettings is the settings of the probe's handler block as one JSON
	// object. It has every setting that was given or has a default, by name.
	// Durations are whole numbers of nanoseconds, lists are arrays, maps and
	// blocks are objects. A setting that the plugin does not know is to be ignored.
	InputSettings = 1

	// InputTarget is what is probed, as lines. A line is a key, =, and a value in
	// which a backslash is written as \\, a line feed as \n and a carriage return
	// as \r. Keys that the plugin does not know are to be skipped.
	//
	//	name=shop/web         always there
	//	address=10.0.0.7      IP address or host name; missing when it has none
	//	port=8080 http        once for each named port: number, space, name
	//	revision=7f3a…        of the settings: hexadecimal digits, others for other settings
	//
	// The revision lets an instance keep settings that it has decoded: JSON is
	// slow to read once for each attempt.
	InputTarget = 2

	// InputState is what the last attempt of the same probe gave as OutputState;
	// empty for the first one, and after a restart.
	InputState = 3

	// InputError is more about the call that failed last, as lines like those of
	// InputTarget: a reason (a stable code, as "tcp.refused") and a detail (a
	// sentence). Empty when none has failed.
	InputError = 4
)

// The kinds of output.
const (
	OutputDetail = 1 // a text for a person; what is beyond MaxDetail bytes is cut
	OutputReason = 2 // a stable code such as "redis.loading": see CheckReason
	OutputState  = 3 // at most MaxState bytes for the probe's next attempt; kept only if the call returns
	OutputField  = 4 // in sonde_configure: the setting at fault, as "tls.server_name"
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
	MetricGauge   = 1 // the value replaces the last one
	MetricCounter = 2 // the value, 0 or more, is added
)

// The clocks. WASI's clock_time_get has the same numbers.
const (
	ClockReal      = 0
	ClockMonotonic = 1
)

// The flags of dial and held.
const (
	FlagNonblock = 1 // WASI calls answer EAGAIN instead of waiting; read and write of sonde_v1 wait all the same
)

// What conn_info can tell. An answer that is not known is empty.
const (
	InfoRemote      = 1 // the peer's address as "10.0.0.7:8080", or a path
	InfoLocal       = 2 // this side's
	InfoALPN        = 3 // the protocol that TLS agreed on, "h2"
	InfoTLS         = 4 // the version of TLS, "1.3"
	InfoCertificate = 5 // of the peer, as lines like those of InputTarget: sha256 (hexadecimal), not_before, not_after (seconds since 1970), subject, issuer, dns (once for each name)
)

// Which operations deadline is for; they may be added up.
const (
	DeadlineRead  = 1
	DeadlineWrite = 2
)

// FirstFD is the least descriptor of a connection. 0 to 2 are as everywhere; those
// between are left to libraries that count on small ones being files.
const FirstFD = 1000

// Bounds, in bytes. They are part of the contract: they may grow within a version,
// never shrink. How much memory, time and traffic a plugin may use is up to its
// operator.
const (
	MaxDetail     = 4 << 10 // of OutputDetail
	MaxReason     = 63      // of OutputReason
	MaxState      = 4 << 10 // of OutputState
	MaxField      = 255     // of OutputField
	MaxLog        = 4 << 10 // of one log record; the rest is cut
	MaxMetricName = 63
	MaxAddress    = 512 // of dial's address and resolve's name
	MaxOptions    = 64 << 10
	MaxKey        = 63      // of a held connection
	MaxRandom     = 1 << 16 // of one call of random, and of WASI's random_get
)

// CheckReason reports whether s is fit for OutputReason: a layer and a cause, both
// of letters a-z, digits and underscores, joined by a dot. The layers plugin,
// engine, handler, target and restart are the host's own.
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

// Function is the type of a function that a host offers: a letter for each
// parameter and result, i for i32, l for i64 and d for f64.
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

package restart

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// StopSettings determine how an instance is asked to exit.
type StopSettings struct {
	GracePeriod time.Duration // time until it is killed
	Signal      StopSignal    // 0 for SIGTERM
	PreStop     *PreStop      // nil for nothing
}

// StopSignal is the signal that asks an instance to exit. Its text form is its name, with or without SIG: "SIGINT",
// "QUIT".
type StopSignal syscall.Signal

// DefaultStopSignal is the default of Unit.StopSignal.
const DefaultStopSignal = StopSignal(syscall.SIGTERM)

var (
	// signals maps names without SIG to signals; signal_unix.go adds the signals that not every system has.
	signals = map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ABRT": syscall.SIGABRT, "KILL": syscall.SIGKILL,
		"PIPE": syscall.SIGPIPE, "ALRM": syscall.SIGALRM, "TERM": syscall.SIGTERM,
	}

	// noStopSignals are the signals in the map above that do not terminate a process.
	noStopSignals []syscall.Signal
)

// String returns the name of the signal, such as "SIGINT".
func (s StopSignal) String() string {
	for name, signal := range signals {
		if signal == syscall.Signal(s) {
			return "SIG" + name
		}
	}
	return strconv.Itoa(int(s))
}

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (s StopSignal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. An error is a *probe.FieldError.
func (s *StopSignal) UnmarshalText(b []byte) error {
	signal, known := signalNamed(string(b))
	if !known {
		problem := "is %q; write the name of a signal, such as SIGINT or SIGQUIT"
		if meant, ok := signalNamed(strings.ToUpper(string(b))); ok {
			problem = "is %q; write " + StopSignal(meant).String()
		}
		return probe.FieldErrorf("stop_signal", problem, b)
	}
	*s = StopSignal(signal)
	return s.check()
}

// signalNamed returns the signal with the given name, with or without SIG.
func signalNamed(name string) (s syscall.Signal, known bool) {
	s, known = signals[strings.TrimPrefix(name, "SIG")]
	return s, known
}

// check returns a *probe.FieldError if the signal does not make a process exit, or nil. The zero signal is valid.
func (s StopSignal) check() error {
	if s == 0 {
		return nil
	}
	if _, known := signalNamed(s.String()); !known {
		return probe.FieldErrorf("stop_signal", "is %d, which is not a signal", int(s))
	}
	if slices.Contains(noStopSignals, syscall.Signal(s)) {
		return probe.FieldErrorf("stop_signal", "is %v, which does not make a process exit; use SIGTERM, SIGINT or SIGQUIT", s)
	}
	return nil
}

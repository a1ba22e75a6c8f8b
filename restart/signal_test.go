package restart

import (
	"strings"
	"syscall"
	"testing"
)

func TestStopSignalsAreReadByName(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"SIGINT": syscall.SIGINT, "INT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT, "WINCH": syscall.SIGWINCH, "SIGKILL": syscall.SIGKILL,
	} {
		var s StopSignal
		if err := s.UnmarshalText([]byte(text)); err != nil || syscall.Signal(s) != want {
			t.Errorf("%s is read as %v, %v", text, s, err)
		}
		if got := s.String(); got != "SIG"+strings.TrimPrefix(text, "SIG") {
			t.Errorf("%s is written %s", text, got)
		}
	}
}

func TestWhatIsNoStopSignalIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "write the name of a signal", "SIG": "write the name of a signal", "2": "write the name of a signal",
		"int": "write SIGINT", "sigquit": "write SIGQUIT", "SIGSTOP": "does not make a process exit", "CHLD": "does not make a process exit",
	} {
		var s StopSignal
		if err := s.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want an error with %q", text, err, want)
		}
	}
	for _, s := range []StopSignal{-1, 1000, StopSignal(syscall.SIGCONT)} {
		if (Unit{StopSignal: s}).Check() == nil {
			t.Errorf("Check accepts the signal %d", int(s))
		}
	}
}

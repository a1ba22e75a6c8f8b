//go:build unix

package restart

import (
	"maps"
	"slices"
	"syscall"
)

func init() {
	maps.Copy(signals, map[string]syscall.Signal{
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH, "XCPU": syscall.SIGXCPU, "VTALRM": syscall.SIGVTALRM,
		"PROF": syscall.SIGPROF, "IO": syscall.SIGIO,
	})
	none := map[string]syscall.Signal{
		"STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP, "TTIN": syscall.SIGTTIN, "TTOU": syscall.SIGTTOU, "CONT": syscall.SIGCONT,
		"CHLD": syscall.SIGCHLD, "URG": syscall.SIGURG,
	}
	maps.Copy(signals, none)
	noStopSignals = slices.Collect(maps.Values(none))
}

package dialtest

import (
	"maps"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// maxErrno is the highest error number of Linux.
const maxErrno = 133

// OwnErrors returns the read errors that package dial blames on this machine, by error number.
func OwnErrors(t testing.TB) map[syscall.Errno]error {
	t.Helper()
	own := map[syscall.Errno]error{}
	for number := syscall.Errno(1); number <= maxErrno; number++ {
		own[number] = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", number)}
	}
	maps.DeleteFunc(own, func(_ syscall.Errno, err error) bool {
		return dial.Classify(t.Context(), dial.Transferring, err).Outcome != probe.Unknown
	})
	if len(own) < 5 {
		t.Errorf("only %d error numbers are this machine's", len(own))
	}
	return own
}

// WantUnknown checks the results of attempts that an error of this machine has ended at several places.
func WantUnknown(t testing.TB, number syscall.Errno, results map[string]probe.Result) {
	t.Helper()
	for where, got := range results {
		if got.Outcome != probe.Unknown {
			t.Errorf("%v at the %s: got %+v", number, where, got)
		}
	}
}

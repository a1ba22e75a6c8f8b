package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// The built-in handlers convert the same errors to results with dial.Result.
func TestPluginsGetTheReasonOfEveryErrorNumber(t *testing.T) {
	for stage, op := range map[dial.Stage]string{
		dial.Resolving: "dial", dial.Connecting: "connect", dial.ConnectingUnix: "connect", dial.Handshaking: "read", dial.Transferring: "write",
	} {
		for number := syscall.Errno(1); number < 134; number++ {
			err := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(op, number)}
			f := new(failures)
			errno := f.failOver("tcp", networkError(dial.Classify(t.Context(), stage, err)))
			want := dial.Result(dial.Classify(t.Context(), stage, err))
			if f.last.Reason != want.Reason || f.last.Detail != want.Detail || f.last.Local != (want.Outcome == probe.Unknown) {
				t.Errorf("stage %d, %v: a plugin gets %+v, a built-in handler finds %+v", stage, number, f.last, want)
			}
			if errno == abi.OK || f.last.Local != (errno == abi.EADDRNOTAVAIL) {
				t.Errorf("stage %d, %v: a plugin gets the number %v and %+v", stage, number, errno, f.last)
			}
		}
	}
}

func TestErrorsHaveTheNumbersThatPluginsExpect(t *testing.T) {
	for err, want := range map[error]abi.Errno{
		syscall.EMFILE:                        abi.EADDRNOTAVAIL,
		syscall.EINVAL:                        abi.EADDRNOTAVAIL,
		syscall.ECONNREFUSED:                  abi.ECONNREFUSED,
		syscall.ECONNRESET:                    abi.ECONNRESET,
		syscall.EPIPE:                         abi.EPIPE,
		syscall.EHOSTUNREACH:                  abi.EHOSTUNREACH,
		syscall.ENETUNREACH:                   abi.ENETUNREACH,
		syscall.ETIMEDOUT:                     abi.ETIMEDOUT,
		syscall.EIO:                           abi.EIO,
		context.DeadlineExceeded:              abi.ETIMEDOUT,
		&net.DNSError{IsNotFound: true}:       abi.ENOENT,
		fmt.Errorf("read: %w", net.ErrClosed): abi.EIO,
	} {
		if got := networkError(dial.Classify(t.Context(), dial.Connecting, err)); got.Errno != want {
			t.Errorf("%v: got %v, want %v", err, got.Errno, want)
		}
	}
}

package httpprobe

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Wherever an attempt is, an error number that package dial calls this machine's makes its
// result unknown.
func TestAnErrorOfThisMachineIsNeverTheTargets(t *testing.T) {
	h, err := New(Config{Port: "1"})
	if err != nil {
		t.Fatal(err)
	}
	ours := 0
	for number := syscall.Errno(1); number < 134; number++ {
		err := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", number)}
		if dial.Classify(t.Context(), dial.Transferring, err).Outcome != probe.Unknown {
			continue
		}
		ours++
		results := map[string]probe.Result{
			"head": (&attempt{ctx: t.Context()}).headFailed(err),
			"body": h.plan.incompleteBody(t.Context(), 200, err),
		}
		for _, phase := range []nonblock.Phase{nonblock.Sending, nonblock.Receiving} {
			for _, response := range []string{"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbeg"} {
				result, progress := protocol{h}.Fail([]byte(response), nonblock.Fault{Phase: phase, Call: "read", Errno: number})
				if progress != nonblock.StepDone {
					t.Errorf("%v: a step returns %v", number, progress)
				}
				results["step with "+response] = result
			}
		}
		for where, got := range results {
			if got.Outcome != probe.Unknown {
				t.Errorf("%v at the %s: got %+v", number, where, got)
			}
		}
	}
	if ours < 5 {
		t.Errorf("only %d error numbers are this machine's", ours)
	}
}

package tcpprobe

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
	h := &Handler{dialer: new(dial.Dialer), matches: func([]byte) bool { return false }}
	ours := 0
	for number := syscall.Errno(1); number < 134; number++ {
		err := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", number)}
		if dial.Classify(t.Context(), dial.Transferring, err).Outcome != probe.Unknown {
			continue
		}
		ours++
		c := &keptConn{addr: "db:1", ended: make(chan error, 1)}
		c.conn, _ = net.Pipe()
		c.ended <- err
		kept, ok := (&keepAliveHandler{conn: c}).check("db:1")
		if !ok {
			t.Errorf("%v: the connection is not checked", number)
		}
		results := map[string]probe.Result{
			"response":        mismatch(t.Context(), 5, err),
			"kept connection": kept,
		}
		for _, phase := range []nonblock.Phase{nonblock.Sending, nonblock.Receiving} {
			results["step"], _ = protocol{h}.Fail([]byte("begin"), nonblock.Fault{Phase: phase, Call: "read", Errno: number})
			if results["step"].Outcome != probe.Unknown {
				t.Errorf("%v in phase %d: got %+v", number, phase, results["step"])
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

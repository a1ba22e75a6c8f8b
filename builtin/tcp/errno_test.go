package tcpprobe

import (
	"net"
	"testing"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

// failing is a connection that cannot be read from.
type failing struct {
	net.Conn
	err error
}

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// At any stage of an attempt, an error number that package dial attributes to this machine makes the result unknown.
func TestAnErrorOfThisMachineIsNeverTheTargets(t *testing.T) {
	h := &handler{dialer: new(dial.Dialer), matches: func([]byte) bool { return false }}
	for number, err := range dialtest.OwnErrors(t) {
		near, _ := net.Pipe()
		c := &keptConn{endpoint: "db:1", conn: failing{near, err}}
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
		dialtest.WantUnknown(t, number, results)
	}
}

package dial

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/internal/nonblock"
)

func TestFaultsHaveTheResultsOfPackageNetsErrors(t *testing.T) {
	local, remote := netip.MustParseAddrPort("127.0.0.9:1234"), netip.MustParseAddrPort("127.0.0.1:80")
	for _, test := range []struct {
		phase    nonblock.Phase
		stage    Stage
		op, call string
	}{
		{nonblock.Connecting, Connecting, "dial", "connect"},
		{nonblock.Sending, Transferring, "write", "write"},
		{nonblock.Receiving, Transferring, "read", "read"},
	} {
		for number := syscall.Errno(0); number < 134; number++ { // 0 is a timeout
			err := &net.OpError{
				Op: test.op, Net: "tcp", Source: net.TCPAddrFromAddrPort(local), Addr: net.TCPAddrFromAddrPort(remote),
				Err: os.NewSyscallError(test.call, number),
			}
			if number == 0 {
				err.Err = os.ErrDeadlineExceeded
			}
			got := FaultResult(nonblock.Fault{Phase: test.phase, Call: test.call, Errno: number, Local: local, Remote: remote})
			if want := Result(Classify(t.Context(), test.stage, err)); got != want {
				t.Errorf("%s, %v: got %+v, want %+v", test.op, number, got, want)
			}
		}
	}
}

func TestATimeoutAllocatesItsTextOnly(t *testing.T) {
	fault := nonblock.Fault{Remote: netip.MustParseAddrPort("127.0.0.1:80")}
	if got := FaultResult(fault).Detail; got != "dial tcp 127.0.0.1:80: i/o timeout" {
		t.Errorf("the detail is %q", got)
	}
	if n := testing.AllocsPerRun(100, func() { FaultResult(fault) }); n > 1 {
		t.Errorf("a timeout allocates %v times, want once", n)
	}
}

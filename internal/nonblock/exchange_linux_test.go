//go:build !386 && !s390x

package nonblock

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// untilDot is a Protocol that sends "ping" and succeeds at the first dot of the response.
type untilDot struct{ to netip.AddrPort }

func (p untilDot) Request(a *Attempt) (netip.AddrPort, []byte, bool) {
	a.Buffer = append(a.Buffer, "ping"...)
	return p.to, a.Buffer, p.to.IsValid()
}

func (p untilDot) Judge(response []byte, eof bool) (probe.Result, Progress) {
	switch {
	case bytes.HasSuffix(response, []byte(".")):
		return probe.Succeed(string(response)), StepDone
	case bytes.HasSuffix(response, []byte("?")):
		return probe.Result{}, StepBlock
	}
	return probe.Result{}, StepWait
}

func (p untilDot) Fail(response []byte, f Fault) (probe.Result, Progress) {
	if len(response) > 0 && !f.Timeout() {
		return probe.Result{}, StepBlock
	}
	return probe.Fail("fault", "%d %s %v after %q", f.Phase, f.Call, f.Errno, response), StepDone
}

// attempt is an attempt by an Exchange and the server's end of its connection.
type attempt struct {
	*testing.T
	exchange *Exchange
	Attempt
	server *net.TCPConn
}

// begun begins an attempt; the server has read its request when it returns.
func begun(t *testing.T) *attempt {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	to := netip.MustParseAddrPort(listener.Addr().String())
	a := &attempt{T: t, exchange: &Exchange{Protocol: untilDot{to}, Socket: SocketOptions{ClientFirst: true}, MaxResponse: 200}}
	if progress := a.exchange.Step(&a.Attempt); progress != StepWait {
		t.Fatalf("the attempt begins with %d, %+v", progress, a.Result)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	a.server = conn.(*net.TCPConn)
	for request := make([]byte, 4); ; {
		a.step(StepReady)
		a.server.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := io.ReadFull(a.server, request); err == nil {
			return a
		}
	}
}

func (a *attempt) step(ev Event) Progress {
	a.Event = ev
	return a.exchange.Step(&a.Attempt)
}

// write sends a piece of the response and steps until the piece has arrived.
func (a *attempt) write(piece string) Progress {
	a.Helper()
	n := len(a.Buffer) + len(piece)
	if _, err := io.WriteString(a.server, piece); err != nil {
		a.Fatal(err)
	}
	return a.until(func() bool { return len(a.Buffer) >= n })
}

// until steps until the attempt is over or arrived returns true.
func (a *attempt) until(arrived func() bool) Progress {
	a.Helper()
	var progress Progress
	testsync.Until(a, "a piece of the response", func() bool {
		progress = a.step(StepReady)
		return progress != StepWait || arrived()
	})
	return progress
}

func never() bool { return false }

// wantFallback checks that an attempt is left to Probe, and so are later ones.
func (a *attempt) wantFallback(progress Progress) {
	a.Helper()
	if progress != StepBlock || a.FD != -1 {
		a.Errorf("the attempt ends with %d, the descriptor %d and %+v", progress, a.FD, a.Result)
	}
	if progress := a.step(StepBegin); progress != StepBlock {
		a.Errorf("the next attempt begins with %d", progress)
	}
}

func TestAResponseIsJudgedAsItComes(t *testing.T) {
	a := begun(t)
	for _, piece := range []string{"p", "on", "g"} {
		if progress := a.write(piece); progress != StepWait {
			t.Fatalf("after %q: %d, %+v", piece, progress, a.Result)
		}
	}
	if progress := a.write("."); progress != StepDone || a.Result.Detail != "pong." || a.FD != -1 {
		t.Errorf("got %d, the descriptor %d and %+v", progress, a.FD, a.Result)
	}
	if a.Result.Timings.Connect <= 0 || a.Result.Timings.FirstByte <= 0 {
		t.Errorf("got the timings %+v", a.Result.Timings)
	}
}

func TestAResponseInVeryManyPiecesIsLeftToProbe(t *testing.T) {
	a := begun(t)
	for i := range maxReads {
		if progress := a.write("x"); progress == StepBlock && i == maxReads-1 {
			a.wantFallback(progress)
			return
		} else if progress != StepWait {
			t.Fatalf("after %d pieces: %d, %+v", i+1, progress, a.Result)
		}
	}
	a.wantFallback(a.step(StepReady))
}

func TestAResponseThatIsTooLongIsLeftToProbe(t *testing.T) {
	a := begun(t)
	a.wantFallback(a.write(string(bytes.Repeat([]byte("x"), a.exchange.MaxResponse+1))))
}

func TestAResponseThatTheProtocolDoesNotSupportIsLeftToProbe(t *testing.T) {
	a := begun(t)
	a.wantFallback(a.write("what?"))
}

func TestAnIncompleteResponseIsLeftToProbe(t *testing.T) {
	a := begun(t)
	a.write("x")
	a.server.Close()
	a.wantFallback(a.until(never))
}

func TestAFaultThatTheProtocolDoesNotSupportIsLeftToProbe(t *testing.T) {
	a := begun(t)
	a.write("x")
	a.server.SetLinger(0)
	a.server.Close()
	a.wantFallback(a.until(never))
}

func TestATimeoutHasTheResponseSoFar(t *testing.T) {
	a := begun(t)
	a.write("po")
	if progress := a.step(StepLate); progress != StepDone || a.Result.Detail != `2  errno 0 after "po"` || a.FD != -1 {
		t.Errorf("got %d, the descriptor %d and %+v", progress, a.FD, a.Result)
	}
}

func TestACancelledAttemptIsUnknown(t *testing.T) {
	a := begun(t)
	if progress := a.step(StepStop); progress != StepDone || a.Result.Reason != probe.ReasonStopped || a.FD != -1 {
		t.Errorf("got %d, the descriptor %d and %+v", progress, a.FD, a.Result)
	}
}

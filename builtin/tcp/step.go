package tcpprobe

import (
	"context"
	"io"
	"net/netip"
	"os"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

var _ nonblock.Stepper = (*handler)(nil)

// Step makes an attempt without a goroutine, on Linux, if it needs at most one connection to an IP address.
func (h *handler) Step(a *nonblock.Attempt) nonblock.Progress { return h.exchange.Step(a) }

// protocol is the nonblock.Protocol of a handler.
type protocol struct{ *handler }

func (h protocol) Request(a *nonblock.Attempt) (to netip.AddrPort, request []byte, ok bool) {
	_, to, ok = h.dialer.LiteralAddr(&a.Target)
	return to, h.request, ok && h.tls == nil
}

// maxSlow is the longest response, in bytes, that a step matches with a regular expression. With most expressions that takes less
// than 50 µs.
const maxSlow = 1 << 10

func (h protocol) Judge(response []byte, eof bool) (probe.Result, nonblock.Progress) {
	switch {
	case eof:
		return mismatch(context.Background(), len(response), io.EOF), nonblock.StepDone
	case h.slow && len(response) > maxSlow:
		return probe.Result{}, nonblock.StepBlock
	case h.matches(response):
		return probe.Succeed(""), nonblock.StepKeep // kept only if reusing has set Attempt.Kept
	case len(response) == probe.MaxDetail:
		return fullMismatch(len(response)), nonblock.StepDone
	}
	return probe.Result{}, nonblock.StepWait
}

func (h protocol) Fail(response []byte, f nonblock.Fault) (probe.Result, nonblock.Progress) {
	if f.Phase == nonblock.Receiving && f.Timeout() {
		return mismatch(context.Background(), len(response), os.ErrDeadlineExceeded), nonblock.StepDone
	}
	return dial.FaultResult(f), nonblock.StepDone
}

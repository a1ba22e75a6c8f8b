package tcpprobe

import (
	"context"
	"io"
	"os"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

var _ nonblock.Stepper = (*Handler)(nil)

// maxSlow bounds how much of an response an expression is matched with in a step, in
// bytes. With most expressions that takes less than 50 µs.
const maxSlow = 1 << 10

// Step makes an attempt without a goroutine, on Linux, where that takes no more
// than one connection to an IP address.
func (h *Handler) Step(a *nonblock.Attempt) nonblock.Progress {
	switch a.Event {
	case nonblock.StepBegin:
		return h.begin(a)
	case nonblock.StepLate:
		return h.dialer.Done(a, h.late(a))
	case nonblock.StepStop:
		return h.dialer.Done(a, dial.Result(dial.Cancelled()))
	}
	return h.advance(a)
}

func (h *Handler) begin(a *nonblock.Attempt) nonblock.Progress {
	a.FD = -1
	_, at, ok := h.dialer.Spot(&a.Target)
	if !ok || h.tls != nil || h.odd.Has(at) {
		return nonblock.StepBlock
	}
	switch turn, fault := h.dialer.Begin(a, at); {
	case turn == dial.Broken:
		return h.dialer.Done(a, h.dialer.Fault(a, fault))
	case turn == dial.Odd, dial.ToItself(a, at):
		return h.dialer.Leave(a)
	}
	return h.advance(a)
}

// advance takes an attempt as far as it goes without waiting.
func (h *Handler) advance(a *nonblock.Attempt) nonblock.Progress {
	for {
		turn, fault := h.dialer.Advance(a, h.request, probe.MaxDetail)
		switch {
		case turn == dial.Waits:
			return nonblock.StepWait
		case turn == dial.Broken:
			return h.dialer.Done(a, h.dialer.Fault(a, fault))
		case turn == dial.Stands && len(h.request) == 0 && h.matches == nil:
			return h.dialer.Finish(a, probe.Succeed(""))
		case turn == dial.Stands && h.matches == nil: // what is sent must not be reset
			return h.dialer.Done(a, probe.Succeed(""))
		case turn == dial.Odd, turn == dial.Heard && h.slow && len(a.Buffer) > maxSlow:
			return h.leave(a)
		case turn == dial.Heard && h.matches(a.Buffer):
			return h.dialer.Done(a, probe.Succeed(""))
		case turn == dial.Heard && len(a.Buffer) == probe.MaxDetail:
			return h.dialer.Done(a, unmetByAll(len(a.Buffer)))
		case turn == dial.Ended:
			return h.dialer.Done(a, unmet(context.Background(), len(a.Buffer), io.EOF))
		}
	}
}

// leave gives an attempt, and for a while those at the same place, up to Probe.
func (h *Handler) leave(a *nonblock.Attempt) nonblock.Progress {
	if _, at, ok := h.dialer.Spot(&a.Target); ok {
		h.odd.Add(at)
	}
	return h.dialer.Leave(a)
}

func (h *Handler) late(a *nonblock.Attempt) probe.Result {
	if !dial.Receiving(a) {
		return h.dialer.Late(a)
	}
	return unmet(context.Background(), len(a.Buffer), os.ErrDeadlineExceeded)
}

package httpprobe

import (
	"context"
	"io"
	"net/http"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

var _ nonblock.Stepper = (*Handler)(nil)

const (
	// maxAnswer bounds what is read of a response in steps, in bytes: the body as
	// far as it is looked at, and a head of 6 KiB.
	maxAnswer = probe.MaxDetail + 6<<10

	// maxSlow bounds how much of a body an expression is matched with in a step, in
	// bytes. With most expressions that takes less than 50 µs.
	maxSlow = 1 << 10
)

// Step makes an attempt without a goroutine, on Linux, where that takes no more
// than one connection to an IP address, one short request and its plain answer.
func (h *Handler) Step(a *nonblock.Attempt) nonblock.Progress {
	switch a.Event {
	case nonblock.StepBegin:
		return h.begin(a)
	case nonblock.StepLate:
		return h.wire.dialer.Done(a, h.late(a))
	case nonblock.StepStop:
		return h.wire.dialer.Done(a, dial.Result(dial.Cancelled()))
	}
	return h.advance(a)
}

func (h *Handler) begin(a *nonblock.Attempt) nonblock.Progress {
	a.FD = -1
	if h.script == nil {
		return nonblock.StepBlock
	}
	host, at, ok := h.wire.dialer.Spot(&a.Target)
	if !ok || h.odd.Has(at) {
		return nonblock.StepBlock
	}
	a.Buffer = h.script.appendTo(a.Buffer[:0], host, at.Port())
	switch turn, fault := h.wire.dialer.Begin(a, at); turn {
	case dial.Broken:
		return h.wire.dialer.Done(a, h.wire.dialer.Fault(a, fault))
	case dial.Odd:
		return nonblock.StepBlock
	}
	return h.advance(a)
}

// advance takes an attempt as far as it goes without waiting.
func (h *Handler) advance(a *nonblock.Attempt) nonblock.Progress {
	for {
		switch turn, fault := h.wire.dialer.Advance(a, a.Buffer, maxAnswer); turn {
		case dial.Waits:
			return nonblock.StepWait
		case dial.Broken:
			return h.broken(a, fault)
		case dial.Odd:
			return h.leave(a)
		case dial.Heard, dial.Ended:
			if progress := h.hear(a, turn == dial.Ended); progress != nonblock.StepWait {
				return progress
			}
		}
	}
}

// hear judges an answer as far as it has come, or returns nonblock.StepWait when that
// takes more of it.
func (h *Handler) hear(a *nonblock.Attempt, ended bool) nonblock.Progress {
	switch result, progress := h.plan.decide(h.tell(a, ended), ended); progress {
	case nonblock.StepDone:
		return h.wire.dialer.Finish(a, result)
	case nonblock.StepBlock:
		return h.leave(a)
	}
	return nonblock.StepWait
}

// decide says what an answer means, and what has to happen next.
func (p *plan) decide(got answer, ended bool) (probe.Result, nonblock.Progress) {
	switch {
	case got.odd, isRedirect(got.status), p.regex != nil && len(got.body) > maxSlow:
		return probe.Result{}, nonblock.StepBlock
	case got.status != 0 && !p.looks(got.status):
		return p.unaccepted(describeStatus(got.status)), nonblock.StepDone
	case got.whole:
		return p.weigh(got.status, describeStatus(got.status), got.body), nonblock.StepDone
	case !ended:
		return probe.Result{}, nonblock.StepWait
	case got.status == 0:
		return dial.Result(dial.Classify(context.Background(), dial.Transferring, io.EOF)), nonblock.StepDone
	}
	return p.brokenBody(context.Background(), got.status, io.EOF), nonblock.StepDone
}

func (h *Handler) tell(a *nonblock.Attempt, ended bool) answer {
	return tell(a.Buffer, ended, h.plan.method == http.MethodHead)
}

// broken ends an attempt whose connection could not be made, or broke.
func (h *Handler) broken(a *nonblock.Attempt, fault dial.Fault) nonblock.Progress {
	if dial.Dialling(a) {
		return h.wire.dialer.Done(a, h.wire.dialer.Fault(a, fault))
	}
	got := h.tell(a, false)
	switch {
	case dial.Receiving(a) && len(a.Buffer) == 0:
		return h.wire.dialer.Done(a, h.wire.dialer.Fault(a, fault))
	case !dial.Receiving(a) || got.status == 0: // net/http tells a reset amid the head from an end by chance
		return h.leave(a)
	}
	return h.wire.dialer.Done(a, h.plan.brokenBody(context.Background(), got.status, io.ErrUnexpectedEOF))
}

// leave gives an attempt, and for a while those at the same place, up to Probe.
func (h *Handler) leave(a *nonblock.Attempt) nonblock.Progress {
	if _, at, ok := h.wire.dialer.Spot(&a.Target); ok {
		h.odd.Add(at)
	}
	return h.wire.dialer.Leave(a)
}

// late is the result of an attempt whose time is over.
func (h *Handler) late(a *nonblock.Attempt) probe.Result {
	if dial.Dialling(a) {
		return h.wire.dialer.Late(a)
	}
	if got := h.tell(a, false); dial.Receiving(a) && got.status != 0 {
		return h.plan.brokenBody(context.Background(), got.status, context.DeadlineExceeded)
	}
	return lateHead()
}

package httpprobe

import (
	"context"
	"io"
	"net/http"
	"net/netip"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
)

var _ nonblock.Stepper = (*handler)(nil)

const (
	// maxResponse is how much of a response is read in steps, in bytes: the part of the body that is checked, and 6 KiB for the
	// head.
	maxResponse = probe.MaxDetail + 6<<10

	// maxSlow is the longest body, in bytes, that a step matches with a regular expression. With most expressions that takes less
	// than 50 µs.
	maxSlow = 1 << 10
)

// Step makes an attempt without a goroutine, on Linux, if it needs at most one connection to an IP address, one short request and
// its plain response.
func (h *handler) Step(a *nonblock.Attempt) nonblock.Progress { return h.exchange.Step(a) }

// protocol is the nonblock.Protocol of a handler.
type protocol struct{ *handler }

func (h protocol) Request(a *nonblock.Attempt) (to netip.AddrPort, request []byte, ok bool) {
	if h.template == nil {
		return netip.AddrPort{}, nil, false
	}
	host, to, ok := h.transport.dialer.LiteralAddr(&a.Target)
	if ok {
		a.Buffer = h.template.appendTo(a.Buffer, host, to.Port())
	}
	return to, a.Buffer, ok
}

func (h protocol) Judge(response []byte, eof bool) (probe.Result, nonblock.Progress) {
	r := h.parse(response, eof)
	result, next := h.plan.decide(r, eof)
	if r.status != 0 && next == nonblock.StepDone {
		result.SetFacts(r.facts())
		if r.complete && !r.last {
			next = nonblock.StepKeep
		}
	}
	return result, next
}

func (h protocol) parse(b []byte, eof bool) response {
	return parseResponse(b, eof, h.plan.method == http.MethodHead)
}

// decide returns the result of a response, and how the attempt continues.
func (p *plan) decide(r response, eof bool) (probe.Result, nonblock.Progress) {
	switch {
	case r.unsupported, isRedirect(r.status), p.asserts.slow(len(r.body)):
		return probe.Result{}, nonblock.StepBlock
	case r.status != 0 && !p.checksBody(r.status):
		return p.wrongStatus(p.about(r.status), r.plain()), nonblock.StepDone
	case r.complete && (r.cut || r.encoded || isUTF16(r.body)) && p.asserts.readBody():
		return probe.Result{}, nonblock.StepBlock
	case r.complete:
		return p.check(p.about(r.status), textOf(r.body, true, "")), nonblock.StepDone
	case !eof:
		return probe.Result{}, nonblock.StepWait
	case r.status == 0:
		return dial.Result(dial.Classify(context.Background(), dial.Transferring, io.EOF)), nonblock.StepDone
	}
	return p.incompleteBody(context.Background(), r.status, io.EOF), nonblock.StepDone
}

func (h protocol) Fail(b []byte, f nonblock.Fault) (probe.Result, nonblock.Progress) {
	result := dial.FaultResult(f)
	r := h.parse(b, false)
	status := r.status
	switch {
	case f.Phase == nonblock.Connecting, result.Outcome == probe.Unknown:
		return result, nonblock.StepDone
	case f.Timeout() && status != 0:
		result = h.plan.incompleteBody(context.Background(), status, context.DeadlineExceeded)
		result.SetFacts(r.facts())
		return result, nonblock.StepDone
	case f.Timeout():
		return noHeadInTime(), nonblock.StepDone
	case f.Phase == nonblock.Receiving && len(b) == 0:
		return result, nonblock.StepDone
	case status == 0: // for a reset within the head, net/http returns a reset or an end, at random
		return probe.Result{}, nonblock.StepBlock
	}
	result = h.plan.incompleteBody(context.Background(), status, io.ErrUnexpectedEOF)
	result.SetFacts(r.facts())
	return result, nonblock.StepDone
}

// plain returns the part of the body that came with the head, at most redact.MaxSource+1 bytes; nil if the body is encoded.
func (r *response) plain() []byte {
	if r.encoded {
		return nil
	}
	return r.body[:min(len(r.body), redact.MaxSource+1)]
}

// facts returns the facts of an attempt with that response.
func (r *response) facts() probe.Facts {
	return probe.Facts{Protocol: protocolName(1, int(r.minor-'0'))}
}

// protocolName returns the name of an HTTP version for probe.Facts; "" for an unknown version.
func protocolName(major, minor int) string {
	switch [2]int{major, minor} {
	case [2]int{1, 0}:
		return "HTTP/1.0"
	case [2]int{1, 1}:
		return "HTTP/1.1"
	case [2]int{2, 0}:
		return "HTTP/2.0"
	}
	return ""
}

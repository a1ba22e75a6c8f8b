package oracle

import (
	"context"
	"sync/atomic"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// scriptedHandler is the handler of a scripted probe. For each try it takes the script's answer, and has the real handler receive
// it, without blocking if that handler supports it.
type scriptedHandler struct {
	pod     *sondePod
	at      probeKey
	check   Check
	handler probe.Handler
	given   atomic.Bool // this try has its answer, but must be repeated by Probe
	extra   atomic.Bool // this try belongs to an extra attempt of a startup probe, whose failure must not count
}

var _ nonblock.Stepper = (*scriptedHandler)(nil)

// Probe makes a try by Probe.
func (h *scriptedHandler) Probe(ctx context.Context, t probe.Target) probe.Result {
	if !h.given.Swap(false) && !h.begin() {
		return h.unanswered()
	}
	result := h.handler.Probe(ctx, t)
	h.end(result)
	return result
}

// Step makes a non-blocking try.
func (h *scriptedHandler) Step(attempt *nonblock.Attempt) nonblock.Progress {
	stepper, ok := h.handler.(nonblock.Stepper)
	if !ok {
		return nonblock.StepBlock
	}
	if attempt.Event == nonblock.StepBegin {
		h.given.Store(false)
		if !h.begin() {
			attempt.Result = h.unanswered()
			return nonblock.StepDone
		}
	}
	progress := stepper.Step(attempt)
	switch {
	case attempt.Event == nonblock.StepStop:
	case progress == nonblock.StepBlock:
		h.given.Store(true)
	case progress == nonblock.StepDone:
		h.end(attempt.Result)
	}
	return progress
}

// begin takes the answer of a try, and reports whether there is one. An extra attempt of a startup probe, which the kubelet does
// not make, uses up an answer only if that is a success. A failure is shown to it without using it up: if it counted, the verdict
// would change too early.
func (h *scriptedHandler) begin() bool {
	st := h.pod.sample(h.at)
	h.extra.Store(false)
	isExtra := st.Extra && h.check.Kind == probe.Startup
	if h.check.Via == ViaTCP { // the kernel has the answer
		h.extra.Store(isExtra)
		return true
	}
	if isExtra && !h.pod.play.succeeds(h.at) {
		h.extra.Store(true)
		return h.pod.show(h.at)
	}
	made := st.Attempts[probe.Unknown] + st.Attempts[probe.Success] + st.Attempts[probe.Warning] + st.Attempts[probe.Failure]
	return h.pod.play.try(h.at, int(made)) != Nothing
}

func (h *scriptedHandler) unanswered() probe.Result {
	return probe.Broken("exec.start", "the script has no answer")
}

// end records the result of a try.
func (h *scriptedHandler) end(r probe.Result) {
	if h.extra.Load() && r.Outcome != probe.Success {
		return
	}
	switch {
	case h.check.Via == ViaTCP && r.Outcome == probe.Success:
		h.pod.play.kernel(h.at, Success)
	case h.check.Via == ViaTCP:
		h.pod.play.kernel(h.at, Failure)
	case r.Outcome != probe.Unknown:
		h.pod.play.over(h.at)
	}
	h.pod.play.text(h.at, meant(r))
}

// execute returns the result of an exec probe, like builtin/exec.
func execute(ctx context.Context, letter byte) probe.Result {
	switch letter {
	case Success:
		return probe.Succeed("")
	case Failure:
		return probe.Fail(probe.ReasonExecExit, "exit status 1: %s", complaint)
	case Late:
		<-ctx.Done()
		return probe.Fail(probe.ReasonExecTimeout, "killed")
	case Slow:
		wait(ctx, slowness)
		return probe.Succeed("")
	}
	return probe.Broken("exec.start", "no such container")
}

package oracle

import (
	"context"
	"sync/atomic"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// actor is the handler of a scripted probe: for each try it takes the script's answer,
// and lets the real handler get it, non-blocking where the handler can.
type actor struct {
	pod     *sondePod
	at      probeKey
	check   Check
	handler probe.Handler
	given   atomic.Bool // this try has its answer, though it has to be made again by Probe
	extra   atomic.Bool // this try is part of an extra attempt of a startup probe, whose failure must not count
}

var _ nonblock.Stepper = (*actor)(nil)

// Probe makes a try by Probe.
func (a *actor) Probe(ctx context.Context, t probe.Target) probe.Result {
	if !a.given.Swap(false) && !a.begin() {
		return a.unanswered()
	}
	result := a.handler.Probe(ctx, t)
	a.end(result)
	return result
}

// Step makes a non-blocking try.
func (a *actor) Step(attempt *nonblock.Attempt) nonblock.Progress {
	stepper, ok := a.handler.(nonblock.Stepper)
	if !ok {
		return nonblock.StepBlock
	}
	if attempt.Event == nonblock.StepBegin {
		a.given.Store(false)
		if !a.begin() {
			attempt.Result = a.unanswered()
			return nonblock.StepDone
		}
	}
	progress := stepper.Step(attempt)
	switch {
	case attempt.Event == nonblock.StepStop:
	case progress == nonblock.StepBlock:
		a.given.Store(true)
	case progress == nonblock.StepDone:
		a.end(attempt.Result)
	}
	return progress
}

// begin takes the answer of a try, if there is one. An extra attempt of a startup probe,
// which the kubelet does not make, uses an answer only if it is a success. A failure is
// shown to it as well: if it counted, the verdict would change too early.
func (a *actor) begin() bool {
	st := a.pod.sample(a.at)
	a.extra.Store(false)
	isExtra := st.Extra && a.check.Kind == probe.Startup
	if a.check.Via == ViaTCP { // the kernel has the answer
		a.extra.Store(isExtra)
		return true
	}
	if isExtra && !a.pod.play.succeeds(a.at) {
		a.extra.Store(true)
		return a.pod.show(a.at)
	}
	made := st.Attempts[probe.Unknown] + st.Attempts[probe.Success] + st.Attempts[probe.Warning] + st.Attempts[probe.Failure]
	return a.pod.play.try(a.at, int(made)) != Nothing
}

func (a *actor) unanswered() probe.Result {
	return probe.Broken(probe.ReasonExecStart, "the script has no answer")
}

// end records the result of a try.
func (a *actor) end(r probe.Result) {
	if a.extra.Load() && r.Outcome != probe.Success {
		return
	}
	switch {
	case a.check.Via == ViaTCP && r.Outcome == probe.Success:
		a.pod.play.kernel(a.at, Success)
	case a.check.Via == ViaTCP:
		a.pod.play.kernel(a.at, Failure)
	case r.Outcome != probe.Unknown:
		a.pod.play.over(a.at)
	}
	a.pod.play.text(a.at, meant(r))
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
	return probe.Broken(probe.ReasonExecStart, "no such container")
}

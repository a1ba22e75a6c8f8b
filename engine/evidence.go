package engine

import "github.com/sonde-probe/sonde/probe"

// The reasons that only an engine uses.
const (
	reasonPanic    probe.Reason = "handler.panic"    // the handler panicked
	reasonStalled  probe.Reason = "engine.stalled"   // the engine lost a notable part of the timeout: stopped, or short of CPU time
	reasonIsolated probe.Reason = "engine.isolated"  // no target responds, or no name server: the engine is cut off from them
	reasonSlow     probe.Reason = "target.slow"      // a warning: the attempt passed, and took longer than Rule.WarnAfter
	reasonRisen    probe.Reason = "target.risen"     // a warning: the level of Rule.WarnOnRise has risen
	reasonRestarts probe.Reason = "target.restarts"  // a warning: the uptime of the target has fallen more often than Rule.MaxRestarts
	reasonTooSlow  probe.Reason = "target.too_slow"  // the attempt took longer than Rule.FailAfter, and would have passed
	reasonEjected  probe.Reason = "gateway.failures" // of an ejection whose observations had no reason
)

// responders is the set of those who responded to an attempt over the network.
type responders uint8

const (
	theTarget responders = 1 << iota
	nameServer
)

// evidenceOf returns who responded to an attempt, and who should have responded but did not. For commands both are unknown, since
// they may not use the network. If a failure has a plugin's own reason, the target is taken to have responded if data was
// received, and not to have responded if the plugin waited until its deadline (late).
func evidenceOf(res *probe.Result, late bool) (answered, missing responders) {
	switch res.Reason {
	case probe.ReasonExecExit, probe.ReasonExecSignal, probe.ReasonExecTimeout:
		return 0, 0
	}
	evidence := res.Reason.Evidence()
	if passed(res) && evidence != probe.Answered { // a warning, for example that one of several addresses is silent
		evidence = probe.NoEvidence
	}
	if res.Timings.Resolve > 0 && evidence != probe.NameUnanswered {
		answered = nameServer
	}
	tooSlow := res.Reason == reasonTooSlow // treated like a success
	failed := res.Outcome == probe.Failure && !tooSlow
	switch {
	case evidence == probe.Answered, evidence == probe.Interrupted:
		return answered | theTarget, 0
	case evidence == probe.NameAnswered:
		return answered, 0
	case evidence == probe.NameUnanswered:
		return answered, nameServer
	case evidence == probe.Silent:
		return answered, theTarget
	case (passed(res) || tooSlow) && res.Timings != (probe.Timings{}), failed && res.Timings.FirstByte > 0:
		return answered | theTarget, 0
	case failed && (res.Timings.Connect > 0 || late):
		return answered, theTarget
	}
	return answered, 0
}

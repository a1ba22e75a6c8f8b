package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// stallShare defines when lost time is notable: more than 1/stallShare of the timeout. A success may be late by that much.
	stallShare = 8

	// excuseShare defines when lost time excuses a failure: more than 1/excuseShare of the timeout. Next to a few busy programs,
	// an eighth is lost now and then, and a target that hangs must still be detected.
	excuseShare = 4

	// maxTick and minTick bound the interval at which the loop reads the clock while attempts are in flight, so that it notices a
	// stall that ends before anything is due. The interval is 1/stallShare of the shortest timeout.
	maxTick = 100 * time.Millisecond
	minTick = time.Duration(health.Tolerance)
)

// tickOf returns the interval at which to read the clock while an attempt is in flight.
func tickOf(r *probe.Rule) time.Duration {
	if r.WarnAfter+r.FailAfter > 0 {
		return minTick
	}
	return min(max(minTick, r.Timeout/stallShare), maxTick)
}

// timeoutOf returns the timeout of an attempt that starts now, after the given number of consecutive waived failures. An extended
// timeout leaves an eighth of the period, so that the attempt finishes before the next one is due.
func timeoutOf(r *probe.Rule, m *health.Monitor, now int64, waived int) time.Duration {
	score := max(m.Score(now), waived)
	if score == 0 {
		return r.Timeout
	}
	return max(r.Timeout, min(r.Timeout*time.Duration(1+score), r.Period-r.Period/8))
}

// excuse returns the result of a try during which the engine was stalled. Successes and failures that are responses of the target
// are kept; other failures become unknown.
func excuse(res probe.Result, lost int64, timeout time.Duration) probe.Result {
	if res.Outcome != probe.Failure || isAnswer(&res, lost < int64(timeout)) {
		return res
	}
	return stalledFor("the engine was stalled", time.Duration(lost), res)
}

// excuseClaimed is excuse for lost time claimed by the handler. An exit status is kept only if less than half of the timeout was
// lost, since a command with a timeout of its own fails if it has lost much time.
func excuseClaimed(res probe.Result, lost int64, timeout time.Duration) probe.Result {
	if res.Outcome != probe.Failure || isAnswer(&res, lost < int64(timeout)/2) {
		return res
	}
	return stalledFor("the handler could not run", time.Duration(lost), res)
}

// stalledFor returns an unknown result for a try that is no evidence about its target. what is the cause, which lasted for lost.
func stalledFor(what string, lost time.Duration, res probe.Result) probe.Result {
	r := probe.Broken(reasonStalled, "%s for %v during the attempt, which ended with %s: %s", what, lost.Round(time.Millisecond), res.Reason, res.Detail)
	r.Timings = res.Timings
	return r
}

// excuseSuspended returns the result of a try during which the machine was suspended. A success is kept. Any failure becomes
// unknown, even if the target responded: it may have given up during the suspension.
func excuseSuspended(res probe.Result, suspended time.Duration) probe.Result {
	if res.Outcome != probe.Failure {
		return res
	}
	return stalledFor("the engine's machine was suspended", suspended, res)
}

// isAnswer reports whether a failure is a response of the target that does not depend on the time that the engine lost. Exit
// statuses and responses to plugins count only if inTime is set: if much time was lost, the command or target may have given up
// waiting.
func isAnswer(res *probe.Result, inTime bool) bool {
	switch res.Reason.Evidence() {
	case probe.Answered, probe.NameAnswered:
		return true
	case probe.NoEvidence:
		return res.Reason == reasonTooSlow || res.Reason == probe.ReasonExecExit && inTime || res.Timings.FirstByte > 0 && inTime
	}
	return false
}

// notable reports whether lost time is a notable part of a timeout.
func notable(lost int64, timeout time.Duration) bool { return lost > int64(timeout)/stallShare }

// excusable reports whether enough of a timeout was lost to excuse a failure.
func excusable(lost int64, timeout time.Duration) bool { return lost > int64(timeout)/excuseShare }

// stalled reports whether a try that took took, of which lost was lost, was stalled: it lost an excusable part of its timeout,
// and the remaining time was notably shorter than the rule's timeout. timeout may be longer than that of the rule.
func stalled(lost, took int64, timeout time.Duration, r *probe.Rule) bool {
	return excusable(lost, timeout) && notable(int64(r.Timeout)-(took-lost), r.Timeout)
}

// maySucceedNow reports whether an immediate retry makes sense after this result. It does not after a stall of a degraded engine,
// where it would only add to the load.
func maySucceedNow(res *probe.Result, m *health.Monitor, now int64) bool {
	return !res.NoRetry && (res.Reason != reasonStalled || !healthAt(m, now).Degraded())
}

// maxWaived is the maximum number of a probe's consecutive failures that are waived, that is, unknown because the handler claims
// that this machine lacked resources. Each claim may be true, but the machine may be short of processes because of the target.
const maxWaived = MaxHealthScore

// mayWaive reports whether a claim of the handler still makes a failure unknown.
func (a *attempt) mayWaive() bool { return a.waivedBefore < maxWaived }

// waiveDenied returns the result of a try whose handler may have been denied processes or memory.
func (a *attempt) waiveDenied(res probe.Result) probe.Result {
	if res.Outcome != probe.Failure || !res.Denied || !a.mayWaive() {
		return res
	}
	a.waived = true
	return probe.Broken(probe.ReasonResources, "the system denied processes or memory during the attempt, which ended with %s: %s", res.Reason, res.Detail)
}

// countWaived counts the consecutive waived failures. Results without evidence about the target leave the count unchanged. So
// does a failure that counts despite a claim, so that the next one also counts.
func (a *attempt) countWaived(res *probe.Result) {
	switch {
	case a.waived:
		a.slot.addRare().waived = a.waivedBefore + 1
	case a.waivedBefore > 0 && !a.claims && res.Outcome != probe.Unknown:
		a.slot.addRare().waived = 0
	}
}

package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// stallShare is the part of an attempt's timeout, one in so many, that is notable if it is lost to stalls:
	// a success may be late by that.
	stallShare = 8

	// excuseShare is the part of which so much is lost that the attempt must not fail. Beside a few busy programs
	// an eighth is lost now and then, and a target that hangs must be found.
	excuseShare = 4

	// maxTick and minTick bound how often the loop looks at the clock while attempts are
	// in flight, so that it notices a stall that ends before anything is due. The tick
	// is a stallShare of the shortest timeout.
	maxTick = 100 * time.Millisecond
	minTick = time.Duration(health.Tolerance)
)

// tickOf returns how often to look at the clock while an attempt is in flight.
func tickOf(r *probe.Rule) time.Duration {
	if r.WarnAfter+r.FailAfter > 0 {
		return minTick
	}
	return min(max(minTick, r.Timeout/stallShare), maxTick)
}

// timeoutOf returns the timeout of an attempt that starts now, after so many that were
// waived. More time than the rule gives leaves an eighth of the period, so that the attempt ends before the next one is due.
func timeoutOf(r *probe.Rule, m *health.Monitor, now int64, waived int) time.Duration {
	score := max(m.Score(now), waived)
	if score == 0 {
		return r.Timeout
	}
	return max(r.Timeout, min(r.Timeout*time.Duration(1+score), r.Period-r.Period/8))
}

// excuse returns the result of a try that was stalled for a time. It may have succeeded,
// and what the target answered counts, but any other failure is not the target's.
func excuse(res probe.Result, lost int64, timeout time.Duration) probe.Result {
	if res.Outcome != probe.Failure || isAnswer(&res, lost < int64(timeout)) {
		return res
	}
	return stalledFor("the engine was stalled", time.Duration(lost), res)
}

// excuseClaimed is excuse for time that the handler says was lost. A command with a timeout of its own exits
// with an error if it has lost much.
func excuseClaimed(res probe.Result, lost int64, timeout time.Duration) probe.Result {
	if res.Outcome != probe.Failure || isAnswer(&res, lost < int64(timeout)/2) {
		return res
	}
	return stalledFor("the handler could not run", time.Duration(lost), res)
}

// stalledFor returns the result of a try that says nothing about its target, since something has lasted for a time meanwhile.
func stalledFor(what string, lost time.Duration, res probe.Result) probe.Result {
	r := probe.Broken(reasonStalled, "%s for %v during the attempt, which ended with %s: %s", what, lost.Round(time.Millisecond), res.Reason, res.Detail)
	r.Timings = res.Timings
	return r
}

// excuseSuspended returns the result of a try during which the machine was suspended for a time. It may
// have succeeded. Whatever else came of it is not the target's: it may have given up meanwhile, and have
// answered that.
func excuseSuspended(res probe.Result, suspended time.Duration) probe.Result {
	if res.Outcome != probe.Failure {
		return res
	}
	return stalledFor("the machine of the engine was suspended", suspended, res)
}

// isAnswer reports whether a failure is what the target answered, which does not depend
// on the time that the engine has lost. The answer to a plugin does if much was lost: the
// target may have given up waiting for the plugin.
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

// excusable reports whether so much of a timeout is lost that the attempt must not fail.
func excusable(lost int64, timeout time.Duration) bool { return lost > int64(timeout)/excuseShare }

// stalled reports whether a try, which has ended after a time of which some was lost, was
// stalled: if it has lost much of its timeout, and had notably less time than its rule
// gives it. The timeout may be longer than that.
func stalled(lost, took int64, timeout time.Duration, r *probe.Rule) bool {
	return excusable(lost, timeout) && notable(int64(r.Timeout)-(took-lost), r.Timeout)
}

// maySucceedNow reports whether another try makes sense after one with this result: not
// one that was stalled while the engine is degraded, where it would only add to the load.
func maySucceedNow(res *probe.Result, m *health.Monitor, now int64) bool {
	return !res.NoRetry && (res.Reason != reasonStalled || !healthAt(m, now).Degraded())
}

// maxWaived is how many failures of a probe in a row are waived: unknown, since their handler
// claims that this machine lacked something. It may be right each time, but the machine may
// be short of processes because of the target.
const maxWaived = MaxHealthScore

// mayWaive reports whether a failure is unknown at the word of its handler.
func (a *attempt) mayWaive() bool { return a.waivedBefore < maxWaived }

// waiveDenied returns the result of a try whose handler may have been denied processes or
// memory.
func (a *attempt) waiveDenied(res probe.Result) probe.Result {
	if res.Outcome != probe.Failure || !res.Denied || !a.mayWaive() {
		return res
	}
	a.waived = true
	return probe.Broken(probe.ReasonResources, "the system denied processes or memory meanwhile; the attempt ended with %s: %s", res.Reason, res.Detail)
}

// countWaived counts how many failures in a row were waived. What says nothing about the
// target changes nothing, nor does a failure that counts in spite of what is claimed: the
// next one has to count as well.
func (a *attempt) countWaived(res *probe.Result) {
	switch {
	case a.waived:
		a.slot.addRare().waived = a.waivedBefore + 1
	case a.waivedBefore > 0 && !a.claims && res.Outcome != probe.Unknown:
		a.slot.addRare().waived = 0
	}
}

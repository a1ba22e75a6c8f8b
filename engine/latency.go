package engine

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// unnoticed is how much an engine that counts as on time may add to the duration of a try: in
// each of the steps for which one gets more time it may be late by health.Tolerance.
const unnoticed = maxDelayedSteps * time.Duration(health.Tolerance)

// limitsLatency reports whether a rule has limits of an attempt's duration.
func limitsLatency(r *probe.Rule) bool { return r.WarnAfter > 0 || r.FailAfter > 0 }

// judgeLatency returns the result of a try that took a time, of which some was lost to stalls of the
// engine, or for another reason of its machine. If it has passed and is too slow, that is a
// warning or a failure. It is no failure because of time that the engine may have lost.
func judgeLatency(res probe.Result, took, lost int64, r *probe.Rule) probe.Result {
	own := time.Duration(took - lost)
	switch {
	case !passed(&res):
	case r.FailAfter > 0 && own > r.FailAfter+unnoticed:
		res.Outcome, res.Reason = probe.Failure, reasonTooSlow
		res.Detail = tooLong(own, "fail_after", r.FailAfter, res.Detail)
	case r.FailAfter > 0 && own > r.FailAfter:
		res.Outcome, res.Reason = probe.Warning, reasonSlow
		res.Detail = tooLong(own, "fail_after", r.FailAfter, res.Detail)
	case r.WarnAfter > 0 && own > r.WarnAfter && res.Outcome == probe.Success:
		res.Outcome, res.Reason = probe.Warning, reasonSlow
		res.Detail = tooLong(own, "warn_after", r.WarnAfter, res.Detail)
	}
	return res
}

func tooLong(took time.Duration, field string, limit time.Duration, detail string) string {
	text := fmt.Sprintf("took %v, %s is %v", took.Round(100*time.Microsecond), field, limit)
	if detail != "" {
		text += ": " + detail
	}
	return text
}

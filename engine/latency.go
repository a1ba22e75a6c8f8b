package engine

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// unnoticed is the maximum time by which an engine that counts as on time may extend a try: it may be late by health.Tolerance in
// each of the steps for which a try gets more time.
const unnoticed = maxDelayedSteps * time.Duration(health.Tolerance)

// limitsLatency reports whether a rule limits the duration of attempts.
func limitsLatency(r *probe.Rule) bool { return r.WarnAfter > 0 || r.FailAfter > 0 }

// judgeLatency judges the duration of a try, of which lost was lost to stalls of the engine or for another reason of its machine.
// It turns a success that was too slow into a warning or a failure, but never into a failure if the engine may have caused the
// delay.
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

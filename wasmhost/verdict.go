package wasmhost

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/sys"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// ending is how an attempt ended.
type ending struct {
	result  probe.Result
	trapped bool // the plugin is at fault, for the breaker
	lost    bool // the instance is lost, and what the probe held with it
}

// judge says what an attempt found.
func judge(c *call, number int32, err error) ending {
	var e ending
	if err != nil {
		e = broken(c, err)
	} else {
		e.result = returned(c, number)
	}
	e.result.Timings = c.timings
	return e
}

// returned is the result of a call that returned.
func returned(c *call, number int32) probe.Result {
	if number < int32(abi.Unknown) || number > int32(abi.Failure) {
		return probe.Broken(ReasonOutcome, "the plugin returned %d, which is no outcome", number)
	}
	result := probe.Result{
		Outcome: probe.Outcome(number),
		Reason:  probe.Reason(c.reason),
		Detail:  probe.CleanText(c.detail, abi.MaxDetail),
	}
	if result.Outcome == probe.Success || result.Outcome == probe.Warning {
		return result
	}
	switch {
	case errors.Is(c.ctx.Err(), context.Canceled):
		return probe.Broken(probe.ReasonStopped, "the attempt was cancelled")
	case c.refused != "":
		return probe.Broken(ReasonGrant, "%s is not granted%s", c.refused, after(result.Detail))
	case c.limit != "":
		return probe.Broken(ReasonLimit, "the limit %s was reached%s", c.limit, after(result.Detail))
	}
	result.Reason = cmp.Or(result.Reason, c.likely(result.Outcome))
	result.Detail = cmp.Or(result.Detail, c.last.detail)
	return result
}

func after(detail string) string {
	if detail == "" {
		return ""
	}
	return ": " + detail
}

// likely is the reason of a result for which the plugin has given none: that of the
// call that did not work last.
func (c *call) likely(o probe.Outcome) probe.Reason {
	switch {
	case c.last.reason != "":
		return c.last.reason
	case o == probe.Unknown:
		return ""
	case c.isOver(), c.remaining() < nearly:
		return probe.ReasonTimeout
	}
	return ReasonFailure
}

// nearly is how much before the deadline a plugin may say that it has passed: it has
// clocks of its own.
const nearly = 10 * time.Millisecond

// broken is the end of a call that did not return.
func broken(c *call, err error) ending {
	if c.stopped {
		if errors.Is(c.ctx.Err(), context.Canceled) {
			return ending{result: probe.Broken(probe.ReasonStopped, "the attempt was cancelled"), lost: true}
		}
		return ending{result: probe.Fail(ReasonTimeout, "the plugin went on %v after the deadline, and was stopped", abi.Grace), trapped: true, lost: true}
	}
	why, detail := trapReason(c, err)
	result := probe.Broken(why, "%s%s", detail, after(probe.CleanText(c.detail, abi.MaxDetail)))
	result.Outcome = c.plugin.onTrap
	return ending{result: result, trapped: true, lost: true}
}

// trapReason says why a call ended by itself without returning.
func trapReason(c *call, err error) (probe.Reason, string) {
	var exit *sys.ExitError
	text := firstLine(err)
	switch {
	case errors.Is(err, errLimit):
		return ReasonLimit, "the limit " + c.limit + " was reached"
	case c.instance.memory.denied:
		return ReasonMemory, "the plugin had not got the memory it wanted: " + text
	case strings.Contains(text, "stack overflow"): // wazero's error has no name outside of it
		return ReasonStack, "the plugin called itself without end"
	case errors.As(err, &exit):
		return ReasonExit, "the plugin ended itself: " + text
	}
	return ReasonTrap, text
}

// firstLine leaves the stack trace away, which is for the log.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return probe.CleanText(text, abi.MaxDetail)
}

package wasmhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// resultOf returns the probe's result for a call of sonde_run, by the first applicable row of the table in the
// package documentation. pluginFault is true if the call did not return and the plugin is to blame.
func (p *Plugin) resultOf(ctx context.Context, r sandbox.Report) (result probe.Result, pluginFault bool) {
	cancelled := errors.Is(ctx.Err(), context.Canceled)
	switch {
	case r.Ending == sandbox.Returned:
		result = returnedResult(r, cancelled)
	case r.Ending == sandbox.Stopped && cancelled:
		result = probe.Broken(probe.ReasonStopped, "%v", errCancelled)
	case r.Ending == sandbox.Stopped && r.Starved:
		result = probe.Broken(ReasonBusy, "plugin was stopped %v after the deadline: it waited %v for a busy processor and computed for %v",
			abi.Grace, r.Waited.Round(time.Millisecond), r.Computed.Round(time.Millisecond))
		pluginFault = r.RanAway && !r.Stalled // the target is not at fault in any case
	case r.Ending == sandbox.Stopped && r.Stalled:
		result = probe.Broken(ReasonBusy, "plugin was stopped %v after the deadline: the engine was stalled at the deadline", abi.Grace)
	case r.Ending == sandbox.Stopped && r.Computes:
		result, pluginFault = p.faultResult(reasonTimeout, computedText(r)+": it was stopped"), true
	case r.Ending == sandbox.Stopped:
		result, pluginFault = probe.Fail(reasonTimeout, "plugin was stopped: it still ran %v after the deadline", abi.Grace), true
	case r.Ending == sandbox.OutOfMemory && r.NoMemory != nil:
		result = probe.Broken(probe.ReasonResources, "plugin was refused memory: %v", r.NoMemory)
	default:
		result, pluginFault = p.trapResult(r), true
	}
	result.Timings, result.Lost, result.CertificateExpiry = r.Timings, r.Waited, r.CertificateExpiry
	return result, pluginFault
}

// returnedResult returns the result of a call that returned.
func returnedResult(r sandbox.Report, cancelled bool) probe.Result {
	if r.Value < int32(probe.Unknown) || r.Value > int32(probe.Failure) {
		return probe.Broken(reasonOutcome, "plugin returned %d, which is not an outcome", r.Value)
	}
	result := probe.Result{
		Outcome: probe.Outcome(r.Value),
		Reason:  probe.Reason(r.Reason),
		Detail:  probe.CleanText(r.Detail, abi.MaxDetail),
	}
	if result.Outcome == probe.Success || result.Outcome == probe.Warning {
		return result
	}
	switch {
	case cancelled:
		return probe.Broken(probe.ReasonStopped, "%v", errCancelled)
	case r.Refused != "":
		return probe.Broken(ReasonGrant, "%s is not granted%s", r.Refused, afterColon(result.Detail))
	case r.NoMemory != nil:
		return probe.Broken(probe.ReasonResources, "plugin was refused memory: %v%s", r.NoMemory, afterColon(result.Detail))
	case r.Limit != "":
		return probe.Broken(ReasonLimit, "limit %s was reached%s", r.Limit, afterColon(result.Detail))
	}
	if r.Starved && r.Late {
		return probe.Broken(ReasonBusy, "the deadline passed: the plugin had waited %v for a busy processor%s",
			r.Waited.Round(time.Millisecond), afterColon(result.Detail))
	}
	if r.Computes && r.Late {
		return probe.Broken(reasonTimeout, "%s%s", computedText(r), afterColon(result.Detail))
	}
	if r.Last.Local && cmp.Or(result.Reason, r.Last.Reason) == r.Last.Reason {
		result.Outcome = probe.Unknown
	}
	switch {
	case result.Outcome == probe.Unknown && result.Reason == "" && strings.Contains(result.Detail, byItself): // a text of the SDK
		result.Reason = reasonNetwork
	case result.Outcome == probe.Failure && r.Apart && isOfNetwork(result):
		return probe.Broken(reasonNetwork, "plugin %s, in a network inside the module that reaches nothing: "+
			"let its library connect by the SDK, in Go by t.DialContext%s", byItself, afterColon(result.Detail))
	}
	result.Reason = cmp.Or(result.Reason, defaultReason(r, result.Outcome))
	result.Detail = cmp.Or(result.Detail, r.Last.Detail)
	return result
}

// byItself is part of the detail of an attempt in which a library tried to connect without the
// host.
const byItself = "connected by itself"

// networkErrors are substrings of the errors of network stacks inside a module: package net in Go, and std::net
// in Rust.
var networkErrors = []string{"dial tcp", "dial udp", "dial unix", "lookup ", "operation not supported on this platform"}

// isOfNetwork reports whether a result is about a connection or a lookup.
func isOfNetwork(r probe.Result) bool {
	layer, _, _ := strings.Cut(string(r.Reason), ".")
	return slices.Contains([]string{"tcp", "udp", "unix", "tls"}, layer) ||
		slices.ContainsFunc(networkErrors, func(text string) bool { return strings.Contains(r.Detail, text) })
}

// defaultReason returns the reason of a result for which the plugin reported none: preferably that
// of the last failed host call.
func defaultReason(r sandbox.Report, o probe.Outcome) probe.Reason {
	switch {
	case r.Last.Reason != "":
		return r.Last.Reason
	case o == probe.Unknown:
		return ""
	case r.Late:
		return probe.ReasonTimeout
	}
	return ReasonFailure
}

// trapResult returns the result of a call that did not return.
func (p *Plugin) trapResult(r sandbox.Report) probe.Result {
	reason, detail := endingOf(r)
	return p.faultResult(reason, detail+afterColon(probe.CleanText(r.Detail, abi.MaxDetail)))
}

// computedText describes a call that computed until its deadline.
func computedText(r sandbox.Report) string {
	return fmt.Sprintf("plugin computed for %v, most of the time until the deadline, instead of waiting for the target", r.Computed.Round(time.Millisecond))
}

// faultResult returns the result of a call that failed through the plugin's fault; Config.OnTrap
// selects the outcome.
func (p *Plugin) faultResult(reason probe.Reason, detail string) probe.Result {
	if p.onTrap == probe.Failure {
		return probe.Fail(reason, "%s", detail)
	}
	return probe.Broken(reason, "%s", detail)
}

// endingOf returns the reason and a description for a call that did not return.
func endingOf(r sandbox.Report) (probe.Reason, string) {
	text := firstLine(r.Err)
	switch r.Ending {
	case sandbox.LimitReached:
		return ReasonLimit, "limit " + r.Limit + " was reached"
	case sandbox.OutOfMemory:
		return reasonMemory, "plugin trapped at its memory limit: " + text
	case sandbox.StackOverflow:
		return reasonStack, "stack overflow in the plugin"
	case sandbox.Exited:
		return reasonExit, "plugin " + text
	}
	return reasonTrap, text
}

func afterColon(detail string) string {
	if detail == "" {
		return ""
	}
	return ": " + detail
}

// firstLine returns an error's text without the stack trace of the plugin.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return probe.CleanText(text, abi.MaxDetail)
}

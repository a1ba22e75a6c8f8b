package oracle

import (
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// meaning says what an event of the kubelet means, in words that both sides
// have.
func meaning(message string) string {
	if code, ok := strings.CutPrefix(message, "probe failed: HTTP probe failed with statuscode: "); ok {
		return "status " + code
	}
	for _, m := range []struct{ part, word string }{
		{"probe errored", "error"},
		{"probe warning: Probe terminated redirects", "warning"},
		{"context deadline exceeded", "late"},
		{"command timed out", "late"},
		{"i/o timeout", "late"},
		{"connection refused", "refused"},
		{"connection reset", "closed"},
		{"EOF", "closed"},
	} {
		if strings.Contains(message, m.part) {
			return m.word
		}
	}
	return strings.TrimPrefix(message, "probe failed: ")
}

// meant says what a result of ours means, in the same words.
func meant(r probe.Result) string {
	if r.Outcome == probe.Success {
		return "" // the kubelet tells nothing of it
	}
	switch r.Reason {
	case probe.ReasonHTTPStatus:
		status, _, _ := strings.Cut(r.Detail, ",")
		return status
	case probe.ReasonHTTPRedirect:
		return r.Outcome.String()
	case probe.ReasonHTTPTimeout, probe.ReasonTCPTimeout, probe.ReasonExecTimeout:
		return "late"
	case probe.ReasonTCPRefused:
		return "refused"
	case probe.ReasonTCPClosed, probe.ReasonTCPReset:
		return "closed"
	case probe.ReasonExecExit:
		_, output, _ := strings.Cut(r.Detail, ": ")
		return output
	}
	if r.Outcome == probe.Unknown {
		return "error"
	}
	return r.Detail
}

package oracle

import (
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// words maps parts of the kubelet's texts to their meanings. The first match counts.
var words = []struct{ part, word string }{
	{"probe errored", "error"},
	{"probe warning: Probe terminated redirects", "warning"},
	{"stopped after 10 redirects", "redirect"},
	{"unsupported protocol scheme", "redirect"},
	{"failed to parse Location header", "redirect"},
	{"no such host", "no such host"},
	{"server gave HTTP response to HTTPS client", "tls"},
	{"tls: ", "tls"},
	{"malformed", "protocol"},
	{"transport connection broken", "protocol"},
	{"Client.Timeout exceeded", "late"},
	{"context deadline exceeded", "late"},
	{"command timed out", "late"},
	{"i/o timeout", "late"},
	{"connection refused", "refused"},
	{"connection reset", "closed"},
	{"EOF", "closed"},
}

// meaning translates the text of a kubelet's event into words common to both sides.
func meaning(message string) string {
	if code, ok := strings.CutPrefix(message, "probe failed: HTTP probe failed with statuscode: "); ok {
		return "status " + code
	}
	for _, m := range words {
		if strings.Contains(message, m.part) {
			return m.word
		}
	}
	return strings.TrimPrefix(message, "probe failed: ")
}

// meant translates Sonde's result into the same words.
func meant(r probe.Result) string {
	if r.Outcome == probe.Success {
		return "" // the kubelet has no event for it
	}
	switch r.Reason {
	case probe.ReasonHTTPStatus:
		status, _, _ := strings.Cut(r.Detail, ",")
		if _, after, isRedirected := strings.Cut(status, ": "); isRedirected { // after a redirect to 127.0.0.1:80: status 400
			return after
		}
		return status
	case probe.ReasonHTTPRedirect:
		if r.Outcome == probe.Failure {
			return "redirect"
		}
		return r.Outcome.String()
	case probe.ReasonHTTPProtocol:
		return "protocol"
	case probe.ReasonDNSNotFound:
		return "no such host"
	case probe.ReasonTLSFailed:
		return "tls"
	case probe.ReasonHTTPTimeout, probe.ReasonDNSTimeout, probe.ReasonTCPTimeout, probe.ReasonTLSTimeout, probe.ReasonExecTimeout:
		return "late"
	case probe.ReasonTCPRefused:
		return "refused"
	case probe.ReasonTCPClosed, probe.ReasonTCPReset:
		return "closed"
	case probe.ReasonExecExit, probe.ReasonExecSignal:
		how, output, _ := strings.Cut(r.Detail, ": ")
		if how == "killed by signal" {
			_, output, _ = strings.Cut(output, ": ")
		}
		return output
	}
	if r.Outcome == probe.Unknown {
		return "error"
	}
	return r.Detail
}

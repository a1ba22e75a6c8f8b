//go:build !386 && !s390x

package dial

import (
	"net/netip"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Fault returns the result of an attempt that a fault has ended. It is the same as
// that of a connection from Open.
func (d *Dialer) Fault(a *nonblock.Attempt, f Fault) probe.Result {
	stage := Transferring
	if f.op == "dial" {
		stage = Connecting
	}
	outcome, why := classifyErrno(stage, f.number)
	switch {
	case why != "":
	case f.number.Timeout():
		why = stage.timeout()
	default:
		why = stage.other()
	}
	text := d.where(a, f.op)
	if f.call != "" {
		text = append(text, f.call...)
		text = append(text, ": "...)
	}
	return probe.Result{Outcome: outcome, Reason: why, Detail: string(append(text, f.number.Error()...))}
}

// Late returns the result of an attempt whose deadline has passed before the
// connection stood and everything was sent.
func (d *Dialer) Late(a *nonblock.Attempt) probe.Result {
	op := "write"
	if Dialling(a) {
		op = "dial"
	}
	detail := append(d.where(a, op), "i/o timeout"...)
	return probe.Result{Outcome: probe.Failure, Reason: probe.ReasonTCPTimeout, Detail: string(detail)}
}

// where begins an error's text as package net does: "read tcp ", both addresses,
// as far as they are known, and a colon.
func (d *Dialer) where(a *nonblock.Attempt, op string) []byte {
	var from netip.AddrPort
	switch {
	case op != "dial":
		from = localAddress(a.FD)
	case d.source.IsValid():
		from = netip.AddrPortFrom(d.source, 0)
	}
	_, to, _ := d.Spot(&a.Target)
	text := make([]byte, 0, 160)
	text = append(append(text, op...), " tcp "...)
	if from.IsValid() {
		text = append(from.AppendTo(text), "->"...)
	}
	return append(to.AppendTo(text), ": "...)
}

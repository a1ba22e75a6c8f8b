package engine

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// isolation decides whether the engine is cut off from its targets, or from its name
// servers. scheduler.mu guards it.
type isolation struct {
	network health.Isolation // of addresses
	names   health.Isolation // of lookups
	logged  bool             // a line says that the engine is isolated
}

// addressType says what an answer from an address is evidence of.
type addressType uint8

const (
	localAddress   addressType = iota // nothing: it is none, or this machine's loopback
	networkAddress                    // the network
	nameAddress                       // the network and the name servers
)

// typeOf returns the type of a target's address.
func typeOf(address string) addressType {
	if address == "" || address == "localhost" || address == "::1" || strings.HasPrefix(address, "127.") {
		return localAddress
	}
	if _, err := netip.ParseAddr(address); err != nil {
		return nameAddress
	}
	return networkAddress
}

// begin says that an attempt begins of a target that has answered the latest one.
func (i *isolation) begin(address string, is addressType) {
	if i.network.Begin(address); is == nameAddress {
		i.names.Begin(address)
	}
}

// answer says that a target has answered at now.
func (i *isolation) answer(is addressType, now int64) {
	if i.network.Answer(now); is == nameAddress {
		i.names.Answer(now)
	}
}

// withdraw takes a begin back.
func (i *isolation) withdraw(is addressType) {
	if i.network.Withdraw(); is == nameAddress {
		i.names.Withdraw()
	}
}

// until returns when the engine no longer counts as cut off; 0 if it does not at all.
func (i *isolation) until() int64 { return max(i.network.Until(), i.names.Until()) }

// judgeSilence replaces the result of an attempt that has had no answer if that is because
// the engine is cut off. It notes whether the target has answered.
func (sc *scheduler) judgeSilence(a *attempt, res *probe.Result, now int64) {
	s, rule := a.slot, &a.spec.rule
	if s.addressType == localAddress || res.Reason.BlamesEngine() {
		return
	}
	i, began, follows := &sc.isolation, now-int64(res.Took), 2*int64(rule.Period)
	var isolated bool
	switch evidenceOf(res, int64(rule.Timeout)) {
	case probe.Answered, probe.Interrupted:
		s.answered = true
		i.answer(s.addressType, now)
		sc.setIsolated(now)
		return
	case probe.Silent:
		isolated = i.network.Silence(began, now, follows)
	case probe.NameUnanswered:
		isolated = i.names.Silence(began, now, follows)
	default:
		if s.answered && passed(res) { // it needs no network, as an earlier engine may have known
			s.answered = false
			i.withdraw(s.addressType)
		}
		return
	}
	first := s.answered && res.Took < rule.Timeout/2
	switch {
	case sc.noIsolationCheck || rule.Compatibility == probe.Kubelet:
	case isolated:
		sc.setIsolated(now)
		res.Outcome = probe.Unknown
		res.Detail = "no target answers any more, this one neither (" + string(res.Reason) + "): " + res.Detail
		res.Reason = probe.ReasonIsolated
	case first && res.Outcome == probe.Failure: // what fails at once fails before there is any evidence about the others
		res.Outcome = probe.Unknown
		res.Detail = "for the first time, counts if it fails again: " + res.Detail
	}
	s.answered = s.answered && isolated
}

// evidenceOf returns what a result says about the network. A plugin's own reason says
// that the target answered if something was received.
func evidenceOf(res *probe.Result, timeout int64) probe.Evidence {
	evidence := res.Reason.Evidence()
	switch {
	case passed(res) && res.Timings != (probe.Timings{}):
		return probe.Answered
	case res.Outcome != probe.Failure || evidence != probe.NoEvidence:
		return evidence
	case res.Timings.FirstByte > 0:
		return probe.Answered
	case res.Timings.Connect > 0 || int64(res.Took) >= timeout && res.Reason != probe.ReasonExecTimeout:
		return probe.Silent
	}
	return probe.NoEvidence
}

// setIsolated publishes whether the engine is isolated, and logs a change.
func (sc *scheduler) setIsolated(now int64) {
	i := &sc.isolation
	until := i.until()
	isolated := now < until
	if !isolated && !i.logged {
		return
	}
	sc.monitor.setIsolatedUntil(until)
	if isolated != i.logged {
		i.logged = isolated
		sc.lines = append(sc.lines, isolationLine(isolated))
	}
}

// isolationLine says that the engine is cut off, or no longer.
type isolationLine bool

func (l isolationLine) write(to *slog.Logger) {
	if l {
		to.Log(context.Background(), slog.LevelError, "engine isolated: no target, or no name server, answers any more; targets do not fail for it")
	} else {
		to.Log(context.Background(), slog.LevelInfo, "engine no longer isolated")
	}
}

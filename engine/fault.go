package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// maxFaultDetail bounds the recorded detail of a fault, in bytes.
	maxFaultDetail = 512

	// faultWindow is the number of latest attempts that Fault.Of covers at most.
	faultWindow = 100
)

// Fault is the latest attempt of a probe on its instance that found a problem: a failure, a warning or, with probe.ErrorFails, an
// attempt that could not be made. It is kept even if later attempts succeed. While the probe fails, a warning does not replace a
// failure. The zero Fault means none. It can be encoded as JSON.
type Fault struct {
	Outcome probe.Outcome `json:"o,omitempty"`
	Reason  probe.Reason  `json:"r,omitempty"`
	Detail  string        `json:"d,omitempty"` // at most 512 bytes
	At      time.Time     `json:"at,omitzero"` // when the attempt finished

	// Times is the number of the latest Of attempts that had that Outcome. Of is at most 100, and counts only attempts in
	// Records.Outcomes. Both are 0 if unknown.
	Times int32 `json:"-"`
	Of    int32 `json:"-"`

	// Mixed reports that the attempts with that Outcome are not just the latest ones: other outcomes came in between or after.
	Mixed bool `json:"-"`
}

// Exists reports whether f is not the zero Fault.
func (f *Fault) Exists() bool { return !f.At.IsZero() }

// Text returns the detail. If Mixed is set, it is preceded by the share of such attempts, and their age at the time now: "31 of
// the last 100 attempts failed, the last 2s ago: status 500".
func (f *Fault) Text(now time.Time) string {
	if !f.Mixed {
		return f.Detail
	}
	text := f.Share()
	if ago := now.Sub(f.At); ago >= time.Second {
		text += ", the last " + probe.Brief(ago.Truncate(time.Second)) + " ago"
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// Share returns the number of latest attempts with that outcome as text: "31 of the last 100 attempts failed".
func (f *Fault) Share() string {
	did := "failed"
	switch f.Outcome {
	case probe.Warning:
		did = "warned"
	case probe.Unknown:
		did = "could not run"
	}
	return fmt.Sprintf("%d of the last %d attempts %s", f.Times, f.Of, did)
}

// fault is a compact Fault.
type fault struct {
	at      int64
	reason  probe.Reason
	detail  string
	outcome probe.Outcome
}

// isFault reports whether the result of an attempt is a Fault under rule r.
func isFault(r *probe.Rule, res *probe.Result) bool {
	switch res.Outcome {
	case probe.Success:
		return false
	case probe.Unknown:
		return r.OnError == probe.ErrorFails && !res.Reason.IsNeverCounted()
	}
	return true
}

// noteFault records a Fault. It needs mu.
func (s *slot) noteFault(f fault) {
	if len(f.detail) > maxFaultDetail {
		f.detail = strings.Clone(probe.CleanText(f.detail, maxFaultDetail))
	}
	r := s.makeRare()
	if r.fault == nil {
		r.fault = new(fault)
	} else if f.outcome == probe.Warning && s.state.Verdict == probe.Failing && r.fault.outcome != probe.Warning {
		return
	}
	*r.fault = f
}

// forgetFault discards the Fault of an earlier instance, handler or target. It needs mu.
func (s *slot) forgetFault() {
	if s.rare != nil {
		s.rare.fault = nil
	}
}

// currentFault returns the Fault of a probe.
func (s *slot) currentFault(c *clock.Clock) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault(c)
}

// fault returns the Fault of a probe. It needs mu.
func (s *slot) fault(c *clock.Clock) (f Fault) {
	if s.rare == nil || s.rare.fault == nil {
		return f
	}
	own := s.rare.fault
	f = Fault{Outcome: own.outcome, Reason: own.reason, Detail: own.detail, At: c.Time(own.at)}
	if s.rare.outcomes != nil {
		f.Times, f.Of, f.Mixed = s.rare.outcomes.share(own.outcome)
		return f
	}
	if only := s.onlyOutcome(); only.Outcome == own.outcome {
		f.Times = int32(min(only.Attempts, faultWindow))
		f.Of = f.Times
	}
	return f
}

// share returns how many of the latest attempts had an outcome, the number of attempts considered, and whether those with the
// outcome are not just the latest ones.
func (o *outcomes) share(outcome probe.Outcome) (times, of int32, isMixed bool) {
	total := uint64(0)
	for run := range o.each {
		total += run.Attempts
	}
	runs, skip := 0, total-min(total, faultWindow)
	for run := range o.each {
		skipped := min(skip, run.Attempts)
		skip -= skipped
		n := int32(run.Attempts - skipped)
		if of += n; n > 0 && run.Outcome == outcome {
			times += n
			runs++
		}
	}
	return times, of, runs > 1 || runs == 1 && o.current.Outcome != outcome
}

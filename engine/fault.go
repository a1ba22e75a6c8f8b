package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

const (
	// maxFaultDetail bounds what is remembered of the detail of a fault, in bytes.
	maxFaultDetail = 512

	// faultWindow is how many of the latest attempts Fault.Times counts.
	faultWindow = 100
)

// Fault is the latest attempt of a probe on its instance that has found something wrong: a failure, a warning or, with
// probe.ErrorFails, an attempt that could not be made. It stands beside the latest attempt, which may have succeeded. While the
// probe fails, it is what a failure counts as, and no warning. The zero Fault is none. It can be written as JSON.
type Fault struct {
	Outcome probe.Outcome `json:"o,omitempty"`
	Reason  probe.Reason  `json:"r,omitempty"`
	Detail  string        `json:"d,omitempty"` // at most 512 bytes
	At      time.Time     `json:"at,omitzero"` // when the attempt ended

	// Times is how many of the latest attempts had that Outcome, and Of of how many, up to 100: of those of
	// Records.Outcomes. Both are 0 if that is not known.
	Times int32 `json:"-"`
	Of    int32 `json:"-"`

	// Mixed says that other attempts came between: those with that Outcome are not just the latest ones.
	Mixed bool `json:"-"`
}

// Exists reports whether f is not the zero Fault.
func (f *Fault) Exists() bool { return !f.At.IsZero() }

// Text returns the detail. If other attempts came between it says how often the attempts were like that, as of a time:
// "31 of the last 100 attempts failed, the last 2s ago: status 500".
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

// Share returns how many of the latest attempts were like that: "31 of the last 100 attempts failed".
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

// fault is a Fault in less memory.
type fault struct {
	at      int64
	reason  probe.Reason
	detail  string
	outcome probe.Outcome
}

// isFault reports whether the result of an attempt is a Fault.
func isFault(r *probe.Rule, res *probe.Result) bool {
	switch res.Outcome {
	case probe.Success:
		return false
	case probe.Unknown:
		return r.OnError == probe.ErrorFails && !res.Reason.IsNeverCounted()
	}
	return true
}

// noteFault remembers a Fault. It needs mu.
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

// forgetFault forgets the Fault of an earlier instance, handler or target. It needs mu.
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

// share returns how many of the latest attempts had an outcome, of how many, and whether these are not just the latest ones.
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

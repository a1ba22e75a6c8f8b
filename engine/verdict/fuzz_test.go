package verdict_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// FuzzStep subjects one probe to arbitrary events and checks the laws for each step. The first four bytes are the rule, and each
// further three bytes an event.
func FuzzStep(f *testing.F) {
	f.Add([]byte{2, 1, 3, 0, 0x0c, 0x71, 0, 0x01, 1, 1, 0x01, 3, 1, 0x01, 3, 1})
	f.Add([]byte{3, 1, 2, 0, 0x04, 0x31, 0, 0x01, 3, 9, 0x01, 3, 9, 0x04, 0x11, 9, 0x04, 0x32, 9})
	f.Add([]byte{1, 1, 2, 2, 0x04, 0x21, 0, 0x01, 0, 9, 0x01, 1, 9, 0x04, 0xa1, 9})
	f.Fuzz(func(t *testing.T, b []byte) { walkAlong(t, b) })
}

// TestTheLawsHoldOnRandomWalks is the part of FuzzStep that runs in each test run.
func TestTheLawsHoldOnRandomWalks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 4+3*100)
	for range 1000 {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if walkAlong(t, b); t.Failed() {
			return
		}
	}
}

func walkAlong(t *testing.T, b []byte) {
	if len(b) < 4 {
		return
	}
	w := walk{t: t, rule: ruleFrom(b[:4]), now: t0}
	for b = b[4:]; len(b) >= 3; b = b[3:] {
		w.now = w.now.Add(time.Duration(b[2]) * time.Second / 4)
		w.step(eventFrom(b[0], b[1], w.now))
	}
}

func ruleFrom(b []byte) probe.Rule {
	r := probe.Rule{
		Kind:             probe.Kind(b[0]%3) + probe.Startup,
		SuccessThreshold: 1,
		FailureThreshold: int32(b[2]%4) + 1,
		InitialDelay:     time.Duration(b[3]>>4) * time.Second,
		OnError:          probe.OnError(b[3] & 1),
		Compatibility:    probe.Compatibility(b[3] >> 1 & 1),
	}
	if r.Kind == probe.Readiness {
		r.SuccessThreshold = int32(b[1]%4) + 1
	}
	if r.Kind != probe.Startup && b[1]&0x80 != 0 {
		r.Policy, r.SuccessThreshold, r.FailureThreshold = probe.PolicyEvidence, 0, 0
	}
	return r
}

// eventFrom creates an event from the bits of two bytes.
func eventFrom(what, how byte, now time.Time) verdict.Event {
	in := probe.Instance{
		ID:          []string{"a", "b", "c", ""}[what>>1&3],
		Phase:       probe.Phase(what>>3) % (probe.Gone + 1),
		Since:       now.Add(-time.Duration(what>>6) * 5 * time.Second),
		Managed:     how&0x10 != 0,
		Terminating: how&0xc0 == 0xc0,
	}
	if what&1 == 0 {
		return verdict.Event{Instance: in, Started: how&0x20 != 0}
	}
	return verdict.Event{Attempted: true, Instance: in, Outcome: probe.Outcome(how % 4), Extra: how&0x08 != 0}
}

// walk is a walk of one probe through events, with a record of its own.
type walk struct {
	t     *testing.T
	rule  probe.Rule
	now   time.Time
	state verdict.State
	seen  []probe.Outcome // outcomes that counted, on this instance, since its last hold
}

// step is one event and its effect.
type step struct {
	rule          probe.Rule
	event         verdict.Event
	now           time.Time
	before, after verdict.State
	next          verdict.Next
	seen          []probe.Outcome // including the outcome of this event, if it may count
}

func (w *walk) step(e verdict.Event) {
	s := step{rule: w.rule, event: e, now: w.now, before: w.state}
	s.after, s.next = verdict.Step(w.rule, w.state, e, w.now)
	again, nextAgain := verdict.Step(w.rule, w.state, e, w.now)
	if again != s.after || nextAgain != s.next {
		w.t.Errorf("equal input gave another output: %+v %+v, then %+v %+v", s.after, s.next, again, nextAgain)
	}
	w.remember(&s)
	w.state = s.after
	for name, holds := range laws {
		if !holds(s) {
			w.t.Errorf("%s:\n  rule %+v\n event %+v\nbefore %+v\n after %+v\n  next %+v", name, s.rule, s.event, s.before, s.after, s.next)
		}
	}
}

// remember records the consecutive outcomes on which a verdict may be based.
func (w *walk) remember(s *step) {
	if s.after.Instance != s.before.Instance && s.rule.Compatibility == probe.Mended {
		w.seen = nil
	}
	last := probe.Unknown
	if n := len(w.seen); n > 0 {
		last = w.seen[n-1]
	}
	switch o, ok := counted(s); {
	case !ok:
	case s.event.Extra && o == probe.Failure && last == probe.Success:
		w.seen = append(w.seen, probe.Unknown) // the run has ended
	case !s.event.Extra || o == probe.Success:
		w.seen = append(w.seen, o)
	}
	s.seen = w.seen
	if s.after.OnHold {
		w.seen = nil
	}
}

// counted returns the outcome as which an outcome counts, and whether it counts at all.
func counted(s *step) (probe.Outcome, bool) {
	o, in := s.event.Outcome, s.event.Instance
	terminating := in.Terminating && s.rule.Kind != probe.Readiness
	switch {
	case !s.event.Attempted, in.ID == "", in.ID != s.before.Instance:
		return o, false
	case s.before.OnHold, s.before.Down, terminating:
		return o, false
	case o == probe.Unknown:
		return probe.Failure, s.rule.OnError == probe.ErrorFails
	case o == probe.Warning:
		return probe.Success, true
	}
	return o, true
}

// laws hold for every step. Each name states the requirement or the prohibition.
var laws = map[string]func(step) bool{
	"an unknown outcome changes nothing but the errors": func(s step) bool {
		if !s.event.Attempted || s.event.Outcome != probe.Unknown || s.rule.OnError == probe.ErrorFails {
			return true
		}
		before, after := s.before, s.after
		before.Errors, after.Errors = 0, 0
		return before == after && !s.next.Changed
	},
	"on hold nothing changes before another instance, or the end of the driver": func(s step) bool {
		looked := !s.event.Attempted
		freed := looked && (s.event.Instance.ID != s.before.Instance || !s.event.Instance.Managed)
		return !s.before.OnHold || freed || s.before == s.after
	},
	"a hold that ends leaves the verdict as it is": func(s step) bool {
		same := s.before.Instance == s.after.Instance
		return !s.before.OnHold || !same || s.event.Instance.Phase != probe.Running || s.event.Instance.Terminating ||
			s.before.Verdict == s.after.Verdict
	},
	"a failure outside the regular times changes no verdict and extends no run": func(s step) bool {
		o, _ := counted(&s)
		return !s.event.Attempted || !s.event.Extra || o == probe.Success ||
			s.before.Verdict == s.after.Verdict && s.after.Run <= s.before.Run
	},
	"an attempt changes the verdict only after as many equal outcomes as the threshold": func(s step) bool {
		if !s.event.Attempted || s.before.Verdict == s.after.Verdict || s.rule.Policy == probe.PolicyEvidence {
			return true
		}
		if s.after.Verdict == probe.Passing {
			return endsWith(s.seen, probe.Success, s.rule.SuccessThreshold)
		}
		return s.after.Verdict == probe.Failing && endsWith(s.seen, probe.Failure, s.rule.FailureThreshold)
	},
	"as many equal outcomes as the threshold change the verdict": func(s step) bool {
		if o, counts := counted(&s); !counts || s.event.Extra && o == probe.Failure || s.rule.Policy == probe.PolicyEvidence {
			return true
		}
		passes := endsWith(s.seen, probe.Success, s.rule.SuccessThreshold)
		fails := endsWith(s.seen, probe.Failure, s.rule.FailureThreshold)
		return (!passes || s.after.Verdict == probe.Passing) && (!fails || s.after.Verdict == probe.Failing)
	},
	"with evidence a probe fails only after failures that outweigh the successes among and after them by 20": func(s step) bool {
		fails := s.event.Attempted && s.before.Verdict != probe.Failing && s.after.Verdict == probe.Failing
		return s.rule.Policy == probe.PolicyRuns || !fails || alarmed(s.before) || greatestSum(s.seen, 5, -1) >= 20
	},
	"with evidence a probe that has failed passes only after successes that outweigh failures by 20": func(s step) bool {
		passes := s.event.Attempted && s.after.Verdict == probe.Passing && alarmed(s.before)
		return !passes || greatestSum(s.seen, -5, 1) >= 20
	},
	"with evidence four failures in a row fail, and twenty successes pass": func(s step) bool {
		if o, counts := counted(&s); !counts || s.event.Extra && o == probe.Failure || s.rule.Policy == probe.PolicyRuns {
			return true
		}
		return (!endsWith(s.seen, probe.Failure, 4) || s.after.Verdict == probe.Failing) && (!endsWith(s.seen, probe.Success, 20) || s.after.Verdict == probe.Passing)
	},
	"a score is from 0 to 20, and one of a probe that passes below 20": func(s step) bool {
		score := s.after.Score()
		return score >= 0 && score <= probe.MaxScore && (s.after.Verdict != probe.Passing || alarmed(s.after) || score < probe.MaxScore)
	},
	"Changed is set exactly when instance or verdict differ": func(s step) bool {
		differ := s.before.Instance != s.after.Instance || s.before.Verdict != s.after.Verdict
		return s.next.Changed == differ
	},
	"without an instance the state is zero": func(s step) bool {
		return s.after.Instance != "" || s.after == verdict.State{}
	},
	"an answer that comes too late changes nothing": func(s step) bool {
		_, counts := counted(&s)
		return counts || !s.event.Attempted || s.event.Outcome == probe.Unknown || s.before == s.after
	},
	"a look at nothing changes nothing": func(s step) bool {
		in := s.event.Instance
		nothing := in.Phase == probe.Absent || in.ID == ""
		return s.event.Attempted || !nothing || s.before == s.after
	},
	"an attempt that could be made ends the errors in a row": func(s step) bool {
		_, counts := counted(&s)
		return !counts || (s.after.Errors == 0) == (s.event.Outcome != probe.Unknown)
	},
	"only a look meets another instance": func(s step) bool {
		return !s.event.Attempted || s.before.Instance == s.after.Instance
	},
	"readiness is never on hold": func(s step) bool {
		return s.rule.Kind != probe.Readiness || !s.after.OnHold
	},
	"without a driver only what has started is on hold": func(s step) bool {
		in := s.event.Instance
		if s.event.Attempted || in.Phase == probe.Absent || in.ID == "" || in.Managed {
			return true
		}
		return !s.after.OnHold || s.rule.Kind == probe.Startup && s.after.Verdict == probe.Passing
	},
	"what is on hold has a verdict": func(s step) bool {
		return !s.after.OnHold || s.after.Verdict != probe.Undecided && (s.after.Run == 0 || alarmed(s.after))
	},
	"what does not run never passes": func(s step) bool {
		return !s.after.Down || s.after.Verdict != probe.Passing && !s.after.OnHold
	},
	"an attempt is made only where something runs and nothing is held": func(s step) bool {
		in := s.event.Instance
		return s.next.WaitReason != verdict.NotWaiting || s.event.Attempted || in.Phase == probe.Running && in.ID != "" &&
			!s.after.OnHold && !s.after.Down && s.event.Started == (s.rule.Kind != probe.Startup) &&
			s.now.Sub(in.Since) >= s.rule.InitialDelay
	},
	"a time to look again is in the future, and only for the initial delay": func(s step) bool {
		return s.next.At.IsZero() == (s.next.WaitReason != verdict.InitialDelay) && (s.next.At.IsZero() || s.next.At.After(s.now))
	},
	"no count is negative": func(s step) bool {
		return s.after.Run >= 0 && s.after.Errors >= 0
	},
}

// alarmed reports whether a score is that of a failed probe.
func alarmed(s verdict.State) bool { return s.Policy == probe.PolicyEvidence && s.Run > probe.MaxScore }

// greatestSum returns the maximum sum of weights over all suffixes of seen: a CUSUM without its barrier.
func greatestSum(seen []probe.Outcome, failure, success int) (greatest int) {
	sum := 0
	for i := len(seen) - 1; i >= 0; i-- {
		switch seen[i] {
		case probe.Failure:
			sum += failure
		case probe.Success:
			sum += success
		}
		greatest = max(greatest, sum)
	}
	return greatest
}

// endsWith reports whether the last n outcomes are all o.
func endsWith(seen []probe.Outcome, o probe.Outcome, n int32) bool {
	if len(seen) < int(n) {
		return false
	}
	for _, each := range seen[len(seen)-int(n):] {
		if each != o {
			return false
		}
	}
	return true
}

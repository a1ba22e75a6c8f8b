package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Status is a copy of what is known about one probe.
type Status struct {
	ID          probe.ID
	Rule        probe.Rule // with its defaults filled in
	HandlerName string
	Settings    string            // of the handler, to be shown: as Apply was given it
	Labels      map[string]string // of the target; shared, do not write

	Instance   string        // the ID of the instance that Verdict is about; empty before the first
	Verdict    probe.Verdict // what is published
	Decided    bool          // attempts on Instance have decided a verdict; before, Verdict is the initial one
	Warned     bool          // it passes with warnings, as many as failures would make it fail, and not as many successes since: see verdict.Warnings; or it fails, and its effect is probe.EffectWarn
	Blind      bool          // attempts cannot be made, for a reason other than the engine's own: as many in a row were unknown as failures would make the probe fail
	Tried      probe.Outcome // the best outcome that has counted since the probe has its handler, rule and target: Success, Failure, or Unknown before the first
	Definition uint32        // of the probe: see the function Definition
	Since      time.Time     // when Verdict was published
	Changes    uint64        // how often Verdict or Instance has changed; a subscriber sees a gap if it missed some

	Last       probe.Outcome      // Success or Failure: the outcome of the current run
	Run        int32              // how many attempts in a row had the outcome Last, without failures that did not count; with the policy "evidence" the score, from 0 to probe.MaxScore, at which a probe that passes fails; one that fails passes at 0
	Errors     int32              // how many attempts in a row had the outcome Unknown
	OnHold     bool               // no attempts until there is another instance
	WaitReason verdict.WaitReason // why the probe makes no attempts; NotWaiting if it does

	Result     probe.Result // the latest attempt on Instance
	ResultAt   time.Time    // when it ended; zero before the first
	Fault      Fault        // the latest attempt on Instance that has found something wrong
	Next       time.Time    // when the next attempt is due; zero if none is due, or one is in flight
	Attempts   [4]uint64    // attempts so far, by outcome
	Attempting bool         // an attempt is in flight
	Extra      bool         // the attempt in flight, or else the latest one, is outside the regular times: its failure does not count

	Ejection *Ejection // nil unless gateways have observed failures: see Engine.Observe; shared, do not write

	Removed bool // Apply has removed the probe; only Subscription.Next sets it
}

// Threshold returns how long Run has to be for a verdict: Run and Threshold are the
// "2/3" of a status table. With the policy "evidence" it is probe.MaxScore.
func (s Status) Threshold() int32 { return s.Rule.Threshold(s.Last) }

// IsFaulty reports whether Fault, rather than Result, says why the probe is as it is: it fails by its attempts, or warns.
func (s *Status) IsFaulty() bool {
	return s.Fault.Exists() && (s.Warned || s.Decided && s.Verdict == probe.Failing)
}

// FailsInstance reports whether the probe fails an instance, so that it is to be replaced. Readiness never does (K137).
func (s *Status) FailsInstance(id string) bool {
	return s.Verdict == probe.Failing && s.Instance == id && s.ID.Kind != probe.Readiness && s.Rule.Effect == probe.EffectFail
}

// TargetStatus summarizes the probes of a target.
type TargetStatus struct {
	Target   string
	Address  string            // as in the probes' Target, or else Instance, likewise Ports and Labels
	Ports    map[string]uint16 // shared, do not write; nil for a target without probes
	Labels   map[string]string // likewise; those of Admin.Label for a target without probes
	Instance probe.Instance    // as its driver has reported it

	State probe.TargetState // what instance and probes add up to: see package verdict
	Since time.Time         // when State began
	Cause Cause             // of State

	// TroubledDependency is the target that this one depends on and that is in trouble or
	// unreachable, while State is probe.StateUnreachable, or would be without a Pause. See Change.Dependencies.
	TroubledDependency string

	// Damping is nil unless the target has flapped, and is to be damped. While it is damped State is
	// probe.StateDamped, unless it is paused, unreachable, not there or has ended, and Gateway is
	// probe.GatewayDown unless the target drains. Shared, do not write. See Change.Dampings.
	Damping *Damping

	// Pause is nil unless the target is paused: then State is probe.StatePaused if it would be
	// another one than absent, stopped or completed. Shared, do not write. See Admin.Pause.
	Pause *Pause

	Started bool // the instance runs, and its startup probes passed or there are none
	Ready   bool // it has started, and its readiness probes pass or there are none
	Live    bool // none of its startup and liveness probes fails

	// Gateway is what a gateway is to do with the target. It follows from Instance, Ready,
	// Decided, Ejection, Damping and Pause, and from the warnings of its readiness probes.
	Gateway probe.GatewayState

	Ejection *Ejection // the first one of its probes, or nil; shared, do not write

	// Decided says that Ready is known. A target that is not ready and not Decided has only
	// begun: no attempt has found out yet, on its first instance, whether it is ready.
	Decided bool

	Probes []Status // sorted by ID

	Removed bool // there is no such target now; only a TargetSubscription sets it
}

// Cause is why a target is in its state: its instance, or the worst of its probes. Of a target
// that is ready it is zero.
type Cause struct {
	Probe  probe.ID     // the worst probe; zero if they are well, or do not matter
	Reason probe.Reason // of the instance, or of the probe's Fault if it fails, or else of its latest attempt
	Detail string       // likewise; of a Fault its Text
}

// Summary counts targets and probes by their state. The fields of targets are those of
// TargetStatus.
type Summary struct {
	Targets  int
	Started  int
	Ready    int
	Live     int
	States   TargetStates
	Verdicts map[KindVerdict]int // probes
}

// TargetStates are numbers of targets, by state.
type TargetStates [probe.TargetStates]int

// InTrouble returns how many targets are in trouble: see probe.TargetState.
func (s *TargetStates) InTrouble() (n int) {
	for state, targets := range s {
		if probe.TargetState(state).InTrouble() {
			n += targets
		}
	}
	return n
}

// KindVerdict is a kind of probes with a verdict.
type KindVerdict struct {
	Kind    probe.Kind
	Verdict probe.Verdict
}

func (s *Summary) add(t *TargetStatus) {
	s.Targets++
	s.Started += one(t.Started)
	s.Ready += one(t.Ready)
	s.Live += one(t.Live)
	for i := range t.Probes {
		s.Verdicts[KindVerdict{t.Probes[i].ID.Kind, t.Probes[i].Verdict}]++
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Changes counts the probes that an Apply has changed.
type Changes struct {
	Added    int // are new
	Updated  int // have another rule, or other labels, and keep their state
	Replaced int // have another handler or target, and start a new run
	Removed  int
	Kept     int // have not changed
}

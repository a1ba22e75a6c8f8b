package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Status is the status of one probe. It is a copy.
type Status struct {
	ID          probe.ID
	Rule        probe.Rule // with its defaults set
	HandlerName string
	Settings    string            // of the handler, for display: as passed to Apply
	Labels      map[string]string // of the target; shared, read-only

	Instance   string        // ID of the instance that Verdict is about; empty before the first instance
	Verdict    probe.Verdict // published verdict
	Decided    bool          // attempts on Instance have decided a verdict; otherwise Verdict is the initial one
	Warned     bool          // it passes with warnings (see verdict.Warnings), or fails with the effect probe.EffectWarn
	Blind      bool          // as many attempts in a row could not be made as failures would decide: see verdict.Blinds
	Tried      probe.Outcome // best outcome that counted with the current handler, rule and target; Unknown before the first
	Definition uint32        // of the probe: see func Definition
	Since      time.Time     // when Verdict was published
	Changes    uint64        // number of changes of Verdict or Instance; a gap tells a subscriber that it missed some

	Last probe.Outcome // Success or Failure: the outcome of the current run
	// Run is the number of consecutive attempts with the outcome Last, without failures that did not count. With the policy
	// "evidence" it is the score, from 0 to probe.MaxScore: a passing probe fails at the maximum, a failing one passes at 0.
	Run        int32
	Errors     int32              // consecutive attempts with the outcome Unknown
	OnHold     bool               // no attempts until there is a new instance
	WaitReason verdict.WaitReason // why the probe makes no attempts; NotWaiting if it makes attempts

	Result     probe.Result // result of the latest attempt on Instance
	ResultAt   time.Time    // when that attempt finished; zero before the first
	Fault      Fault        // latest attempt on Instance that found a problem
	Next       time.Time    // when the next attempt is due; zero if none is due, or an attempt is in flight
	Attempts   [4]uint64    // number of attempts so far, by outcome
	Attempting bool         // an attempt is in flight
	Extra      bool         // the attempt in flight, or else the latest one, is outside the regular times: its failure does not count

	Ejection *Ejection // nil unless failures observed by gateways have ejected the target: see Engine.Observe; shared, read-only

	Removed bool // the probe was removed; set only by Subscription.Next
}

// Threshold returns the Run at which a verdict is decided: Run and Threshold are the "2/3" in a status table. With the policy
// "evidence" it is probe.MaxScore.
func (s Status) Threshold() int32 { return s.Rule.Threshold(s.Last) }

// IsFaulty reports whether Fault, rather than Result, explains the state of the probe: attempts made it fail, or it warns.
func (s *Status) IsFaulty() bool {
	return s.Fault.Exists() && (s.Warned || s.Decided && s.Verdict == probe.Failing)
}

// FailsInstance reports whether the probe fails an instance, so that it must be replaced. Readiness probes never do (K137).
func (s *Status) FailsInstance(id string) bool {
	return s.Verdict == probe.Failing && s.Instance == id && s.ID.Kind != probe.Readiness && s.Rule.Effect == probe.EffectFail
}

// TargetStatus is the status of a target and its probes.
type TargetStatus struct {
	Target   string
	Address  string            // from the probes' Target, unless Instance overrides it; the same applies to Ports
	Ports    map[string]uint16 // shared, read-only; nil for a target without probes
	Labels   map[string]string // shared, read-only; for a target without probes, those set by Admin.Label
	Instance probe.Instance    // as reported by its driver

	State probe.TargetState // follows from the instance and the probes: see package verdict
	Since time.Time         // when State began
	Cause Cause             // why the target is in State

	// TroubledDependency is the dependency of this target that is in trouble or unreachable, while State is
	// probe.StateUnreachable, or would be without a Pause. See Change.Dependencies.
	TroubledDependency string

	// Damping is nil unless the target has a damping rule and has flapped. While the target is damped, State is
	// probe.StateDamped, unless the target is paused, unreachable, absent or ended, and Gateway is probe.GatewayDown unless the
	// target drains. Shared, read-only. See Change.Dampings.
	Damping *Damping

	// Pause is nil unless the target is paused. State is then probe.StatePaused, unless it would be absent, stopped or completed.
	// Shared, read-only. See Admin.Pause.
	Pause *Pause

	Started bool // the instance runs, and its startup probes, if any, have passed
	Ready   bool // it has started, and its readiness probes, if any, pass
	Live    bool // no startup or liveness probe fails

	// Gateway determines how a gateway treats the target. It follows from Instance, Ready, Decided, Ejection, Damping and Pause,
	// and from the warnings of its readiness probes.
	Gateway probe.GatewayState

	Ejection *Ejection // the first ejection of its probes, or nil; shared, read-only

	// Decided reports that Ready is known. It is false while attempts on the target's first instance have not determined yet
	// whether the target is ready.
	Decided bool

	Probes []Status // sorted by ID

	Removed bool // the target no longer exists; set only by a TargetSubscription
}

// Cause is the reason for a target's state: its instance, or the worst of its probes. It is zero for a ready target.
type Cause struct {
	Probe  probe.ID     // worst probe; zero if the probes are well, or do not matter
	Reason probe.Reason // of the instance, or of the probe's Fault if that explains its state, or else of the probe's latest attempt
	Detail string       // of the same; for a Fault its Text
}

// Summary counts targets and probes by state. The counts of targets correspond to the fields of TargetStatus.
type Summary struct {
	Targets  int
	Started  int
	Ready    int
	Live     int
	States   TargetStates
	Verdicts map[KindVerdict]int // number of probes
}

// TargetStates has the number of targets in each state.
type TargetStates [probe.TargetStates]int

// InTrouble returns the number of targets in trouble: see probe.TargetState.
func (s *TargetStates) InTrouble() (n int) {
	for state, targets := range s {
		if probe.TargetState(state).InTrouble() {
			n += targets
		}
	}
	return n
}

// KindVerdict is a kind of probe with a verdict.
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

// Changes counts the probes that were changed by an Apply or Change.
type Changes struct {
	Added    int // new
	Updated  int // changed rule, labels or ports, and kept their state
	Replaced int // changed handler or target, and started a new run
	Removed  int
	Kept     int // unchanged
}

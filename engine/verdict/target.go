package verdict

import "github.com/sonde-probe/sonde/probe"

// InstanceState returns the state of a target according to its instance, and whether its probes matter as well. If they do, the
// state of the target is the worst of the returned state and the ProbeStates.
func InstanceState(in *probe.Instance) (s probe.TargetState, probed bool) {
	switch {
	case in.Phase == probe.Absent && in.Reason == probe.ReasonNoStart:
		return probe.StateCannotStart, false
	case in.Phase == probe.Absent:
		return probe.StateAbsent, false
	case in.Phase == probe.Gone:
		return goneState(in), false
	case in.Terminating:
		return probe.StateStopped, false
	case in.Phase != probe.Running:
		return waitingState(in), false
	}
	switch in.Reason {
	case probe.ReasonCrashLoop, probe.ReasonBackOff:
		return probe.StateCrashLooping, true
	case probe.ReasonBudget, probe.ReasonDegraded, probe.ReasonDependency, probe.ReasonPaused, probe.ReasonMaintenance,
		probe.ReasonOwnership, probe.ReasonDamped, probe.ReasonFloor, probe.ReasonReload:
		return probe.StateRestartBlocked, true
	}
	if in.Reason.BlamesRuntime() {
		return probe.StateBlind, true
	}
	return probe.StateReady, true
}

// goneState returns the state of a target that will have no further instance. If its instance was terminated because a probe
// failed, and the driver still has the target, the target has failed.
func goneState(in *probe.Instance) probe.TargetState {
	switch {
	case in.Reason == probe.ReasonNoStart:
		return probe.StateCannotStart
	case in.Reason == probe.ReasonExited, in.Reason == probe.ReasonEnded && in.Retained:
		return probe.StateExited
	case in.Reason == probe.ReasonCompleted:
		return probe.StateCompleted
	}
	return probe.StateStopped
}

// waitingState returns the state of a target whose next instance has not started yet.
func waitingState(in *probe.Instance) probe.TargetState {
	switch {
	case in.Reason == probe.ReasonNoStart, in.Reason == probe.ReasonResources, in.Reason == probe.ReasonRuntimeNoContainer, in.Reason == probe.ReasonRuntimeNoUnit:
		return probe.StateCannotStart
	case in.Reason.BlamesRuntime():
		return probe.StateBlind
	case in.Reason == probe.ReasonRuntimeStop:
		return probe.StateStopped
	case in.Reason == probe.ReasonNotRunning:
		return probe.StateExited
	case in.Reason == probe.ReasonStartAfter || in.Reason == probe.ReasonStarting:
		return probe.StateStarting
	case in.Reason == probe.ReasonBackOff:
		return probe.StateCrashLooping
	case in.Phase == probe.Ended:
		return probe.StateRestarting
	}
	return probe.StateStarting
}

// Findings are the findings of a probe of a running instance.
type Findings struct {
	Verdict probe.Verdict
	Decided bool // attempts on that instance decided Verdict
	Blind   bool // its attempts cannot be made: see Blinds
	Warns   bool // it passes but warns: see Warnings; or it fails, and Effect is probe.EffectWarn
	Effect  probe.Effect
}

// ProbeState returns the state of a target according to one probe of its running instance. started means that the instance has
// started.
func ProbeState(k probe.Kind, f Findings, started bool) probe.TargetState {
	v, isWarning := f.Verdict, f.Effect == probe.EffectWarn
	switch {
	case v == probe.Failing && k != probe.Readiness && !isWarning:
		return probe.StateFailing
	case v == probe.Failing && f.Decided && !isWarning:
		return probe.StateNotReady
	case f.Blind:
		return probe.StateBlind
	case f.Warns:
		return probe.StateDegraded
	case v != probe.Passing && !isWarning && (k == probe.Readiness || k == probe.Startup && !started):
		return probe.StateStarting
	}
	return probe.StateReady
}

// OfDependent returns the state of a target while a target that it depends on is in trouble, given its own state. A target that
// fails or cannot be attempted becomes unreachable. A target that cannot be started, or has exited for good, remains in trouble
// itself, and a degraded target works.
func OfDependent(own probe.TargetState) probe.TargetState {
	switch own {
	case probe.StateCrashLooping, probe.StateRestartBlocked, probe.StateFailing, probe.StateNotReady, probe.StateBlind:
		return probe.StateUnreachable
	}
	return own
}

// Conditions are the conditions of a target that do not follow from its instance and its probes. Several may apply at the same
// time.
type Conditions struct {
	Explained bool // a target that it depends on is in trouble: see OfDependent
	Damped    bool // it flapped too often
	Paused    bool // an operator works on it, or it is under maintenance
}

// Fold returns the state of a target, and its state for gateways, under the conditions. s and g are the states according to its
// instance, whose phase is p, and its probes.
func (c Conditions) Fold(p probe.Phase, s probe.TargetState, g probe.GatewayState) (probe.TargetState, probe.GatewayState) {
	if c.Explained {
		s = OfDependent(s)
	}
	if c.Damped {
		s, g = ofDamped(s), gatewayStateOfDamped(g)
	}
	if c.Paused {
		s, g = ofPaused(s), gatewayStateOfPaused(p, g)
	}
	return s, g
}

// ofPaused returns the state of a paused target: paused, unless the target is absent, or has stopped or completed.
func ofPaused(own probe.TargetState) probe.TargetState {
	switch own {
	case probe.StateAbsent, probe.StateStopped, probe.StateCompleted:
		return own
	}
	return probe.StatePaused
}

// gatewayStateOfPaused returns the state of a paused target for gateways. It drains while its instance runs, whether or not it is
// ready, so that neither a group in panic nor a recovery sends it requests.
func gatewayStateOfPaused(p probe.Phase, own probe.GatewayState) probe.GatewayState {
	if p == probe.Running {
		return probe.GatewayDraining
	}
	return own
}

// ofDamped returns the state of a damped target: damped, whether it is currently ready or failing. An unreachable target stays
// unreachable, and a target that is absent or has ended keeps its state, since it no longer flaps.
func ofDamped(own probe.TargetState) probe.TargetState {
	switch own {
	case probe.StateCrashLooping, probe.StateRestartBlocked, probe.StateFailing, probe.StateNotReady, probe.StateBlind,
		probe.StateRestarting, probe.StateStarting, probe.StateDegraded, probe.StateReady:
		return probe.StateDamped
	}
	return own
}

// gatewayStateOfDamped returns the state of a damped target for gateways: down, unless it drains.
func gatewayStateOfDamped(own probe.GatewayState) probe.GatewayState {
	if own == probe.GatewayDraining {
		return own
	}
	return probe.GatewayDown
}

// IsFlap reports whether a target that was ready and no longer is has flapped: without regard to other conditions, its state is
// one that damping replaces. It has not flapped if another target explains the failure, or if its instance was stopped or
// restarted at the request of an operator.
func IsFlap(in *probe.Instance, own probe.TargetState) bool {
	if in.Reason == probe.ReasonOperatorRestart || in.Reason == probe.ReasonOperatorStop || in.Reason == probe.ReasonRuntimeStop {
		return false
	}
	return ofDamped(own) == probe.StateDamped
}

// ExplainsDependents reports whether a target in state s explains the failures of its dependents: it is in trouble but not
// degraded, or unreachable, or it was stopped.
func ExplainsDependents(s probe.TargetState) bool {
	return s.InTrouble() && s != probe.StateDegraded || s == probe.StateUnreachable || s == probe.StateStopped
}

// GatewayState returns the state of a target for gateways. decided means that it is known whether the target is ready, warned
// that a readiness probe warns, and ejected that requests of gateways failed. An instance that its driver terminates within a
// grace period, because a probe fails or an operator restarts it, drains like one that is being deleted.
func GatewayState(in *probe.Instance, ready, decided, warned, ejected bool) probe.GatewayState {
	isRestarted := in.Managed && (in.Reason == probe.ReasonEnding || in.Reason == probe.ReasonOperatorRestart)
	switch {
	case in.Phase == probe.Running && (in.Terminating || isRestarted):
		return probe.GatewayDraining
	case ready && ejected:
		return probe.GatewayDown
	case ready && warned:
		return probe.GatewayDegraded
	case ready:
		return probe.GatewayReady
	case decided:
		return probe.GatewayDown
	}
	return probe.GatewayUndecided
}

// Blinds reports whether a probe is blind after an attempt with the reason why: errors, the number of consecutive unknown
// outcomes, has reached the number of failures that would decide. A reason that blames the engine never makes a probe blind,
// since the engine reports its own problems.
func Blinds(r probe.Rule, errors int32, why probe.Reason) bool {
	return errors >= r.FailuresToFail() && !why.BlamesEngine()
}

// Concluded reports whether the attempts counted in a state are enough for a verdict.
func Concluded(r probe.Rule, s State) bool { return s.decided(&r) }

// Decided reports whether attempts have decided the verdict of a restored state. It may return false for an initial verdict that
// attempts confirmed, if the run was discarded.
func Decided(r probe.Rule, s State) bool {
	switch {
	case s.Down:
		return false
	case s.OnHold || s.decided(&r):
		return true
	}
	return s.Verdict != probe.Undecided && s.Verdict != Initial(r.Kind)
}

package verdict

import "github.com/sonde-probe/sonde/probe"

// InstanceState returns the state of a target as its instance has it, and whether its probes
// decide too: with those, the state is the worst of this one and their ProbeStates.
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

// goneState returns the state of a target without a next instance. One that was ended because
// a probe failed has failed, if its driver still has it.
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

// waitingState returns the state of a target whose next instance has not started.
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

// Findings are what is known of a probe of a running instance.
type Findings struct {
	Verdict probe.Verdict
	Decided bool // it comes from attempts on that instance
	Blind   bool // its attempts cannot be made: see Blinds
	Warns   bool // it passes, and warns: see Warnings; or it fails, and Effect is probe.EffectWarn
	Effect  probe.Effect
}

// ProbeState returns the state that one probe of a running instance gives its target. Started says that the instance has
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

// OfDependent returns the state of a target of which the instance and the probes give it one,
// while a target that it depends on is in trouble: what fails, or cannot be attempted, is
// unreachable. A target that cannot be started, or has exited for good, is in trouble itself, and one that is degraded works.
func OfDependent(own probe.TargetState) probe.TargetState {
	switch own {
	case probe.StateCrashLooping, probe.StateRestartBlocked, probe.StateFailing, probe.StateNotReady, probe.StateBlind:
		return probe.StateUnreachable
	}
	return own
}

// Conditions are what is decided about a target beside its instance and its probes. Several may hold at once.
type Conditions struct {
	Explained bool // a target that it depends on is in trouble: see OfDependent
	Damped    bool // it has flapped too often
	Paused    bool // an operator works on it, or it is under maintenance
}

// Fold returns the state of a target and what it is to gateways under the conditions, where its instance, which is in a
// phase, and its probes give it others.
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

// ofPaused returns the state of a paused target: paused, unless it is not there, or has ended as an operator wanted.
func ofPaused(own probe.TargetState) probe.TargetState {
	switch own {
	case probe.StateAbsent, probe.StateStopped, probe.StateCompleted:
		return own
	}
	return probe.StatePaused
}

// gatewayStateOfPaused returns what a paused target is to gateways: it drains while its instance runs, whether or not it
// is ready, so that neither a group in panic nor the end of a failure brings it requests.
func gatewayStateOfPaused(p probe.Phase, own probe.GatewayState) probe.GatewayState {
	if p == probe.Running {
		return probe.GatewayDraining
	}
	return own
}

// ofDamped returns the state of a damped target: damped, whether it is ready or fails now. It stays unreachable, if another
// target explains that, and what it is if it is not there or has ended: then it does not flap any more.
func ofDamped(own probe.TargetState) probe.TargetState {
	switch own {
	case probe.StateCrashLooping, probe.StateRestartBlocked, probe.StateFailing, probe.StateNotReady, probe.StateBlind,
		probe.StateRestarting, probe.StateStarting, probe.StateDegraded, probe.StateReady:
		return probe.StateDamped
	}
	return own
}

// gatewayStateOfDamped returns what a damped target is to gateways: it is down, unless it drains.
func gatewayStateOfDamped(own probe.GatewayState) probe.GatewayState {
	if own == probe.GatewayDraining {
		return own
	}
	return probe.GatewayDown
}

// IsFlap reports whether a target has flapped that was ready, no longer is, and would be in a state
// without damping. It has not if another target explains that, or if its instance was ended, or is
// restarted, because an operator has asked for that.
func IsFlap(in *probe.Instance, own probe.TargetState) bool {
	if in.Reason == probe.ReasonOperatorRestart || in.Reason == probe.ReasonOperatorStop || in.Reason == probe.ReasonRuntimeStop {
		return false
	}
	return ofDamped(own) == probe.StateDamped
}

// ExplainsDependents reports whether a target in a state explains the failures of those that
// depend on it: it is in trouble, and not just degraded, or unreachable itself, or was stopped.
func ExplainsDependents(s probe.TargetState) bool {
	return s.InTrouble() && s != probe.StateDegraded || s == probe.StateUnreachable || s == probe.StateStopped
}

// GatewayState returns what a target with that instance is to gateways. Decided says that it
// is known whether it is ready, warned that a readiness probe warns, and ejected that requests
// of gateways have failed. An instance that its driver ends within a grace period, since a
// probe fails or an operator restarts it, drains like one that is deleted.
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

// Blinds reports whether a probe is blind after an attempt with that result: the attempts in a
// row whose outcome was unknown, errors, are as many as failures would decide. An engine that
// lacks something itself, or is isolated, says so, and makes no target blind.
func Blinds(r probe.Rule, errors int32, why probe.Reason) bool {
	return errors >= r.FailuresToFail() && !why.BlamesEngine()
}

// Concluded reports whether the attempts that a state has counted are enough for a verdict.
func Concluded(r probe.Rule, s State) bool { return s.decided(&r) }

// Decided reports whether attempts have decided the verdict of a state that was remembered. It
// may have been the initial one if the run that decided was forgotten.
func Decided(r probe.Rule, s State) bool {
	switch {
	case s.Down:
		return false
	case s.OnHold || s.decided(&r):
		return true
	}
	return s.Verdict != probe.Undecided && s.Verdict != Initial(r.Kind)
}

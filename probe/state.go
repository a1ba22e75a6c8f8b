package probe

// TargetState says in one word how a target is: what its instance and its probes add up to.
// The states are sorted, the worst first, as far as they say whether it works. The zero TargetState is StateAbsent.
type TargetState uint8

// The states of a target.
const (
	StateAbsent TargetState = iota // no driver has reported an instance, so that no probe is attempted

	// In trouble.
	StateCannotStart    // an instance cannot be started
	StateCrashLooping   // its instances exit, or are ended, one after another; the next one waits for its back-off, or has not run for as long as that
	StateExited         // its last instance has exited with an error, and no other follows; or its container does not run
	StateRestartBlocked // a startup or liveness probe fails, and the restart waits: for the restart budget, for enough ready members of its group, until the engine is well, for a target that it depends on, until what a reload has changed is corrected, or for the end of a pause or of damping
	StateFailing        // a startup or liveness probe fails
	StateNotReady       // a readiness probe fails
	StateBlind          // the attempts of a probe cannot be made: as many in a row were unknown as failures would decide; or the runtime that runs its instance does not answer

	// Not in trouble.
	StateUnreachable // it fails, or cannot be attempted, and a target that it depends on is in trouble: that one is to be looked after
	StateDamped      // it has flapped too often: it is neither reported nor restarted, and gateways send it no requests, until its penalty has decayed
	StatePaused      // an operator has paused it, or it is under maintenance: nothing is done about it, whether it is well or not
	StateStopped     // it is terminating or has ended, as was asked for
	StateRestarting  // its instance has ended, and the next one starts at once
	StateStarting    // not all its startup and readiness probes have a verdict yet, or there is no instance yet
	StateCompleted   // its last instance has exited with status 0, and no other follows

	StateDegraded // in trouble, too: it is ready, and a readiness or liveness probe warns

	StateReady // it has started, and its readiness probes pass or there are none
)

// TargetStates is the number of states. They are the numbers below it.
const TargetStates = int(StateReady) + 1

var targetStateNames = names[TargetState]{
	"absent", "cannot_start", "crash_looping", "exited", "restart_blocked", "failing", "not_ready", "blind",
	"unreachable", "damped", "paused", "stopped", "restarting", "starting", "completed", "degraded", "ready",
}

// InTrouble reports whether somebody should look after the target: it is not well, and does not
// only need time.
func (s TargetState) InTrouble() bool {
	return s >= StateCannotStart && s <= StateBlind || s == StateDegraded
}

// Severity returns how bad the state is.
func (s TargetState) Severity() Severity {
	switch {
	case s == StateBlind, s == StateDegraded:
		return SeverityWarning
	case s.InTrouble():
		return SeverityCritical
	}
	return severityNone
}

// String returns the state as it is written in JSON and metrics, such as "not_ready".
func (s TargetState) String() string { return targetStateNames.text(s) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (s TargetState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *TargetState) UnmarshalText(b []byte) error { return targetStateNames.parse(s, "state", b) }

// Severity is how bad the state of a target is.
type Severity uint8

// The severities.
const (
	severityNone     Severity = iota
	SeverityWarning           // a part of the target does not work, or nothing is known about the target or a part of it
	SeverityCritical          // the target is down, or does not work
)

var severityNames = names[Severity]{"none", "warning", "critical"}

// String returns the severity as it is written in JSON, such as "critical".
func (s Severity) String() string { return severityNames.text(s) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(b []byte) error { return severityNames.parse(s, "severity", b) }

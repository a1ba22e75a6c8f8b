package probe

// TargetState is the state of a target in one word, derived from its instance and its probes. The states are sorted from the
// worst to the best, as far as they say whether the target works. The zero TargetState is StateAbsent.
type TargetState uint8

// The states of a target.
const (
	StateAbsent TargetState = iota // no driver has reported an instance, so no probe is attempted

	// In trouble.
	StateCannotStart    // an instance cannot be started
	StateCrashLooping   // its instances exit in quick succession; the next one waits, or has not outlived its back-off yet
	StateExited         // its last instance exited with an error, and no other one will follow; or its container does not run
	StateRestartBlocked // a startup or liveness probe fails, and the restart waits: see ReasonDegraded to ReasonReload
	StateFailing        // a startup or liveness probe fails
	StateNotReady       // a readiness probe fails
	StateBlind          // too many attempts in a row could not be made, or the runtime of its instance does not respond

	// Not in trouble.
	StateUnreachable // it fails, or cannot be attempted, but a target that it depends on is in trouble and needs attention instead
	StateDamped      // it flapped too often: until its penalty has decayed, it is not reported, restarted or sent requests
	StatePaused      // an operator paused it, or it is under maintenance: no action is taken on it, whether it is well or not
	StateStopped     // it is terminating or has ended, as requested
	StateRestarting  // its instance ended, and the next one starts immediately
	StateStarting    // not all its startup and readiness probes have a verdict yet, or it has no instance yet
	StateCompleted   // its last instance exited with status 0, and no other one will follow

	StateDegraded // also in trouble: it is ready, but a readiness or liveness probe warns

	StateReady // it has started, and its readiness probes, if any, pass
)

// TargetStates is the number of states. The states are 0 to TargetStates-1.
const TargetStates = int(StateReady) + 1

var targetStateNames = names[TargetState]{
	"absent", "cannot_start", "crash_looping", "exited", "restart_blocked", "failing", "not_ready", "blind",
	"unreachable", "damped", "paused", "stopped", "restarting", "starting", "completed", "degraded", "ready",
}

// InTrouble reports whether the target needs attention: it is not well, and waiting alone will not help.
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
	SeverityCritical          // the target is down or does not work
)

var severityNames = names[Severity]{"none", "warning", "critical"}

// String returns the severity as it is written in JSON, such as "critical".
func (s Severity) String() string { return severityNames.text(s) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(b []byte) error { return severityNames.parse(s, "severity", b) }

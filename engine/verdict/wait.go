package verdict

import "fmt"

// WaitReason is the reason why a probe currently makes no attempts.
type WaitReason uint8

// The wait reasons. NotWaiting means that the probe makes attempts at its regular times.
const (
	NotWaiting   WaitReason = iota
	NoInstance              // no instance of the target was reported, or it is absent
	NotRunning              // the instance does not run
	InitialDelay            // the instance is younger than the rule's initial delay
	NotStarted              // the startup probes have not passed yet
	Started                 // the instance has started, so its startup probes are not needed
	Held                    // on hold until there is a new instance
	Finished                // there will be no further instance
	Preparing               // the handler is not ready; set by an engine, not by Step
)

var waitReasonNames = [...]string{"", "no_instance", "not_running", "initial_delay", "not_started", "started", "hold", "finished", "preparing"}

// String returns the reason as it is written in JSON, such as "initial_delay",
// or "" for NotWaiting.
func (r WaitReason) String() string {
	if int(r) < len(waitReasonNames) {
		return waitReasonNames[r]
	}
	return fmt.Sprintf("invalid(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (r WaitReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *WaitReason) UnmarshalText(b []byte) error {
	for i, name := range waitReasonNames {
		if name == string(b) {
			*r = WaitReason(i)
			return nil
		}
	}
	return fmt.Errorf("unknown wait reason %q", b)
}

package verdict

import "fmt"

// WaitReason says why a probe makes no attempt now.
type WaitReason uint8

// Why a probe rests. NotWaiting is the state of a probe that waits for its next
// turn, or whose attempt is under way.
const (
	NotWaiting   WaitReason = iota
	NoInstance              // nothing is known of the target
	NotRunning              // the instance does not run
	InitialDelay            // the instance is younger than the rule's initial delay
	NotStarted              // the instance has not started: its startup probes come first
	Started                 // the instance has started: its startup probes have nothing left to find
	Held                    // decided, until another instance
	Finished                // nothing will follow this instance
	Preparing               // the handler cannot make attempts yet; only an engine finds that out
)

var restNames = [...]string{"", "no_instance", "not_running", "initial_delay", "not_started", "started", "hold", "finished", "preparing"}

// String returns the text that JSON has: "initial_delay", or "" for NotWaiting.
func (r WaitReason) String() string {
	if int(r) < len(restNames) {
		return restNames[r]
	}
	return fmt.Sprintf("invalid(%d)", uint8(r))
}

// MarshalText returns String.
func (r WaitReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (r *WaitReason) UnmarshalText(b []byte) error {
	for i, name := range restNames {
		if name == string(b) {
			*r = WaitReason(i)
			return nil
		}
	}
	return fmt.Errorf("rest %q is not known", b)
}

package probe

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Target is what is probed and where it is.
type Target struct {
	Name    string            // a unique path, "shop/web"; Apply fills it in from the ID
	Address string            // IP address or host name; empty for a target that only exec probes reach
	Ports   map[string]uint16 // named ports; shared by all copies, never written

	// Env, Dir and User are those of the process that the target is. Commands
	// that are run for the target (exec probes) have them too, as they would in
	// a container. All are empty for a target that is not a process of ours.
	Env  map[string]string // shared by all copies, never written
	Dir  string
	User string
}

// Port resolves a port as a handler's configuration writes it: a number from 1
// to 65535, or a name in t.Ports.
func (t Target) Port(s string) (uint16, error) {
	if p, ok := t.Ports[s]; ok {
		return p, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("target %s has no port named %q", t.Name, s)
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %d is not between 1 and 65535", n)
	}
	return uint16(n), nil
}

// Equal reports whether two targets are the same in every field.
func (t Target) Equal(u Target) bool {
	return t.Name == u.Name && t.Address == u.Address && t.Dir == u.Dir && t.User == u.User &&
		maps.Equal(t.Ports, u.Ports) && maps.Equal(t.Env, u.Env)
}

// Instance is one life of a target: a container, a process, or "static" for an
// endpoint whose restarts nobody reports. Who starts and ends the target's
// lives, its driver, reports them to the engine.
type Instance struct {
	Target string
	ID     string // another for each life; must not be empty unless Phase is Absent
	Phase  Phase
	Since  time.Time // when Phase began; initial delays count from here while Running

	// Managed says that the driver ends this instance when a startup or
	// liveness probe fails, and that such a probe is then held until the next
	// instance. Without a driver a failing probe goes on and can recover.
	Managed bool

	Terminating bool // it is ending because its deletion was asked for: nothing will follow it

	Restarts int32  // how many instances came before this one in the driver's time
	Reason   Reason // why Phase is what it is: ReasonBackOff, say; may be empty
	Detail   string // more about it for a person: how the previous life ended and its last words
}

// Phase is where an Instance is in its life.
type Phase uint8

// The phases of an instance.
const (
	Absent  Phase = iota // nothing is known of the target
	Waiting              // there is an instance, but it does not run yet
	Running
	Ended // it does not run any more, and another will follow
	Gone  // it does not run any more, and nothing will follow: its probes are finished
)

var phaseNames = names[Phase]{"absent", "waiting", "running", "ended", "gone"}

// String returns the phase as JSON writes it: "running".
func (p Phase) String() string { return phaseNames.text(p) }

// MarshalText returns String.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (p *Phase) UnmarshalText(b []byte) (err error) {
	*p, err = phaseNames.parse("phase", b)
	return err
}

// PortNames returns the names of t.Ports in order, for messages.
func (t Target) PortNames() []string { return slices.Sorted(maps.Keys(t.Ports)) }

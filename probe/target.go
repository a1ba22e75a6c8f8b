package probe

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Target is the object of a probe: its name, where it is reached, and its environment.
type Target struct {
	Name    string            // unique path, "shop/web"; Apply sets it from the ID
	Address string            // IP address or host name; empty for a target that only exec probes reach
	Ports   map[string]uint16 // named ports; shared by all copies, read-only; for numeric names see Instance.Ports

	// Static means that the target is assumed to run and that nothing observes its restarts, as for a network endpoint. Unless a
	// driver has reported an instance, Apply reports one with the ID StaticID, so that the probe is attempted without a call of
	// Report.
	Static bool

	// Labels describe the target for selection and grouping: team, site, version. CheckLabels validates them. They do not affect
	// probing: a probe continues unchanged if its labels change. All copies share the map; it is read-only.
	Labels map[string]string

	// Env, Dir and User belong to the process that the engine runs for the target. Exec probes run their commands with them, as
	// in a container. They are empty for a target without such a process.
	Env  map[string]string // shared by all copies, read-only
	Dir  string
	User string

	// Runtime is the container runtime that runs the target's instances, if any: "docker", or its name in the configuration. Exec
	// probes run inside the container, whose address is known once it runs.
	Runtime string `json:",omitempty"`

	// Network is the network from which the handlers connect. Nil means the engine's network. Shared by all copies, read-only.
	Network *Network `json:",omitempty"`

	// Since is when the instance that is probed began to run. The engine sets it for each attempt; it is zero if the restarts of
	// the target are not observed (StaticID).
	Since time.Time `json:",omitzero"`

	// Instance is the ID of the instance that is probed, as reported by its driver (Instance.ID). The engine sets it for each
	// attempt.
	Instance string `json:",omitempty"`
}

// Port resolves a port as written in a handler's configuration: a number from 1 to 65535, or a name in t.Ports. An error is a
// *FieldError for the field "port".
func (t Target) Port(s string) (uint16, error) {
	number, named := t.Ports[s]
	if number != 0 {
		return number, nil
	}
	n, err := strconv.Atoi(s)
	switch {
	case named:
		return 0, FieldErrorf("port", "is %q, which target %s defines as 0; it must be from 1 to 65535", s, t.Name)
	case err == nil && n >= 1 && n <= 65535 && t.IsTranslated():
		return 0, FieldErrorf("port", "is %d, which target %s does not publish; publish it, or run the engine in a network that reaches the target", n, t.Name)
	case err == nil && n >= 1 && n <= 65535:
		return uint16(n), nil
	case err == nil:
		return 0, FieldErrorf("port", "is %d; it must be from 1 to 65535", n)
	}
	known := "it has no ports"
	if names := t.PortNames(); len(names) > 0 {
		known = "its ports: " + strings.Join(names, ", ")
	}
	return 0, FieldErrorf("port", "is %q, but target %s has no such port; %s", s, t.Name, known)
}

// IsTranslated reports whether t.Ports has a numeric name. If so, t.Address belongs to a machine that forwards only the ports in
// t.Ports to the instance. See Instance.Ports.
func (t Target) IsTranslated() bool {
	for name := range t.Ports {
		if name != "" && name[0] >= '0' && name[0] <= '9' {
			if _, err := strconv.ParseUint(name, 10, 16); err == nil {
				return true
			}
		}
	}
	return false
}

// Equal reports whether two targets are equal in all fields except Since and Instance.
func (t Target) Equal(u Target) bool {
	return t.Name == u.Name && t.Address == u.Address && t.Static == u.Static && t.Dir == u.Dir && t.User == u.User && t.Runtime == u.Runtime && t.SameNetwork(u) &&
		maps.Equal(t.Ports, u.Ports) && maps.Equal(t.Env, u.Env) && maps.Equal(t.Labels, u.Labels)
}

// StaticID is the ID of the only instance of a target whose restarts are not observed.
const StaticID = "static"

// maxInstanceID bounds the ID of an instance, in bytes.
const maxInstanceID = 256

// InstanceID returns the ID that the engine uses for an instance whose driver calls it id. It returns id itself if that is UTF-8
// without control characters and not too long, since IDs are written as JSON and compared with those of the next engine.
// Otherwise it returns a cleaned ID with a hash appended, so that different IDs stay different.
func InstanceID(id string) string {
	cleaned := clean(id, false)
	if cleaned == id && len(id) <= maxInstanceID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return OneLine(cleaned, maxInstanceID/2) + "-" + hex.EncodeToString(sum[:8])
}

// Instance is one execution of a target, from its start to its termination: a
// container, a process, or StaticID for an endpoint whose restarts are not
// observed. The driver of a target starts and terminates its instances, and
// reports them to the engine.
type Instance struct {
	Target string    `json:"target,omitempty"`
	ID     string    `json:"id,omitempty"` // unique to each instance, see InstanceID; empty only if Phase is Absent
	Phase  Phase     `json:"phase"`
	Since  time.Time `json:"since,omitzero"` // when Phase began; initial delays count from the start of Running

	// Managed is true if the driver replaces this instance when a startup or liveness probe fails. Such a probe is then on hold
	// until the next instance. Otherwise a failing probe continues and can recover.
	Managed bool `json:"managed,omitempty"`

	Terminating bool `json:"terminating,omitempty"` // it is being deleted, and no other instance will follow

	// Retained is true if Phase is Gone but the driver still has the target. The engine then keeps the target even without
	// probes, so that its end remains visible.
	Retained bool `json:"retained,omitempty"`

	Restarts int32  `json:"restarts,omitempty"` // number of earlier instances that the driver has observed
	Reason   Reason `json:"reason,omitempty"`   // the cause of Phase, such as ReasonBackOff; may be empty
	Detail   string `json:"detail,omitempty"`   // the cause in words: how the previous instance exited, and its last output

	// LastExit is the exit of the latest instance that has exited: this one, if it no longer runs.
	LastExit Exit `json:"lastExit,omitzero"`

	// Address is where this instance is reached; attempts use it instead of Target.Address. Default: Target.Address.
	Address string `json:"address,omitempty"`

	// Ports are the ports of this instance; attempts use them instead of the ports with the same names in Target.Ports. A numeric
	// name, such as "80", is a port that Address forwards to the instance. If there is a numeric name, other port numbers cannot
	// be used, since they would be ports of other programs. All copies share the map; it is read-only. Default: Target.Ports.
	Ports map[string]uint16 `json:"ports,omitempty"`
}

// Equal reports whether two instances are the same in every field.
func (i Instance) Equal(j Instance) bool {
	ports := maps.Equal(i.Ports, j.Ports)
	i.Ports, j.Ports = nil, nil
	return ports && reflect.DeepEqual(i, j)
}

// Exit is how an instance exited. The zero value means that it has not exited, or that its status is unknown.
type Exit struct {
	Known  bool
	Status int // exit status of a process, from 0 to 255; 128 plus the signal's number if a signal killed it
}

// Phase is the phase of an Instance.
type Phase uint8

// The phases of an instance.
const (
	Absent  Phase = iota // there is no instance
	Waiting              // it does not run yet
	Running
	Ended // it no longer runs, and another instance will follow
	Gone  // it no longer runs, and no other instance will follow
)

var phaseNames = names[Phase]{"absent", "waiting", "running", "ended", "gone"}

// String returns the phase as it is written in JSON, such as "running".
func (p Phase) String() string { return phaseNames.text(p) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Phase) UnmarshalText(b []byte) error { return phaseNames.parse(p, "phase", b) }

// PortNames returns the names of t.Ports, sorted.
func (t Target) PortNames() []string { return slices.Sorted(maps.Keys(t.Ports)) }

// MaxDependencies bounds the number of targets that one target may depend on: depends_on in a configuration, and
// engine.Change.Dependencies.
const MaxDependencies = 100

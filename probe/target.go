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

// Target is what is probed: its name, where it is reached, and its environment.
type Target struct {
	Name    string            // a unique path, "shop/web"; Apply fills it in from the ID
	Address string            // IP address or host name; empty for a target that only exec probes reach
	Ports   map[string]uint16 // named ports; all copies share it, do not write; a name that is a number: see Instance.Ports

	// Static says that the target runs, and that nothing observes its restarts, as for a
	// network endpoint: Apply reports an instance with the ID StaticID if no driver has reported
	// one, so that the probe is attempted without a call of Report.
	Static bool

	// Labels say what the target is, for those who select or group targets: team, site,
	// version. See CheckLabels for what is allowed. Probing does not depend on them: with
	// other labels a probe goes on as it is. All copies share the map, do not write.
	Labels map[string]string

	// Env, Dir and User are those of the process that the engine runs for the
	// target. Exec probes run their commands with them, as in a container. They are
	// empty for a target that is not such a process.
	Env  map[string]string // all copies share it, do not write
	Dir  string
	User string

	// Runtime says what runs the target's instances, if that is a container runtime: "docker", or what its configuration
	// calls it. Exec probes run inside the container, and its address is known once it runs.
	Runtime string `json:",omitempty"`

	// Network is from where the handlers connect. Nil: the network of the engine. All copies share it, do not write.
	Network *Network `json:",omitempty"`

	// Since is when the instance began to run that an attempt is made at. The engine sets it for
	// each attempt; it is zero if the restarts of the target are not observed (StaticID).
	Since time.Time `json:",omitzero"`

	// Instance is the ID of the instance that an attempt is made at, as its driver has reported it (Instance.ID).
	// The engine sets it for each attempt, as Since.
	Instance string `json:",omitempty"`
}

// Port resolves a port as a handler's configuration writes it: a number from 1
// to 65535, or a name in t.Ports. An error is a *FieldError for the field "port".
func (t Target) Port(s string) (uint16, error) {
	number, named := t.Ports[s]
	if number != 0 {
		return number, nil
	}
	n, err := strconv.Atoi(s)
	switch {
	case named:
		return 0, FieldErrorf("port", "is %q, which is 0 in target %s", s, t.Name)
	case err == nil && n >= 1 && n <= 65535 && t.IsTranslated():
		return 0, FieldErrorf("port", "is %d, which target %s does not publish; publish it, or run the engine where the network of the target is reached", n, t.Name)
	case err == nil && n >= 1 && n <= 65535:
		return uint16(n), nil
	case err == nil:
		return 0, FieldErrorf("port", "is %d; it must be from 1 to 65535", n)
	}
	known := "it has no ports"
	if names := t.PortNames(); len(names) > 0 {
		known = "its ports: " + strings.Join(names, ", ")
	}
	return 0, FieldErrorf("port", "is %q, which target %s lacks; %s", s, t.Name, known)
}

// IsTranslated reports whether t.Ports has a name that is a number: then t.Address is of a machine that passes those ports on to the instance,
// and nothing else. See Instance.Ports.
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

// Equal reports whether two targets are the same in every field but Since and Instance.
func (t Target) Equal(u Target) bool {
	return t.Name == u.Name && t.Address == u.Address && t.Static == u.Static && t.Dir == u.Dir && t.User == u.User && t.Runtime == u.Runtime && t.SameNetwork(u) &&
		maps.Equal(t.Ports, u.Ports) && maps.Equal(t.Env, u.Env) && maps.Equal(t.Labels, u.Labels)
}

// StaticID is the ID of the only instance of a target whose restarts are not observed.
const StaticID = "static"

// maxInstanceID bounds the ID of an instance, in bytes.
const maxInstanceID = 256

// InstanceID returns the ID under which an instance is known that its driver calls so: the same, if it is UTF-8 without
// control characters, and not too long. IDs are written as JSON, to be compared with those of the next engine. Other ones
// stay different from each other: they get a hash.
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
	ID     string    `json:"id,omitempty"` // unique for each instance, see InstanceID; empty only if Phase is Absent
	Phase  Phase     `json:"phase"`
	Since  time.Time `json:"since,omitzero"` // when Phase began; initial delays count from when it was Running

	// Managed is true if the driver replaces this instance when a startup or
	// liveness probe fails. Such a probe is then on hold until the next instance.
	// Otherwise a failing probe goes on and can recover.
	Managed bool `json:"managed,omitempty"`

	Terminating bool `json:"terminating,omitempty"` // it is being deleted, and there will be no next instance

	// Retained is true if Phase is Gone, but the driver still has the target: then the engine
	// keeps a target without probes, so that one can see how it has ended.
	Retained bool `json:"retained,omitempty"`

	Restarts int32  `json:"restarts,omitempty"` // how many instances the driver has seen before this one
	Reason   Reason `json:"reason,omitempty"`   // the cause of Phase, such as ReasonBackOff; may be empty
	Detail   string `json:"detail,omitempty"`   // the cause in words: how the previous instance exited, and its last output

	// LastExit is of the latest instance that has exited: this one, if it no longer runs.
	LastExit Exit `json:"lastExit,omitzero"`

	// Address is where this instance is reached; attempts use it instead of Target.Address. Default: the target's.
	Address string `json:"address,omitempty"`

	// Ports are where this instance listens; attempts use them instead of those of Target.Ports that have the same names.
	// A name that is a number, such as "80", is of a port that Address passes on to the instance. If there is one, no other number can be reached: it would
	// be a port of somebody else. All copies share the map, do not write. Default: the target's.
	Ports map[string]uint16 `json:"ports,omitempty"`
}

// Equal reports whether two instances are the same in every field.
func (i Instance) Equal(j Instance) bool {
	ports := maps.Equal(i.Ports, j.Ports)
	i.Ports, j.Ports = nil, nil
	return ports && reflect.DeepEqual(i, j)
}

// Exit is how an instance has exited. The zero value is that of none, or of one whose status is unknown.
type Exit struct {
	Known  bool
	Status int // of a process, from 0 to 255: 128 plus the signal's number if a signal has ended it
}

// Phase says whether an Instance runs.
type Phase uint8

// The phases of an instance.
const (
	Absent  Phase = iota // there is no instance
	Waiting              // it does not run yet
	Running
	Ended // it no longer runs, and a next instance will follow
	Gone  // it no longer runs, and there will be no next instance
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

// MaxDependencies bounds how many targets one may depend on: depends_on in a configuration, and
// engine.Change.Dependencies.
const MaxDependencies = 100

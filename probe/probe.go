package probe

import (
	"cmp"
	"strings"
)

// Kind is the purpose of a probe.
type Kind uint8

// The kinds of probes, with the same meaning as in Kubernetes.
const (
	Startup   Kind = iota + 1 // has the instance started? The other kinds wait until it has.
	Readiness                 // may it get traffic?
	Liveness                  // must it be restarted?
)

var kindNames = names[Kind]{"", "startup", "readiness", "liveness"}

// String returns the kind as it is written in HCL, JSON and metrics, such as
// "readiness".
func (k Kind) String() string { return kindNames.text(k) }

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(b []byte) error { return kindNames.parse(k, "kind", b) }

// ID identifies a probe by its target, its kind and, if the target has several probes of that kind, a name for all but one. IDs
// are comparable.
type ID struct {
	Target string
	Kind   Kind
	Name   string // may be empty for one probe of each kind
}

// String returns "shop/web:readiness" or, with a name, "shop/web:readiness/db". Logs, JSON and metrics use the same text.
func (id ID) String() string { return id.Target + ":" + id.InTarget() }

// InTarget returns the part of String that follows the target: "readiness" or, with a name, "readiness/db".
func (id ID) InTarget() string {
	if id.Name == "" {
		return id.Kind.String()
	}
	return id.Kind.String() + "/" + id.Name
}

// Compare orders IDs by target, then kind (startup, readiness, liveness), then
// name. It returns -1, 0 or +1.
func (id ID) Compare(other ID) int {
	return cmp.Or(
		strings.Compare(id.Target, other.Target),
		cmp.Compare(id.Kind, other.Kind),
		strings.Compare(id.Name, other.Name),
	)
}

// Probe is one entry of a Set: when, how and against which target to make attempts.
type Probe struct {
	Rule    Rule
	Target  Target
	Handler Handler

	// HandlerName names the handler in metrics and in the API: "http", or a plugin's name. Keep the number of names small, since
	// metrics have a series for each.
	HandlerName string

	// Revision identifies the handler's configuration. If it is not empty and equals the previous revision, Apply treats the
	// handler as unchanged. Without a revision Apply compares the handlers themselves, and treats a handler that is not
	// comparable, such as a HandlerFunc, as changed each time.
	Revision string

	// Settings is the handler's configuration as text for display. It has no effect on probing and should not contain secrets.
	// Default: nothing is shown.
	Settings string
}

// Set is the desired state of an engine: every probe that should exist.
type Set map[ID]Probe

// Bounds on names, in bytes.
const (
	MaxTargetName = 512
	MaxProbeName  = 63
	MaxGroupName  = 63
)

// CheckGroupName validates the name of a group of targets. It returns a FieldError for the field "name", or nil.
func CheckGroupName(name string) error { return checkName("name", name, MaxGroupName) }

// Check validates the ID. It returns a FieldError, or nil.
func (id ID) Check() error {
	if err := checkName("target", id.Target, MaxTargetName); err != nil {
		return err
	}
	if id.Kind < Startup || id.Kind > Liveness {
		return FieldErrorf("kind", "must be startup, readiness or liveness")
	}
	if id.Name == "" {
		return nil
	}
	return checkName("name", id.Name, MaxProbeName)
}

func checkName(field, s string, most int) error {
	switch {
	case s == "":
		return FieldErrorf(field, "must not be empty")
	case len(s) > most:
		return FieldErrorf(field, "is %d bytes long; at most %d are allowed", len(s), most)
	case clean(s, false) != s:
		return FieldErrorf(field, "must be UTF-8 without control characters")
	}
	return nil
}

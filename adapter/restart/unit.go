package restart

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Unit is a target that a Controller cares for. Who made it must not change it
// once it was handed over.
type Unit struct {
	// Driver makes the target's lives. Nil is a target that nobody restarts: it
	// is reported as running for as long as it is wanted, and its probes are
	// never held.
	Driver Driver

	Policy                 Policy        // which ends are followed by another life; default Always
	TerminationGracePeriod time.Duration // how long a life may take to end; a failing probe's own comes first; default 30s
	BackOff                BackOff       // how long to wait between two lives

	// Revision says whether Driver is still the same: units of a target with
	// equal, non-empty revisions have drivers that do the same, and the life
	// goes on. Without a revision the drivers themselves are compared.
	Revision string
}

// DefaultTerminationGracePeriod is that of the Kubernetes API server
// (DefaultTerminationGracePeriodSeconds in k8s.io/api/core/v1).
const DefaultTerminationGracePeriod = 30 * time.Second

func (u Unit) withDefaults() Unit {
	u.TerminationGracePeriod = cmp.Or(u.TerminationGracePeriod, DefaultTerminationGracePeriod)
	u.BackOff = u.BackOff.withDefaults()
	return u
}

func (u Unit) check() error {
	switch {
	case u.Policy > Never:
		return &probe.FieldError{Field: "restart_policy", Problem: "must be one of " + policies()}
	case u.TerminationGracePeriod < 0 || u.TerminationGracePeriod > probe.MaxDuration:
		return &probe.FieldError{Field: "termination_grace_period", Problem: "must be from 0 to " + probe.MaxDuration.String()}
	}
	return u.BackOff.check()
}

// continues reports whether a life of before may go on under u.
func (u Unit) continues(before Unit) bool {
	if u.Driver == nil || before.Driver == nil || u.Revision != before.Revision {
		return false
	}
	return u.Revision != "" || same(u.Driver, before.Driver)
}

func same(a, b Driver) bool { return reflect.ValueOf(a).Comparable() && a == b }

func (u Unit) external() bool {
	_, external := u.Driver.(External)
	return external
}

// heeds reports whether a failing probe ends the unit's lives. For what something
// else runs, to end it is to restart it, which Never forbids.
func (u Unit) heeds() bool { return !u.external() || u.Policy != Never }

// Policy says which ends of a life are followed by another life. The words mean
// what they mean in Kubernetes.
type Policy uint8

// The policies. An end that a failing probe has caused is followed by another
// life under Always and OnFailure alike, and under Never by none (K136).
const (
	Always    Policy = iota
	OnFailure        // only an end with another exit status than 0
	Never
)

var policyNames = [...]string{"always", "on_failure", "never"}

func policies() string { return strings.Join(policyNames[:], ", ") }

// String returns the policy as HCL writes it: "on_failure".
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("invalid(%d)", uint8(p))
}

// MarshalText returns String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the reverse of MarshalText. An error is a *probe.FieldError.
func (p *Policy) UnmarshalText(b []byte) error {
	for i, name := range policyNames {
		if name == string(b) {
			*p = Policy(i)
			return nil
		}
	}
	return &probe.FieldError{Field: "restart_policy", Problem: fmt.Sprintf("is %q, it must be one of %s", b, policies())}
}

// follows reports whether another life follows one that ended with this exit
// status (K142).
func (p Policy) follows(code int, failing bool) bool {
	switch p {
	case Always:
		return true
	case OnFailure:
		return failing || code != 0
	}
	return false
}

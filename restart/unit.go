package restart

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Unit is a target that a Controller supervises. It must not be changed after it
// was passed to Apply.
type Unit struct {
	// Driver starts and terminates the target's instances. A target without a
	// driver (nil) is never restarted: it is reported as running until its unit
	// is removed, and its probes are never held.
	Driver Driver

	Policy                 Policy        `hcl:"restart_policy,optional" doc:"after which exits an instance is restarted: always, on_failure (a status other than 0, or a failing probe), or never"`
	RestartExitCodes       []string      `hcl:"restart_exit_codes,optional" doc:"exit statuses after which an instance is restarted even if restart_policy says otherwise: single ones (42) or ranges (\"64-78\"), from 0 to 255" default:"none"`
	TerminationGracePeriod time.Duration `hcl:"termination_grace_period,optional,nonzero" doc:"time that an instance may take to exit after stop_signal before it is killed; that of the failing probe comes first" max:"8784h"`
	Oneshot                bool          `hcl:"oneshot,optional" doc:"the target prepares something: those that start after it wait until it has exited with status 0, and not until it is ready. It needs restart_policy on_failure or never; with never, and without startup and readiness probes, it is the default"`
	StopSignal             StopSignal    `hcl:"stop_signal,optional" doc:"signal that asks a process to exit, such as SIGINT for a fast shutdown of PostgreSQL or SIGQUIT for a graceful one of nginx; SIGKILL follows after the grace period. A change needs no restart"`
	PreStop                *PreStop      `hcl:"pre_stop,block" doc:"what happens before the process is asked to exit"`
	BackOff                BackOff       `hcl:"back_off,block" doc:"how long to wait before a restart"`

	// StartAfter lists the targets that must be ready, or completed, before the first instance is started. A target
	// must have completed if it is a Oneshot, or has the policy Never and neither startup nor readiness probes. When
	// the controller stops, or when both units are removed, the instance of this unit terminates before those of the
	// targets. A cycle is an error of Apply and TakeOver. StartAfter has no effect with an External driver.
	StartAfter []string

	// StopAfter lists targets that this one serves: when all of them have exited for good, its instance is terminated
	// and the target has completed. It is started again when one of them is. Default: none, the target keeps running.
	StopAfter []string

	// Revision identifies the behavior of Driver: if a target's new unit has the same non-empty revision as the old
	// one, the instance keeps running. Without a revision, the drivers themselves are compared.
	Revision string
}

// DefaultTerminationGracePeriod is the default of the Kubernetes API server (DefaultTerminationGracePeriodSeconds in
// k8s.io/api/core/v1).
const DefaultTerminationGracePeriod = 30 * time.Second

// WithDefaults returns u with every zero field that has a default set to that default.
func (u Unit) WithDefaults() Unit {
	u.TerminationGracePeriod = cmp.Or(u.TerminationGracePeriod, DefaultTerminationGracePeriod)
	u.StopSignal = cmp.Or(u.StopSignal, DefaultStopSignal)
	u.BackOff = u.BackOff.withDefaults()
	return u
}

// Check validates the unit. It returns probe.FieldErrors that name each invalid field by its HCL name, or nil.
func (u Unit) Check() error {
	var wrong probe.FieldErrors
	if u.Policy > Never {
		wrong.Add("restart_policy", "must be %s", policies())
	}
	if u.Oneshot && u.Policy == Always {
		wrong.Add("oneshot", "never completes with restart_policy = %q; use %q or %q", Always, OnFailure, Never)
	}
	checkDuration(&wrong, "termination_grace_period", u.TerminationGracePeriod)
	if err := u.StopSignal.check(); err != nil {
		var field *probe.FieldError
		errors.As(err, &field)
		wrong = append(wrong, field)
	}
	u.PreStop.check(&wrong)
	u.checkExitCodes(&wrong)
	checkDuration(&wrong, "back_off.initial", u.BackOff.Initial)
	checkDuration(&wrong, "back_off.max", u.BackOff.Max)
	checkDuration(&wrong, "back_off.reset", u.BackOff.Reset)
	if u.BackOff.Max > 0 && u.BackOff.Initial > u.BackOff.Max {
		wrong.Add("back_off.max", "is %v; it must not be less than initial (%v)", u.BackOff.Max, u.BackOff.Initial)
	}
	return wrong.Err()
}

func checkDuration(wrong *probe.FieldErrors, field string, d time.Duration) {
	if d < 0 || d > probe.MaxDuration {
		wrong.Add(field, "is %s; it must be greater than 0 and at most %s", probe.FormatDuration(d), probe.FormatDuration(probe.MaxDuration))
	}
}

// continues reports whether an instance of the unit before may keep running under u.
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

// runs reports whether the controller runs the unit's instances.
func (u Unit) runs() bool { return u.Driver != nil && !u.external() }

// outlives reports whether the instances keep running when the controller stops.
func (u Unit) outlives() bool {
	d, ok := u.Driver.(Outliving)
	return ok && d.Outlives()
}

// endsWithEngine reports whether the unit's instances end when the engine ends.
func (u Unit) endsWithEngine() bool {
	if d, ok := u.Driver.(Outliving); ok {
		return !d.Outlives()
	}
	_, goesOn := u.Driver.(Resumer)
	return !goesOn && !u.external()
}

// restartsOnFailure reports whether a failing probe terminates the unit's instances. Terminating an External instance
// is restarting it, which Never forbids.
func (u Unit) restartsOnFailure() bool { return !u.external() || u.Policy != Never }

// Policy determines after which exits an instance is restarted, like restartPolicy in Kubernetes.
type Policy uint8

// The policies. Always and OnFailure restart an instance that was terminated
// because a probe failed; Never does not (K136 in docs/kubelet.md).
const (
	Always    Policy = iota
	OnFailure        // only after an exit status other than 0
	Never
)

var policyNames = [...]string{"always", "on_failure", "never"}

func policies() string { return strings.Join(policyNames[:Never], ", ") + " or " + Never.String() }

// String returns the policy as it is written in HCL, such as "on_failure".
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("invalid(%d)", uint8(p))
}

// MarshalText implements encoding.TextMarshaler. It returns the text of String.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. An error is a
// *probe.FieldError.
func (p *Policy) UnmarshalText(b []byte) error {
	for i, name := range policyNames {
		if name == string(b) {
			*p = Policy(i)
			return nil
		}
	}
	return probe.FieldErrorf("restart_policy", "is %q; use %s", b, policies())
}

// restarts reports whether a restart follows an exit with the status code. failing: a failing probe caused the exit
// (K142).
func (p Policy) restarts(code int, failing bool) bool {
	switch p {
	case Always:
		return true
	case OnFailure:
		return failing || code != 0
	}
	return false
}

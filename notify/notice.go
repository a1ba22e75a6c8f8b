package notify

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Kind is the kind of a Subject.
type Kind string

// The kinds of subjects.
const (
	KindTarget Kind = "target"
	KindGroup  Kind = "group"
)

// kinds has all kinds, in the order in which they are reported.
var kinds = []Kind{KindTarget, KindGroup}

// Subject is what a Notice is about.
type Subject struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

// String returns the kind and the name, such as "target shop/web".
func (s Subject) String() string { return string(s.Kind) + " " + s.Name }

// Notice is a message that a subject is in trouble, or that it no longer is. It can be written as JSON.
type Notice struct {
	Subject
	Firing   bool              `json:"firing"`
	State    string            `json:"state"` // of the subject, such as "not_ready" or "down"
	Severity probe.Severity    `json:"severity"`
	Labels   map[string]string `json:"labels,omitempty"` // of the subject and of Spec.Labels

	Probe  string       `json:"probe,omitempty"` // the probe whose verdict has changed, such as "readiness" or "liveness/db"
	Reason probe.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"` // at most maxDetail bytes

	StartsAt time.Time `json:"startsAt"`          // when the trouble began
	EndsAt   time.Time `json:"endsAt,omitzero"`   // when it ended; zero while Firing
	At       time.Time `json:"at"`                // of the transition to State
	Link     string    `json:"link,omitempty"`    // URL of the subject on the status page
	Repeated bool      `json:"repeated,omitzero"` // a repetition: see Spec.Resend
	Test     bool      `json:"test,omitzero"`     // a test without a real subject: see Notifiers.Test

	// Before is the identity under which the same trouble was reported before, if that has changed.
	Before *Identity `json:"before,omitempty"`
}

// Summary returns the notice in one line, such as "web is not ready: http.status".
func (n *Notice) Summary() string {
	text := n.Name + " is " + strings.ReplaceAll(n.State, "_", " ")
	if n.Reason != "" {
		text += ": " + string(n.Reason)
	}
	return text
}

// Texts returns the parts of the notice except labels, by the names that bodies and variables use. Unknown parts are
// empty.
func (n *Notice) Texts() map[string]string {
	status, test, endsAt := "firing", "", ""
	if !n.Firing {
		status, endsAt = "resolved", n.EndsAt.UTC().Format(time.RFC3339Nano)
	}
	if n.Test {
		test = "true"
	}
	return map[string]string{
		"summary": n.Summary(), "kind": string(n.Kind), "name": n.Name, "status": status, "state": n.State, "severity": n.Severity.String(),
		"reason": string(n.Reason), "detail": n.Detail, "probe": n.Probe, "startsAt": n.StartsAt.UTC().Format(time.RFC3339Nano), "endsAt": endsAt,
		"link": n.Link, "test": test,
	}
}

// Body returns the notice as a JSON object of its non-empty Texts and its labels.
func (n *Notice) Body() []byte {
	all := map[string]any{"labels": n.Labels}
	for name, text := range n.Texts() {
		if text != "" {
			all[name] = text
		}
	}
	body, _ := json.Marshal(all) // cannot fail
	return body
}

// Identity is what receivers may identify a trouble by, in addition to its Subject.
type Identity struct {
	Labels   map[string]string `json:"labels"`
	Severity probe.Severity    `json:"severity"`
}

// maxDetail bounds Notice.Detail, in bytes.
const maxDetail = 400

// level is the meaning of a state for notifications.
type level uint8

const (
	keep    level = iota // undecided: the last notice remains valid
	well                 // the subject is well, or unavailable as intended
	firing               // the subject is in trouble
	unknown              // the subject exists but has no state yet; it is checked again
	others               // another engine sends its notices, now or later: see Config.MayNotify and Config.NotifierOf
)

// levelOf returns the level of a target's state. A starting target has not been judged yet, the trouble of an
// unreachable target is explained by another target, and paused or damped targets are not reported. A target that
// stopped because the engine is stopping has not recovered. If a restart is blocked by a suppression (see
// engine.Suppressed), the suppression has just ended or may be about to begin: within a second either the engine
// restarts the target, or it is clear that it must not be reported. A degraded target about which engines disagree is
// working, and the engine that finds it failing may be cut off.
func levelOf(s probe.TargetState, r probe.Reason) level {
	switch {
	case s == probe.StateStopped && r == probe.ReasonShutdown:
		return keep
	case s == probe.StateRestartBlocked && suppresses(r):
		return keep
	case s == probe.StateDegraded && r.IsDisputed():
		return well
	case s.InTrouble():
		return firing
	case s == probe.StateReady, s == probe.StateCompleted, s == probe.StateStopped:
		return well
	}
	return keep
}

// suppresses reports whether a reason is one that engine.Suppressed returns.
func suppresses(r probe.Reason) bool {
	switch r {
	case probe.ReasonPaused, probe.ReasonMaintenance, probe.ReasonDependency, probe.ReasonDamped:
		return true
	}
	return false
}

// event is a change of a subject's state, or its current state.
type event struct {
	Notice            // without StartsAt, EndsAt and Labels of the Spec
	seq        uint64 // number in the history; 0 for the current state
	level      level
	explicable bool  // the failure of another target may explain it
	held       bool  // the trouble must not be reported now: the subject is paused, or the engine doubts it
	own        level // the level if this engine sent the subject's notices; set only with the level others
	forgotten  bool  // another engine sends the group's notices; this engine discards its own
	restarted  bool  // the instance is being terminated, so that another one starts
	outdated   bool  // it fails by the verdict of an earlier configuration, or no longer fails: see isOutdated
}

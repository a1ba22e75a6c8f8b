package notify

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Kind says what a Subject is.
type Kind string

// The kinds of subjects.
const (
	KindTarget Kind = "target"
	KindGroup  Kind = "group"
)

// kinds are all of them, in the order in which they are told.
var kinds = []Kind{KindTarget, KindGroup}

// Subject is what a Notice is about.
type Subject struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

// String returns "target shop/web", for example.
func (s Subject) String() string { return string(s.Kind) + " " + s.Name }

// Notice says that a subject is in trouble, or that it no longer is. It can be written as JSON.
type Notice struct {
	Subject
	Firing   bool              `json:"firing"`
	State    string            `json:"state"` // of the subject, such as "not_ready" or "down"
	Severity probe.Severity    `json:"severity"`
	Labels   map[string]string `json:"labels,omitempty"` // of the subject, and those of Spec.Labels

	Probe  string       `json:"probe,omitempty"` // whose verdict has turned, such as "readiness" or "liveness/db"
	Reason probe.Reason `json:"reason,omitempty"`
	Detail string       `json:"detail,omitempty"` // at most maxDetail bytes

	StartsAt time.Time `json:"startsAt"`          // when the trouble began
	EndsAt   time.Time `json:"endsAt,omitzero"`   // when it ended; zero while Firing
	At       time.Time `json:"at"`                // of the transition to State
	Link     string    `json:"link,omitempty"`    // where people see the subject
	Repeated bool      `json:"repeated,omitzero"` // it was told before: see Spec.Resend
	Test     bool      `json:"test,omitzero"`     // it is about nothing: see Notifiers.Test

	// Before is under what the same trouble was told before, if that is something else now.
	Before *Identity `json:"before,omitempty"`
}

// Summary returns the notice in a line, such as "web is not ready: http.status".
func (n *Notice) Summary() string {
	text := n.Name + " is " + strings.ReplaceAll(n.State, "_", " ")
	if n.Reason != "" {
		text += ": " + string(n.Reason)
	}
	return text
}

// Texts returns what the notice says, without labels, by the names that bodies and variables have. What is
// not known is empty.
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

// Body returns the notice as a JSON object of those Texts that are not empty, and labels.
func (n *Notice) Body() []byte {
	all := map[string]any{"labels": n.Labels}
	for name, text := range n.Texts() {
		if text != "" {
			all[name] = text
		}
	}
	body, _ := json.Marshal(all) // has no error
	return body
}

// Identity is what receivers may know a trouble by, beside its Subject.
type Identity struct {
	Labels   map[string]string `json:"labels"`
	Severity probe.Severity    `json:"severity"`
}

// maxDetail bounds Notice.Detail, in bytes.
const maxDetail = 400

// level is what a state means to those who are told.
type level uint8

const (
	keep    level = iota // the state says neither: what was told holds
	well                 // the subject is well, or meant to be away
	firing               // it is in trouble
	unknown              // the subject exists, and will have a state: it is looked at again
	others               // another engine tells about it, or will: see Config.MayNotify and Config.NotifierOf
)

// levelOf returns the level of a target's state. One that starts has not been judged yet, one that is
// unreachable is explained by another target, and of one that is paused or damped nobody is told. One that is
// stopped since the engine ends has not been mended by that. One whose restart is blocked by what is
// suppressed (see engine.Suppressed) has got there because that has just ended, or may be about to begin:
// within a second the engine restarts it, or knows that it is not to be told. One about which engines differ serves, and the
// engine that fails to see it may be cut off.
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

// suppresses reports whether a reason is one of those of engine.Suppressed.
func suppresses(r probe.Reason) bool {
	switch r {
	case probe.ReasonPaused, probe.ReasonMaintenance, probe.ReasonDependency, probe.ReasonDamped:
		return true
	}
	return false
}

// event is that a subject has got into a state.
type event struct {
	Notice            // without StartsAt, EndsAt and Labels of the Spec
	seq        uint64 // in the history; 0 for how the subject is now
	level      level
	explicable bool  // the failure of another target may explain it
	held       bool  // nobody is to be told that it is in trouble: it is paused, or the engine doubts it
	own        level // what the level would be if this engine told about the subject; with the level others only
	forgotten  bool  // another engine tells about the group: what this one has told no longer holds
	restarted  bool  // its instance is being terminated, so that another one starts
	outdated   bool  // it fails by the verdict of an earlier configuration, or no longer: see isOutdated
}

package api

import (
	"fmt"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func newHistory(name string, past []engine.Transition, outcomes []engine.ProbeOutcomes) History {
	h := History{Target: name, Transitions: make([]Transition, 0, len(past)), Outcomes: make([]Outcomes, 0, len(outcomes))}
	for _, of := range outcomes {
		h.Outcomes = append(h.Outcomes, Outcomes{of.ID.String(), probe.FormatOutcomes(of.Runs)})
	}
	for _, t := range past {
		h.Transitions = append(h.Transitions, newTransition(name, t))
	}
	return h
}

func newTransition(target string, t engine.Transition) Transition {
	j := Transition{
		At: utc(t.At), Text: sentence(t), State: t.State, Reason: t.Reason, Detail: t.Detail,
		Attempts: t.Attempts, Policy: t.Policy, Blind: t.Blind, Warns: t.Warns, Doubtful: t.Doubtful, Ejected: t.Ejected, Readmitted: t.Readmitted, Damped: t.Damped, Undamped: t.Undamped, Paused: t.Paused, Unpaused: t.Unpaused, Instance: t.Instance, Restarts: t.Restarts,
	}
	if t.Kind == 0 {
		j.Phase = &t.Phase
		return j
	}
	j.Probe = probe.ID{Target: target, Kind: t.Kind, Name: t.Name}.String()
	if !t.Ejected && !t.Readmitted {
		j.Verdict, j.Previous = &t.Verdict, &t.Previous
	}
	return j
}

// sentence returns a transition as a sentence, with its cause.
func sentence(t engine.Transition) string {
	text := instanceSentence(t)
	if t.Kind != 0 {
		text = probeSentence(t)
	}
	for _, cause := range []string{string(t.Reason), t.Detail} {
		if cause != "" {
			text += ": " + cause
		}
	}
	return text
}

func probeSentence(t engine.Transition) string {
	name := t.Kind.String()
	if t.Name != "" {
		name += " " + t.Name
	}
	switch {
	case t.Ejected:
		return "ejected: requests of gateways have failed"
	case t.Readmitted:
		return "no longer ejected"
	case t.Blind:
		return fmt.Sprintf("%s is blind: %s could not run", name, attempts(t.Attempts))
	case t.Warns && t.Verdict == t.Previous && t.Verdict == probe.Passing:
		return name + " passes with warnings"
	case t.Attempts == 0 && t.Policy != probe.PolicyEvidence:
		return fmt.Sprintf("%s is %v, because of the instance", name, t.Verdict)
	case t.Verdict == t.Previous && t.Verdict != probe.Failing:
		return name + " is passing, and its attempts run without warnings again"
	case t.Policy == probe.PolicyEvidence && t.Verdict == probe.Failing:
		return fmt.Sprintf("%s is failing, by the evidence of its attempts: score %d of %[2]d", name, probe.MaxScore)
	case t.Policy == probe.PolicyEvidence:
		return fmt.Sprintf("%s is %v, by the evidence of its attempts", name, t.Verdict)
	case t.Verdict == probe.Failing:
		return fmt.Sprintf("%s is failing, after %s failed", name, attempts(t.Attempts))
	}
	return fmt.Sprintf("%s is %v, after %s succeeded", name, t.Verdict, attempts(t.Attempts))
}

func attempts(n int32) string {
	if n == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts in a row", n)
}

func instanceSentence(t engine.Transition) string {
	state := words(t.State)
	switch {
	case t.Damped:
		return "damped, since it has flapped too often"
	case t.Undamped:
		return "no longer damped, the target is " + state
	case t.Paused && t.Reason == probe.ReasonMaintenance:
		return "maintenance has begun"
	case t.Paused:
		return "paused"
	case t.Unpaused && t.Reason == probe.ReasonMaintenance:
		return "maintenance has ended, the target is " + state
	case t.Unpaused:
		return "no longer paused, the target is " + state
	}
	switch t.Phase {
	case probe.Absent, probe.Waiting:
		return "no instance runs, the target is " + state
	case probe.Ended:
		return fmt.Sprintf("instance %s ended, the target is %s", t.Instance, state)
	case probe.Gone:
		return fmt.Sprintf("instance %s ended and no other follows, the target is %s", t.Instance, state)
	}
	return fmt.Sprintf("instance %s runs, restart %d, the target is %s", t.Instance, t.Restarts, state)
}

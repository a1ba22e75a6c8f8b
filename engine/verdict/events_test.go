package verdict_test

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// event is an event in the life of a probe.
type event struct {
	what eventType

	instance    string // tick: the instance of the look
	phase       probe.Phase
	started     bool
	young       bool // the initial delay has not passed
	managed     bool // tick and result: a driver replaces the instance
	terminating bool // tick and result

	outcome probe.Outcome // result
	ours    bool          // result: the engine caused the unknown outcome
	extra   bool          // result: the attempt was outside the regular times

	success, failure int32               // reloaded and trusted: change of the thresholds
	onError          probe.OnError       // reloaded: 1 changes it
	compatibility    probe.Compatibility // reloaded: 1 changes it
	policy           probe.Policy        // reloaded and trusted: 1 changes it
}

// eventType is the type of an event.
type eventType uint8

const (
	tick      eventType = iota // a look at the instance
	result                     // the attempt in flight finishes
	reloaded                   // the rule changes
	replaced                   // the handler changes
	moved                      // the address changes
	trusted                    // the engine restarts with resume = "trust"
	verified                   // the engine restarts with resume = "verify"
	forgotten                  // the engine restarts without state
)

var eventNames = [...]string{"tick", "result", "reload", "another handler", "another address", "restart, trust", "restart, verify", "restart, forget"}

func (e *event) String() string {
	switch e.what {
	case tick:
		return fmt.Sprintf("tick: %q %v, started %v, initial delay %v, managed %v, terminating %v", e.instance, e.phase, e.started, e.young, e.managed, e.terminating)
	case result:
		return fmt.Sprintf("result: %v, by the engine %v, extra %v, managed %v, terminating %v", e.outcome, e.ours, e.extra, e.managed, e.terminating)
	}
	return fmt.Sprintf("%s: success_threshold %+d, failure_threshold %+d, on_error changed %v, compatibility changed %v, policy changed %v",
		eventNames[e.what], e.success, e.failure, e.onError != 0, e.compatibility != 0, e.policy != 0)
}

// change applies the changes of an event to a rule.
func (e *event) change(r *probe.Rule) {
	r.SuccessThreshold += e.success
	r.FailureThreshold += e.failure
	r.OnError ^= e.onError
	r.Compatibility ^= e.compatibility
	r.Policy ^= e.policy
}

// at returns the instance at the time of an event.
func (e *event) at(id string) probe.Instance {
	in := probe.Instance{Target: "web", ID: id, Phase: e.phase, Since: t0.Add(-time.Minute), Managed: e.managed, Terminating: e.terminating}
	if e.young {
		in.Since = t0
	}
	return in
}

// applies reports whether an event can happen in a state.
func (x *exploration) applies(p *pair, e *event) bool {
	if e.what == result {
		return p.attempt != ""
	}
	success, failure := p.rule.SuccessThreshold+e.success, p.rule.FailureThreshold+e.failure
	if e.success+e.failure != 0 && p.rule.Policy == probe.PolicyEvidence || e.policy != 0 && success*failure > 1 {
		return false // evidence has no thresholds
	}
	return min(success, failure) >= 1 && max(success, failure) <= x.most
}

// allEvents returns the events of a kind of probe.
func allEvents(kind probe.Kind, instances []string) []event {
	all := append(ticks(instances), results()...)
	for what := replaced; what <= forgotten; what++ {
		all = append(all, event{what: what})
	}
	for _, what := range []eventType{reloaded, trusted} {
		for _, by := range []int32{1, -1} {
			all = append(all, event{what: what, failure: by})
			if kind == probe.Readiness { // for the others it is always 1
				all = append(all, event{what: what, success: by})
			}
		}
	}
	return append(all, event{what: reloaded, onError: 1}, event{what: reloaded, compatibility: 1})
}

// policyEvents returns the changes of the policy for a kind of probe. A startup probe has only one policy.
func policyEvents(kind probe.Kind) []event {
	if kind == probe.Startup {
		return nil
	}
	return []event{{what: reloaded, policy: 1}, {what: trusted, policy: 1}}
}

// ticks returns all looks. Properties that are unknown for an instance without a phase or an ID do not vary.
func ticks(instances []string) []event {
	all := []event{{what: tick, phase: probe.Running}, {what: tick, instance: "a"}}
	for _, id := range instances {
		for phase := probe.Waiting; phase <= probe.Gone; phase++ {
			for bits := range 16 {
				all = append(all, event{what: tick, instance: id, phase: phase,
					started: bits&1 != 0, young: bits&2 != 0, managed: bits&4 != 0, terminating: bits&8 != 0})
			}
		}
	}
	return all
}

// results returns all results. A result caused by the engine itself is always unknown.
func results() (all []event) {
	for bits := range 8 {
		e := event{what: result, phase: probe.Running, extra: bits&1 != 0, managed: bits&2 != 0, terminating: bits&4 != 0}
		for e.outcome = probe.Unknown; e.outcome <= probe.Failure; e.outcome++ {
			all = append(all, e)
		}
		e.outcome, e.ours = probe.Unknown, true
		all = append(all, e)
	}
	return all
}

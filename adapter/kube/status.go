package kube

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Targets says what the probes of a target add up to. *engine.Engine does.
type Targets interface {
	Target(name string) (engine.TargetStatus, bool)
}

// PodStatus returns the status of a pod with what the engine has found: Started
// and Ready of each container, and the conditions Initialized, ContainersReady and
// Ready, with the kubelet's own reasons and messages. The instances in pod.Status
// should have been reported to the engine; what it knows of other lives of
// a container does not count (K115).
//
// A condition keeps its transition time as long as its status stays, and has now
// otherwise, in whole seconds (K118). All else in the status stays as it is. The
// pod is not changed.
func PodStatus(pod *v1.Pod, t Targets, now time.Time) v1.PodStatus {
	status := *pod.Status.DeepCopy()
	fill(pod, &status, t)
	at := metav1.NewTime(now).Rfc3339Copy()
	for _, c := range conditions(pod, &status) {
		c.ObservedGeneration = pod.Generation
		c.LastTransitionTime = at
		put(&status, c)
	}
	return status
}

// fill sets Started and Ready of each container (K98, K113, K114).
func fill(pod *v1.Pod, status *v1.PodStatus, t Targets) {
	for i := range status.ContainerStatuses {
		fillOne(pod, &status.ContainerStatuses[i], t)
	}
	for i := range status.InitContainerStatuses {
		s := &status.InitContainerStatuses[i]
		fillOne(pod, s, t)
		if !hasSidecar(pod, s.Name) {
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
	}
}

func hasSidecar(pod *v1.Pod, name string) bool {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			return isSidecar(c)
		}
	}
	return false
}

func fillOne(pod *v1.Pod, s *v1.ContainerStatus, t Targets) {
	target, _ := t.Target(TargetName(pod, s.Name))
	started := isStarted(s, target)
	s.Started = &started
	s.Ready = started && findings(target, s.ContainerID, probe.Readiness).passes()
}

// isStarted reports whether a container runs and its startup probe has passed.
// Where the engine has not seen this life yet, a status that says so already is
// believed (K98): the engine, not the container, has just begun.
func isStarted(s *v1.ContainerStatus, t engine.TargetStatus) bool {
	if s.State.Running == nil {
		return false
	}
	f := findings(t, s.ContainerID, probe.Startup)
	if !f.seen && s.Started != nil && *s.Started {
		return true
	}
	return f.passes()
}

// finding is what the probes of one kind say about one life.
type finding struct {
	seen    bool // one of them knows this life
	failing bool // one of them does not pass
}

func (f finding) passes() bool { return !f.failing }

func findings(t engine.TargetStatus, life string, kind probe.Kind) finding {
	var f finding
	for _, p := range t.Probes {
		if p.ID.Kind != kind {
			continue
		}
		knows := p.Instance == life
		f.seen = f.seen || knows
		f.failing = f.failing || !knows || p.Verdict != probe.Passing
	}
	return f
}

// put replaces or adds a condition. Its transition time stays when its status
// does, and so does its probe time, which probes never set (K124).
func put(status *v1.PodStatus, c v1.PodCondition) {
	for i, was := range status.Conditions {
		if was.Type != c.Type {
			continue
		}
		c.LastProbeTime = was.LastProbeTime
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		status.Conditions[i] = c
		return
	}
	status.Conditions = append(status.Conditions, c)
}

package kube

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Targets returns the state of a target. *engine.Engine implements it.
type Targets interface {
	Target(name string) (engine.TargetStatus, bool)
}

// PodStatus returns the status of a pod with the results of its probes: Started and
// Ready of each container, and the conditions Initialized, ContainersReady and Ready,
// with the kubelet's reasons and messages. The instances in pod.Status should have
// been reported to the engine; results about other instances do not count (K115 in
// docs/kubelet.md).
//
// A condition keeps its transition time while its status is the same; otherwise it
// gets now in whole seconds (K118). Everything else in the status is unchanged, as is
// the pod.
func PodStatus(pod *v1.Pod, t Targets, now time.Time) v1.PodStatus {
	status := *pod.Status.DeepCopy()
	setContainers(pod, &status, t)
	at := metav1.NewTime(now).Rfc3339Copy()
	for _, c := range conditions(pod, &status) {
		c.ObservedGeneration = pod.Generation
		c.LastTransitionTime = at
		setCondition(&status, c)
	}
	return status
}

// setContainers sets Started and Ready of each container (K98, K113, K114).
func setContainers(pod *v1.Pod, status *v1.PodStatus, t Targets) {
	for i := range status.ContainerStatuses {
		setContainer(pod, &status.ContainerStatuses[i], t)
	}
	for i := range status.InitContainerStatuses {
		s := &status.InitContainerStatuses[i]
		setContainer(pod, s, t)
		if !slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == s.Name && isSidecar(c) }) {
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
	}
}

func setContainer(pod *v1.Pod, s *v1.ContainerStatus, t Targets) {
	target, _ := t.Target(TargetName(pod, s.Name))
	started := isStarted(s, target)
	s.Started = &started
	s.Ready = started && passing(target, s.ContainerID, probe.Readiness)
}

// isStarted reports whether a container runs and its startup probe has passed. When
// the engine does not have this instance yet, Started of the status counts (K98): then
// the engine was restarted, not the container.
func isStarted(s *v1.ContainerStatus, t engine.TargetStatus) bool {
	if s.State.Running == nil {
		return false
	}
	known := slices.ContainsFunc(t.Probes, func(p engine.Status) bool {
		return p.ID.Kind == probe.Startup && p.Instance == s.ContainerID
	})
	if !known && s.Started != nil && *s.Started {
		return true
	}
	return passing(t, s.ContainerID, probe.Startup)
}

// passing reports whether all probes of a kind are passing for an instance.
func passing(t engine.TargetStatus, instance string, kind probe.Kind) bool {
	return !slices.ContainsFunc(t.Probes, func(p engine.Status) bool {
		return p.ID.Kind == kind && (p.Instance != instance || p.Verdict != probe.Passing)
	})
}

// setCondition replaces or adds a condition. The transition time is kept while the
// status is the same; the probe time is kept always: probes never set it (K124).
func setCondition(status *v1.PodStatus, c v1.PodCondition) {
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

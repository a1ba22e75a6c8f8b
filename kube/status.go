package kube

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube/internal/validate"
	"github.com/sonde-probe/sonde/probe"
)

// Targets provides the states of targets. *engine.Engine implements it.
type Targets interface {
	Target(name string) (engine.TargetStatus, bool)
}

// PodStatus returns the status of a pod with the results of its probes: Started and Ready of each container, and the
// conditions Initialized, ContainersReady and Ready, with the kubelet's reasons and messages. The instances in pod.Status
// should have been reported to the engine; results about other instances do not count (K115 in docs/kubelet.md).
//
// If the engine does not have a container's probes, the container was not probed: while it runs, it keeps Started and Ready
// of pod.Status (K98, K165). It does not become ready because its probes are missing.
//
// A condition keeps its transition time while its status is the same; otherwise it gets now in whole seconds (K118).
// Everything else in the status is unchanged, and so is the pod.
func PodStatus(pod *v1.Pod, t Targets, now time.Time) v1.PodStatus {
	return statusFrom(pod, nameOf(pod), t, now)
}

// statusFrom returns the status of a pod whose targets' names begin with name.
func statusFrom(pod *v1.Pod, name podName, t Targets, now time.Time) v1.PodStatus {
	status := *pod.Status.DeepCopy()
	setContainers(pod, name, &status, t)
	at := metav1.NewTime(now).Rfc3339Copy()
	for _, c := range conditions(pod, &status) {
		c.ObservedGeneration = pod.Generation
		c.LastTransitionTime = at
		setCondition(&status, c)
	}
	return status
}

// setContainers sets Started and Ready of each container (K98, K113, K114).
func setContainers(pod *v1.Pod, name podName, status *v1.PodStatus, t Targets) {
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		setContainer(containerOf(pod.Spec.Containers, s.Name), name, s, t)
	}
	for i := range status.InitContainerStatuses {
		s := &status.InitContainerStatuses[i]
		c := containerOf(pod.Spec.InitContainers, s.Name)
		setContainer(c, name, s, t)
		if !validate.IsSidecar(c) {
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
	}
}

// containerOf returns the container with a name, or a container without probes if there is none.
func containerOf(all []v1.Container, name string) v1.Container {
	i := slices.IndexFunc(all, func(c v1.Container) bool { return c.Name == name })
	if i < 0 {
		return v1.Container{Name: name}
	}
	return all[i]
}

func setContainer(c v1.Container, name podName, s *v1.ContainerStatus, t Targets) {
	target, _ := t.Target(name.target(s.Name))
	started := isStarted(c, s, target)
	s.Started = &started
	s.Ready = started && isReady(c, s, target)
}

// isStarted reports whether a container runs and its startup probe has passed. If the engine does not have this instance,
// Started of the status counts (K98), since the engine was restarted, not the container.
func isStarted(c v1.Container, s *v1.ContainerStatus, t engine.TargetStatus) bool {
	if s.State.Running == nil {
		return false
	}
	id := probe.InstanceID(s.ContainerID)
	found, passing := results(t, id, probe.Startup)
	known := slices.ContainsFunc(t.Probes, func(p engine.Status) bool { return p.ID.Kind == probe.Startup && p.Instance == id })
	switch {
	case known:
		return passing
	case s.Started != nil && *s.Started:
		return true
	}
	return !found && c.StartupProbe == nil
}

// isReady reports whether the readiness probe of a started container passes. If the engine does not have the probe, Ready
// of the status counts (K165).
func isReady(c v1.Container, s *v1.ContainerStatus, t engine.TargetStatus) bool {
	if found, passing := results(t, probe.InstanceID(s.ContainerID), probe.Readiness); found {
		return passing
	}
	return c.ReadinessProbe == nil || s.Ready
}

// results reports whether a target has probes of a kind, and whether all of them pass for an instance.
func results(t engine.TargetStatus, instance string, kind probe.Kind) (found, passing bool) {
	passing = true
	for _, p := range t.Probes {
		if p.ID.Kind == kind {
			found = true
			passing = passing && p.Instance == instance && p.Verdict == probe.Passing
		}
	}
	return found, passing
}

// setCondition replaces or adds a condition. It keeps the transition time while the status is the same. It always keeps the
// probe time, which probes never set (K124).
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

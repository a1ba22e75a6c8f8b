package kube

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/kube/internal/validate"
)

// Reasons of conditions, as set by the kubelet (K120 to K122 in docs/kubelet.md).
const (
	reasonUnknownContainerStatuses = "UnknownContainerStatuses" // no container has a status
	reasonContainersNotReady       = "ContainersNotReady"       // the message lists them
	reasonContainersNotInitialized = "ContainersNotInitialized" // the message lists them
	reasonReadinessGatesNotReady   = "ReadinessGatesNotReady"   // the message lists them
	reasonPodCompleted             = "PodCompleted"             // the pod's phase is Succeeded
	reasonPodFailed                = "PodFailed"                // the pod's phase is Failed
)

// conditions returns the conditions for a status whose container statuses are set, in the kubelet's order.
func conditions(pod *v1.Pod, status *v1.PodStatus) []v1.PodCondition {
	ready := containersReady(pod, status)
	return []v1.PodCondition{initialized(pod, status), podReady(pod, status, ready), ready}
}

// checklist collects the containers without a status and those with a bad status.
type checklist struct {
	unknown, bad []string
	word         string // describes the bad containers: "unready"
}

func (r *checklist) check(status *v1.PodStatus, c v1.Container, good func(v1.ContainerStatus) bool) {
	switch s, found := statusOf(status, c.Name); {
	case !found:
		r.unknown = append(r.unknown, c.Name)
	case !good(s):
		r.bad = append(r.bad, c.Name)
	}
}

// message returns the kubelet's message, or "" if no container is listed.
func (r *checklist) message() string {
	var parts []string
	if len(r.unknown) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: %s", r.unknown))
	}
	if len(r.bad) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", r.word, r.bad))
	}
	return strings.Join(parts, ", ")
}

func conditionFalse(kind v1.PodConditionType, reason, message string) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: v1.ConditionFalse, Reason: reason, Message: message}
}

func conditionTrue(kind v1.PodConditionType) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: v1.ConditionTrue}
}

// containersReady returns the condition ContainersReady (K120). It is false for a pod in a terminal phase (K123).
func containersReady(pod *v1.Pod, status *v1.PodStatus) v1.PodCondition {
	if isUnknown(status) {
		return conditionFalse(v1.ContainersReady, reasonUnknownContainerStatuses, "")
	}
	r := checklist{word: "unready"}
	ready := func(s v1.ContainerStatus) bool { return s.Ready }
	for _, c := range slices.Concat(sidecars(pod), pod.Spec.Containers) {
		r.check(status, c, ready)
	}
	switch {
	case status.Phase == v1.PodSucceeded && len(r.unknown) == 0:
		return conditionFalse(v1.ContainersReady, reasonPodCompleted, "")
	case status.Phase == v1.PodFailed:
		return conditionFalse(v1.ContainersReady, reasonPodFailed, "")
	case r.message() != "":
		return conditionFalse(v1.ContainersReady, reasonContainersNotReady, r.message())
	}
	return conditionTrue(v1.ContainersReady)
}

func isUnknown(status *v1.PodStatus) bool {
	return len(status.ContainerStatuses)+len(status.InitContainerStatuses) == 0
}

// podReady returns the condition Ready (K121).
func podReady(pod *v1.Pod, status *v1.PodStatus, containers v1.PodCondition) v1.PodCondition {
	if containers.Status != v1.ConditionTrue {
		return conditionFalse(v1.PodReady, containers.Reason, containers.Message)
	}
	var closed []string
	for _, gate := range pod.Spec.ReadinessGates {
		if problem := gateProblem(status, gate.ConditionType); problem != "" {
			closed = append(closed, problem)
		}
	}
	if len(closed) > 0 {
		return conditionFalse(v1.PodReady, reasonReadinessGatesNotReady, strings.Join(closed, ", "))
	}
	return conditionTrue(v1.PodReady)
}

func gateProblem(status *v1.PodStatus, gate v1.PodConditionType) string {
	c, found := condition(status, gate)
	switch {
	case !found:
		return fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate)
	case c.Status != v1.ConditionTrue:
		return fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate, c.Status)
	}
	return ""
}

func condition(status *v1.PodStatus, kind v1.PodConditionType) (v1.PodCondition, bool) {
	i := slices.IndexFunc(status.Conditions, func(c v1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return v1.PodCondition{}, false
	}
	return status.Conditions[i], true
}

// initialized returns the condition Initialized (K122). Once true it stays true, even if the pod restarts.
func initialized(pod *v1.Pod, status *v1.PodStatus) v1.PodCondition {
	if isUnknown(status) && len(pod.Spec.InitContainers) > 0 {
		return conditionFalse(v1.PodInitialized, reasonUnknownContainerStatuses, "")
	}
	r := checklist{word: "incomplete"}
	for _, c := range pod.Spec.InitContainers {
		r.check(status, c, func(s v1.ContainerStatus) bool {
			if validate.IsSidecar(c) {
				return s.Started != nil && *s.Started
			}
			return s.Ready
		})
	}
	anyStarted := slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		s, _ := statusOf(status, c.Name)
		return s.State.Running != nil || s.State.Terminated != nil
	})
	was, _ := condition(status, v1.PodInitialized)
	switch {
	case status.Phase == v1.PodSucceeded && len(r.unknown) == 0:
		return v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue, Reason: reasonPodCompleted}
	case r.message() == "", anyStarted, was.Status == v1.ConditionTrue:
		return conditionTrue(v1.PodInitialized)
	}
	return conditionFalse(v1.PodInitialized, reasonContainersNotInitialized, r.message())
}

package kube

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/kube/internal/validate"
	"github.com/sonde-probe/sonde/probe"
)

// Instances returns the current instances of a pod's containers from the pod's status: one for each regular container and
// each sidecar. Report them to the engine whenever the status changes.
//
// A container without a status, or without an ID, is Absent (K33 in docs/kubelet.md). A terminated container is Ended if
// its restart policy or restart rules restart it, else Gone (K37). All containers of a pod with phase Succeeded or Failed
// are Gone (K32). If the pod has a deletionTimestamp, all are terminating (K38). All are managed, since the kubelet kills
// containers that fail.
//
// Reason and Detail tell why a container does not run, so that a container in CrashLoopBackOff is crash-looping, and one
// whose image cannot be pulled cannot start.
func Instances(pod *v1.Pod) []probe.Instance { return instancesOf(pod, nameOf(pod)) }

// instancesOf returns the instances of a pod whose targets' names begin with name.
func instancesOf(pod *v1.Pod, name podName) []probe.Instance {
	var all []probe.Instance
	for _, c := range slices.Concat(pod.Spec.Containers, sidecars(pod)) {
		all = append(all, instance(pod, c, name.target(c.Name)))
	}
	return all
}

func sidecars(pod *v1.Pod) []v1.Container {
	return slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(c v1.Container) bool { return !validate.IsSidecar(c) })
}

func instance(pod *v1.Pod, c v1.Container, target string) probe.Instance {
	status, found := statusOf(&pod.Status, c.Name)
	if !found || status.ContainerID == "" {
		in := probe.Instance{Target: target}
		if waits := status.State.Waiting; waits != nil && reasonOf(waits) != "" {
			in.Reason, in.Detail = reasonOf(waits), joinDetail(waits.Reason, waits.Message)
		}
		return in
	}
	in := probe.Instance{
		Target: target, ID: probe.InstanceID(status.ContainerID), Phase: probe.Waiting,
		Managed: true, Terminating: pod.DeletionTimestamp != nil, Restarts: status.RestartCount,
	}
	switch state := status.State; {
	case state.Running != nil:
		in.Phase, in.Since = probe.Running, state.Running.StartedAt.Time
	case state.Terminated != nil:
		in.Phase, in.Since, in.Reason = probe.Gone, state.Terminated.FinishedAt.Time, probe.ReasonExited
		if restarts(pod, c, state.Terminated.ExitCode) {
			in.Phase = probe.Ended
		} else if state.Terminated.ExitCode == 0 {
			in.Reason = probe.ReasonCompleted
		}
		in.Detail = exitOf(state.Terminated)
	case state.Waiting != nil:
		in.Reason, in.Detail = reasonOf(state.Waiting), joinDetail(state.Waiting.Reason, state.Waiting.Message)
		if last := status.LastTerminationState.Terminated; last != nil {
			in.Detail = joinDetail(exitOf(last), in.Detail)
		}
	}
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		in.Phase = probe.Gone
	}
	return in
}

// exitOf describes how a container terminated.
func exitOf(state *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit status %d", state.ExitCode)
	if state.Reason != "" {
		text += ", " + state.Reason
	}
	return joinDetail(text, state.Message)
}

// reasonOf returns why a container waits: for its back-off, because it cannot be started, or "" because it is being
// created. The kubelet has many reasons for the second case but few for the last, so only the last are listed.
func reasonOf(state *v1.ContainerStateWaiting) probe.Reason {
	switch state.Reason {
	case "CrashLoopBackOff":
		return probe.ReasonBackOff
	case "", "ContainerCreating", "PodInitializing":
		return ""
	}
	return probe.ReasonNoStart // such as ImagePullBackOff, CreateContainerConfigError, RunContainerError
}

// statusOf finds the status of a container by name. Regular containers come first (K33).
func statusOf(s *v1.PodStatus, name string) (v1.ContainerStatus, bool) {
	for _, list := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		if i := slices.IndexFunc(list, func(c v1.ContainerStatus) bool { return c.Name == name }); i >= 0 {
			return list[i], true
		}
	}
	return v1.ContainerStatus{}, false
}

// joinDetail joins a reason and a message, either of which may be empty.
func joinDetail(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

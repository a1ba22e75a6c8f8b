package kube

import (
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// restarts reports whether a container that exited with this code is restarted (K37): by its restart rules, else by its own
// policy, else by the pod's. If the whole pod restarts, every container does.
func restarts(pod *v1.Pod, c v1.Container, code int32) bool {
	if allRestart(pod) {
		return true
	}
	action := ruleFor(c, code)
	if c.RestartPolicy != nil && (action == v1.ContainerRestartRuleActionRestart || action == v1.ContainerRestartRuleActionRestartAllContainers) {
		return true
	}
	switch policyOf(pod, c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

// maxExitCode is the highest exit status of a process.
const maxExitCode = 255

// restartExitCodes returns Container.RestartExitCodes.
func restartExitCodes(c v1.Container) (codes []string) {
	isListed := func(code int32) bool {
		return c.RestartPolicy != nil && code <= maxExitCode && ruleFor(c, code) == v1.ContainerRestartRuleActionRestart
	}
	for low := int32(0); low <= maxExitCode; low++ {
		high := low
		for isListed(high) {
			high++
		}
		switch high - low {
		case 0:
			continue
		case 1:
			codes = append(codes, strconv.Itoa(int(low)))
		default:
			codes = append(codes, fmt.Sprintf("%d-%d", low, high-1))
		}
		low = high
	}
	return codes
}

// ruleFor returns the action of the first restart rule that matches an exit code, or "".
func ruleFor(c v1.Container, code int32) v1.ContainerRestartRuleAction {
	for _, r := range c.RestartPolicyRules {
		if r.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(r.ExitCodes.Values, code)
		in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
		if r.ExitCodes.Operator == in && listed || r.ExitCodes.Operator == notIn && !listed {
			return r.Action
		}
	}
	return ""
}

// allRestart reports whether the whole pod restarts: by its condition, or by a restart rule that matches one of its
// terminated containers.
func allRestart(pod *v1.Pod) bool {
	if c, _ := condition(&pod.Status, v1.AllContainersRestarting); c.Status == v1.ConditionTrue {
		return true
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		status, _ := statusOf(&pod.Status, c.Name)
		ended := status.State.Terminated
		if ended != nil && ruleFor(c, ended.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers {
			return true
		}
	}
	return false
}

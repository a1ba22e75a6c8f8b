package kube

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// podName is the part of a target's name that identifies the pod: "namespace/pod". If a Manager already has another pod of
// that name, it is "namespace/pod@uid".
type podName string

func nameOf(pod *v1.Pod) podName {
	name := cmp.Or(pod.Name, strings.TrimSuffix(pod.GenerateName, "-"))
	return podName(cmp.Or(pod.Namespace, v1.NamespaceDefault) + "/" + name)
}

func (n podName) target(container string) string { return string(n) + "/" + container }

// container returns the name of a target's container.
func (n podName) container(target string) string { return strings.TrimPrefix(target, string(n)+"/") }

// TargetName returns the name of a container's target: "namespace/pod/container".
func TargetName(pod *v1.Pod, container string) string { return nameOf(pod).target(container) }

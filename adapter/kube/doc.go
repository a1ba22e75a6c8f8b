// Package kube speaks Kubernetes: pods in, conditions out.
//
//	Set         the probes of a pod, as a probe.Set
//	Instances   the lives of its containers, from the pod's status
//	PodStatus   the status with what the engine has found: started, ready, conditions
//	Manager     all of it over one engine, by the verbs of the kubelet's own prober manager
//	Read        manifests: pods, and what makes pods of a template
//	Containers  the same pods in this project's words, for those who know no Kubernetes
//
// A container is the target "namespace/pod/container", and a life of it has the
// container's ID, such as "containerd://5f2c…". The package makes no handlers:
// who calls it hands constructors in (Handlers).
//
// Numbers such as K113 in the comments and tests stand for a behaviour of the
// kubelet or the API server; docs/kubelet.md lists them.
package kube

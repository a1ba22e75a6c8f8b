// Package kube converts between Kubernetes pods and an engine: pods in, conditions out.
//
//	Set         the probes of a pod, as a probe.Set
//	Instances   the instances of its containers, from the pod's status
//	PodStatus   the status with started, ready and conditions from the engine
//	Manager     all of the above for one engine, with the methods of the kubelet's prober manager
//	Read        manifests: pods, and objects with a pod template
//	Containers  the same pods as targets, rules and processes
//
// A container is the target "namespace/pod/container", and its instance has the container's ID, such as
// "containerd://5f2c…". The package contains no handlers: the caller passes constructors (Handlers).
//
// Numbers such as K113 in comments and tests identify a behaviour of the kubelet or the API server; docs/kubelet.md lists
// them.
//
// Files: container.go, names.go, handlers.go and expand.go convert a container; defaults.go and package validate first
// apply the API server's defaults and validation; manifest.go, split.go and ignored.go read manifests; process.go converts
// a container into a process, contained.go into a container of a container runtime; set.go, instances.go and restarts.go
// provide input for the engine; status.go and conditions.go produce the pod's status; manager.go combines them.
package kube

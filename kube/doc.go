// Package kube converts between Kubernetes pods and an engine: pods in, conditions
// out.
//
//	Set         the probes of a pod, as a probe.Set
//	Instances   the instances of its containers, from the pod's status
//	PodStatus   the status with started, ready and conditions from the engine
//	Manager     all of it with one engine, and the methods of the kubelet's prober manager
//	Read        manifests: pods, and objects with a pod template
//	Containers  the same pods as targets, rules and processes
//
// A container is the target "namespace/pod/container", and its instance has the
// container's ID, such as "containerd://5f2c…". The package contains no handlers: the
// caller passes constructors (Handlers).
//
// Numbers such as K113 in comments and tests identify a behaviour of the kubelet or
// the API server; docs/kubelet.md lists them.
//
// Files: container.go, names.go, handlers.go and expand.go convert a container;
// defaults.go and package validate do what the API server does first; manifest.go,
// split.go and ignored.go read manifests; process.go turns a container into a process,
// contained.go into one of a container runtime; set.go, instances.go and restarts.go
// are for the engine; status.go and conditions.go are for the pod's status; manager.go
// joins them.
package kube

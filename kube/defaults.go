package kube

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/probe"
)

// Default returns a copy of pod with the API server's defaults that concern probes (K170 in docs/kubelet.md): the
// namespace, restart policy, grace period and protocols, and the numeric fields, paths and schemes of probes and of
// preStop.
func Default(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = cmp.Or(pod.Namespace, v1.NamespaceDefault)
	pod.Spec.RestartPolicy = cmp.Or(pod.Spec.RestartPolicy, v1.RestartPolicyAlways)
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if given := pod.Spec.TerminationGracePeriodSeconds; given != nil {
		grace = *given
	}
	if grace < 0 {
		grace = 1 // as in the API server
	}
	pod.Spec.TerminationGracePeriodSeconds = &grace
	for i := range pod.Spec.InitContainers {
		defaultContainer(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		defaultContainer(&pod.Spec.Containers[i])
	}
	return pod
}

func defaultContainer(c *v1.Container) {
	for i := range c.Ports {
		c.Ports[i].Protocol = cmp.Or(c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for _, p := range []*v1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p != nil {
			defaultProbe(p)
		}
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		defaultHTTPGet(c.Lifecycle.PreStop.HTTPGet)
	}
}

func defaultProbe(p *v1.Probe) {
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, int32(probe.DefaultTimeout.Seconds()))
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, int32(probe.DefaultPeriod.Seconds()))
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, probe.DefaultSuccessThreshold)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, probe.DefaultFailureThreshold)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil && p.GRPC.Service == nil {
		p.GRPC.Service = new(string)
	}
}

// defaultHTTPGet sets the defaults of an httpGet action. h may be nil.
func defaultHTTPGet(h *v1.HTTPGetAction) {
	if h != nil {
		h.Path = cmp.Or(h.Path, "/")
		h.Scheme = cmp.Or(h.Scheme, v1.URISchemeHTTP)
	}
}

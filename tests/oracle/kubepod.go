package oracle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sonde-probe/sonde/probe"
)

const namespace = "oracle"

// podSpec returns the pod of a script with the API server's defaults.
func podSpec(s *Script, web int, ports map[probeKey]*tcpPort) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: namespace, UID: types.UID(s.Name)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicy(s.Policy)},
	}
	if s.Deleting {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	for _, c := range s.Containers {
		container := v1.Container{Name: c.Name, Image: "none"}
		for _, k := range c.Checks {
			at := probeKey{s.Name, c.Name, k.Kind}
			put(&container, k.Kind, probeSpec(k, at, web, ports[at]))
		}
		if c.Sidecar {
			always := v1.ContainerRestartPolicyAlways
			container.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	return pod
}

// command returns the command of a scripted exec probe, which identifies the probe.
func command(at probeKey) []string { return []string{at.script, at.container, at.kind.String()} }

func probeKeyOfCommand(words []string) (at probeKey, ok bool) {
	if len(words) != 3 || at.kind.UnmarshalText([]byte(words[2])) != nil {
		return probeKey{}, false
	}
	at.script, at.container = words[0], words[1]
	return at, true
}

func put(c *v1.Container, kind probe.Kind, p *v1.Probe) {
	switch kind {
	case probe.Startup:
		c.StartupProbe = p
	case probe.Readiness:
		c.ReadinessProbe = p
	case probe.Liveness:
		c.LivenessProbe = p
	}
}

func probeSpec(k Check, at probeKey, web int, d *tcpPort) *v1.Probe {
	p := &v1.Probe{
		InitialDelaySeconds: int32(k.Delay), PeriodSeconds: int32(k.Period), TimeoutSeconds: int32(k.Timeout),
		SuccessThreshold: int32(k.Success), FailureThreshold: int32(k.Failure),
	}
	switch k.Via {
	case ViaExec:
		p.Exec = &v1.ExecAction{Command: command(at)}
	case ViaHTTP:
		p.HTTPGet = &v1.HTTPGetAction{Path: path(at), Port: intstr.FromInt(web)}
	case ViaTCP:
		p.TCPSocket = &v1.TCPSocketAction{Port: intstr.FromInt(d.addr.Port)}
	}
	return p
}

// startTime returns the startTime of a pod whose images took an hour to pull: initial delays are not measured from startTime (K39).
func startTime() *metav1.Time { return &metav1.Time{Time: time.Now().Add(-time.Hour)} }

// podStatus returns the pod's status from the states of its containers. It keeps Started while the same instance runs.
func podStatus(s *Script, instances map[string]instance, before v1.PodStatus) v1.PodStatus {
	st := v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", StartTime: startTime()}
	if before.Phase != "" {
		st.Phase = before.Phase
	}
	for _, c := range s.Containers {
		l := instances[c.Name]
		if l.number == 0 {
			continue
		}
		cs := v1.ContainerStatus{Name: c.Name, ContainerID: l.id(s.Name, c.Name), State: state(l)}
		if l.lost {
			cs.ContainerID, cs.State = "", state(instance{})
		}
		if old := statusOf(before, c.Name); old != nil && l.phase == probe.Running && old.ContainerID == cs.ContainerID {
			cs.Started = old.Started
		}
		if c.Sidecar {
			st.InitContainerStatuses = append(st.InitContainerStatuses, cs)
		} else {
			st.ContainerStatuses = append(st.ContainerStatuses, cs)
		}
	}
	return st
}

func statusOf(st v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// state returns the state of a container, with times truncated to whole seconds like the status manager's (K118).
func state(l instance) v1.ContainerState {
	since := metav1.NewTime(l.since.Truncate(time.Second))
	switch {
	case l.phase == probe.Running:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: since}}
	case l.ended:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: int32(l.exit), FinishedAt: since}}
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
}

// flagsOf returns started and ready of a container as text, and whether it is known to have ended for good (K37).
func flagsOf(started, ready, gone bool) string {
	text := fmt.Sprintf("started=%v ready=%v", started, ready)
	if gone {
		text += " gone"
	}
	return text
}

// kubeKind returns the name of a kind in the kubelet's labels and events.
func kubeKind(k probe.Kind) string {
	return map[probe.Kind]string{probe.Startup: "Startup", probe.Readiness: "Readiness", probe.Liveness: "Liveness"}[k]
}

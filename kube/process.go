package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// obstacles returns the features that a container needs but a process of this machine cannot have. unknown are the
// variables whose values are not known from the manifest.
func obstacles(pod *v1.Pod, c v1.Container, unknown []string) []string {
	return obstaclesOf(pod, c, unknown, func(m v1.VolumeMount) string {
		if isHostPath(pod, m) {
			return ""
		}
		return fmt.Sprintf("volume %q is mounted at %s", m.Name, m.MountPath)
	})
}

// obstaclesOf is like obstacles. mount returns why a volume cannot be mounted, or "".
func obstaclesOf(pod *v1.Pod, c v1.Container, unknown []string, mount func(v1.VolumeMount) string) []string {
	var found []string
	add := func(format string, a ...any) { found = append(found, fmt.Sprintf(format, a...)) }
	if os := pod.Spec.OS; os != nil && os.Name == v1.Windows {
		add("its pod is for Windows")
	}
	for _, name := range unknown {
		add("variable %s is set by valueFrom", name)
	}
	if len(c.EnvFrom) > 0 {
		add("variables are set by envFrom")
	}
	for _, m := range c.VolumeMounts {
		if problem := mount(m); problem != "" {
			add("%s", problem)
		}
	}
	for _, d := range c.VolumeDevices {
		add("volume %q is device %s", d.Name, d.DevicePath)
	}
	return found
}

// SetAddress sets the fields that the kubelet would set for a pod on a machine with this address, if the manifest does not
// set them: the addresses of the pod and the host, and the UID, which is a hash of the pod's name.
func (m Manifest) SetAddress(address string) {
	if m.Pod == nil {
		return
	}
	m.Pod.Status.PodIP = cmp.Or(m.Pod.Status.PodIP, address)
	if m.Pod.Status.PodIP == address {
		m.Pod.Status.HostIP = cmp.Or(m.Pod.Status.HostIP, address)
	}
	if m.Pod.UID == "" {
		sum := sha256.Sum256([]byte(m.Namespace + "/" + m.Name))
		m.Pod.UID = types.UID(hex.EncodeToString(sum[:16]))
	}
}

// ProcessFields returns the fields in the manifest that matter only if a container runs as a process: those of the
// container, such as "env", and then those of its pod, such as "spec.restartPolicy". They have no effect if the container
// is only probed.
func (m Manifest) ProcessFields(container string) []string {
	if m.Pod == nil {
		return nil
	}
	spec := &m.Pod.Spec
	c := containerOf(slices.Concat(spec.Containers, spec.InitContainers), container)
	user, podUser := cmp.Or(c.SecurityContext, new(v1.SecurityContext)), cmp.Or(spec.SecurityContext, new(v1.PodSecurityContext))
	var found []string
	for _, f := range []struct {
		given bool
		path  string
	}{
		{len(c.Command) > 0, "command"},
		{len(c.Args) > 0, "args"},
		{c.WorkingDir != "", "workingDir"},
		{len(c.Env) > 0, "env"},
		{len(c.EnvFrom) > 0, "envFrom"},
		{len(c.VolumeMounts) > 0, "volumeMounts"},
		{len(c.VolumeDevices) > 0, "volumeDevices"},
		{user.RunAsUser != nil, "securityContext.runAsUser"},
		{user.RunAsGroup != nil, "securityContext.runAsGroup"},
		{c.RestartPolicy != nil, "restartPolicy"},
		{len(c.RestartPolicyRules) > 0, "restartPolicyRules"},
		{stopSignal(c) != "", "lifecycle.stopSignal"},
		{preStopOf(c) != nil, "lifecycle.preStop"},
		{hasGrace(c.LivenessProbe), "livenessProbe.terminationGracePeriodSeconds"},
		{hasGrace(c.StartupProbe), "startupProbe.terminationGracePeriodSeconds"},
		{spec.RestartPolicy != "", m.spec.Child("restartPolicy").String()},
		{spec.TerminationGracePeriodSeconds != nil, m.spec.Child("terminationGracePeriodSeconds").String()},
		{podUser.RunAsUser != nil, m.spec.Child("securityContext", "runAsUser").String()},
		{podUser.RunAsGroup != nil, m.spec.Child("securityContext", "runAsGroup").String()},
	} {
		if f.given {
			found = append(found, f.path)
		}
	}
	return found
}

func hasGrace(p *v1.Probe) bool { return p != nil && p.TerminationGracePeriodSeconds != nil }

// isHostPath reports whether a mount is a hostPath volume at the same path, so that a process finds the same files.
func isHostPath(pod *v1.Pod, m v1.VolumeMount) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Name == m.Name && v.HostPath != nil {
			return path.Join(v.HostPath.Path, m.SubPath) == path.Clean(m.MountPath) && m.SubPathExpr == ""
		}
	}
	return false
}

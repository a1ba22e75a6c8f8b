package kube

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
)

// obstacles says what a container needs that a process of this machine would not
// have. Unknown are variables whose values are not known.
func obstacles(pod *v1.Pod, c v1.Container, unknown []string) []string {
	var found []string
	say := func(format string, a ...any) { found = append(found, fmt.Sprintf(format, a...)) }
	for _, init := range pod.Spec.InitContainers {
		if !isSidecar(init) {
			say("init container %q has to end before it begins", init.Name)
		}
	}
	for _, name := range unknown {
		say("variable %s has its value from elsewhere (valueFrom)", name)
	}
	if len(c.EnvFrom) > 0 {
		say("it has variables from elsewhere (envFrom)")
	}
	for _, m := range c.VolumeMounts {
		if !isHere(pod, m) {
			say("volume %q is mounted at %s", m.Name, m.MountPath)
		}
	}
	for _, d := range c.VolumeDevices {
		say("volume %q is its device %s", d.Name, d.DevicePath)
	}
	return found
}

// isHere reports whether a mount shows what stands at the same path of the
// machine anyway.
func isHere(pod *v1.Pod, m v1.VolumeMount) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Name == m.Name && v.HostPath != nil {
			return path.Join(v.HostPath.Path, m.SubPath) == path.Clean(m.MountPath) && m.SubPathExpr == ""
		}
	}
	return false
}

// Words returns the program and the arguments of the container as a process.
// Entrypoints are what images run by themselves, by the image's name without tag
// and digest, or the end of it after a slash; they may be empty. It is an error
// when the image decides and is not among them.
func (c Container) Words(entrypoints map[string][]string) ([]string, error) {
	if len(c.Command) > 0 {
		return append(append([]string{}, c.Command...), c.Args...), nil
	}
	entrypoint, known := entrypointOf(c.Image, entrypoints)
	words := append(append([]string{}, entrypoint...), c.Args...)
	switch {
	case !known:
		return nil, fmt.Errorf("it has no command, and only its image %q knows what runs", c.Image)
	case len(words) == 0:
		return nil, fmt.Errorf("it has neither a command nor arguments, and its image %q is said to run nothing", c.Image)
	}
	return words, nil
}

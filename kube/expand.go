package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/internal/command"
)

// environment returns the container's variables that the manifest determines, with
// references to earlier variables replaced, and the names of the others.
func environment(pod *v1.Pod, env []v1.EnvVar) (values map[string]string, unknown []string) {
	values = make(map[string]string, len(env))
	for _, e := range env {
		value, ok := command.Expand(e.Value, values), true
		if e.ValueFrom != nil {
			value, ok = fieldRef(pod, e.ValueFrom)
		}
		if !ok {
			unknown = append(unknown, e.Name)
			continue
		}
		values[e.Name] = value
	}
	return values, unknown
}

// fieldRef returns the value of a fieldRef that is known before the pod runs.
func fieldRef(pod *v1.Pod, from *v1.EnvVarSource) (string, bool) {
	if from.FieldRef == nil {
		return "", false
	}
	switch from.FieldRef.FieldPath {
	case "metadata.name":
		return pod.Name, true
	case "metadata.namespace":
		return pod.Namespace, true
	}
	return "", false
}

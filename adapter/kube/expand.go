package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/internal/command"
)

// static returns the variables that an exec probe's command knows: as they are
// written, and empty for one that gets its value from elsewhere (K76).
func static(env []v1.EnvVar) map[string]string {
	known := make(map[string]string, len(env))
	for _, e := range env {
		known[e.Name] = e.Value
	}
	return known
}

// environment returns the variables that the container would see, as far as the
// manifest knows them: references to earlier variables are replaced. Unknown are
// the names whose values come from elsewhere.
func environment(pod *v1.Pod, env []v1.EnvVar) (known map[string]string, unknown []string) {
	known = make(map[string]string, len(env))
	for _, e := range env {
		value, ok := command.Expand(e.Value, known), true
		if e.ValueFrom != nil {
			value, ok = downward(pod, e.ValueFrom)
		}
		if !ok {
			unknown = append(unknown, e.Name)
			continue
		}
		known[e.Name] = value
	}
	return known, unknown
}

// downward returns the pod's own fields that are known before it runs.
func downward(pod *v1.Pod, from *v1.EnvVarSource) (string, bool) {
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

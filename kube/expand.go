package kube

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/internal/command"
)

// environment returns the container's variables with a value known from the manifest, with references to earlier variables
// replaced, and the names of the other variables.
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

// fieldRef returns the value of a fieldRef if it is known before the pod runs. As in the kubelet, a missing label or
// annotation is empty.
func fieldRef(pod *v1.Pod, from *v1.EnvVarSource) (string, bool) {
	if from.FieldRef == nil {
		return "", false
	}
	path := from.FieldRef.FieldPath
	if field, key, ok := cutSubscript(path); ok {
		values, known := map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations}[field]
		return values[key], known
	}
	value, known := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"spec.nodeName": pod.Spec.NodeName, "status.podIP": pod.Status.PodIP, "status.podIPs": pod.Status.PodIP, "status.hostIP": pod.Status.HostIP,
	}[path]
	return value, known && value != ""
}

// cutSubscript splits a path such as "metadata.labels['app']" into the field and the key.
func cutSubscript(path string) (field, key string, ok bool) {
	field, key, ok = strings.Cut(path, "['")
	key, closed := strings.CutSuffix(key, "']")
	return field, key, ok && closed
}

package kube

import (
	"strings"

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

// fieldRef returns the value of a fieldRef that is known before the pod runs. A label or an annotation that the pod does not have
// is empty, as for the kubelet.
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

// cutSubscript returns the two parts of a path such as "metadata.labels['app']".
func cutSubscript(path string) (field, key string, ok bool) {
	field, key, ok = strings.Cut(path, "['")
	key, closed := strings.CutSuffix(key, "']")
	return field, key, ok && closed
}

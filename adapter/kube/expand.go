package kube

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// expand replaces $(NAME) by the value of a known name. An unknown name is left
// as it is, $$ gives a single $, and values are not expanded again (K76).
func expand(s string, known map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		text, used := reference(after, known)
		b.WriteString(text)
		s = after[used:]
	}
}

// reference returns what a $ with s behind it stands for, and how much of s
// belongs to it.
func reference(s string, known map[string]string) (text string, used int) {
	if strings.HasPrefix(s, "$") {
		return "$", 1
	}
	name, _, closed := strings.Cut(strings.TrimPrefix(s, "("), ")")
	if !closed || !strings.HasPrefix(s, "(") {
		return "$", 0
	}
	used = len(name) + len("()")
	if value, ok := known[name]; ok {
		return value, used
	}
	return "$" + s[:used], used
}

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
		value, ok := expand(e.Value, known), true
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

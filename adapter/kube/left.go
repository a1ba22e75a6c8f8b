package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fields are the fields of an object that are understood, each with those below
// it, in lists too; nil for all that stands below.
type fields map[string]fields

// The fields that the API server fills in, or that say only who owns what.
var filledIn = fields{
	"name": nil, "namespace": nil, "generateName": nil, "uid": nil, "resourceVersion": nil,
	"generation": nil, "creationTimestamp": nil, "managedFields": nil, "selfLink": nil, "ownerReferences": nil,
}

var probeFields = fields{
	"exec":      {"command": nil},
	"httpGet":   {"path": nil, "port": nil, "host": nil, "scheme": nil, "httpHeaders": {"name": nil, "value": nil}},
	"tcpSocket": {"port": nil, "host": nil},
	"grpc":      {"port": nil, "service": nil},

	"initialDelaySeconds": nil, "timeoutSeconds": nil, "periodSeconds": nil, "successThreshold": nil,
	"failureThreshold": nil, "terminationGracePeriodSeconds": nil,
}

var userFields = fields{"runAsUser": nil, "runAsGroup": nil}

// Variables, mounts and devices that a process would not have are obstacles, and
// told as such.
var containerFields = fields{
	"name": nil, "image": nil, "command": nil, "args": nil, "workingDir": nil, "envFrom": nil, "volumeMounts": nil, "volumeDevices": nil,
	"env":           {"name": nil, "value": nil, "valueFrom": nil},
	"ports":         {"name": nil, "containerPort": nil, "protocol": nil},
	"restartPolicy": nil, "securityContext": userFields,
	"livenessProbe": probeFields, "readinessProbe": probeFields, "startupProbe": probeFields,
}

// The addresses of a pod's own network are those of its status.
var podFields = fields{
	"containers": nil, "initContainers": nil, "restartPolicy": nil, "terminationGracePeriodSeconds": nil,
	"hostNetwork": nil, "securityContext": userFields,
}

// leave notes what of an object is not understood. Spec is the path of the pod's
// spec, "spec.template.spec".
func (m *Manifest) leave(o map[string]any, spec string) {
	known := fields{"apiVersion": nil, "kind": nil, "metadata": filledIn, "status": nil}
	below := known
	path := strings.Split(spec, ".")
	for _, name := range path[:len(path)-1] {
		below[name] = fields{"metadata": {"creationTimestamp": nil}}
		below = below[name]
	}
	below["spec"] = podFields
	m.Left = unknown(o, known, "")
	m.LeftOf = map[string][]string{}
	pod := dig(o, path)
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := pod[list].([]any)
		for _, c := range containers {
			one, _ := c.(map[string]any)
			if left := unknown(one, containerFields, ""); len(left) > 0 {
				m.LeftOf[text(one, "name")] = left
			}
		}
	}
}

func dig(o map[string]any, path []string) map[string]any {
	for _, name := range path {
		o, _ = o[name].(map[string]any)
	}
	return o
}

// unknown returns the paths of what an object has beside its known fields, sorted.
// What is empty says nothing.
func unknown(o map[string]any, known fields, prefix string) []string {
	var left []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		below, ok := known[name]
		object, isObject := o[name].(map[string]any)
		list, isList := o[name].([]any)
		switch {
		case ok && below == nil, isEmpty(o[name]):
		case ok && isObject:
			left = append(left, unknown(object, below, prefix+name+".")...)
		case ok && isList:
			left = append(left, unknownIn(list, below, prefix+name)...)
		default:
			left = append(left, prefix+name)
		}
	}
	return left
}

// unknownIn is unknown for the objects of a list.
func unknownIn(list []any, known fields, path string) []string {
	var left []string
	for i, e := range list {
		if o, ok := e.(map[string]any); ok {
			left = append(left, unknown(o, known, fmt.Sprintf("%s[%d].", path, i))...)
		}
	}
	return left
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(e any) bool { return !isEmpty(e) })
	case []any:
		return len(v) == 0
	}
	return fmt.Sprint(v) == ""
}

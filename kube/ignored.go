package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fields is a tree of an object's supported fields. The subfields also apply to elements of lists; nil supports all
// subfields.
type fields map[string]fields

// serverFields are fields that the API server sets, and owners. They have no effect on probes.
var serverFields = fields{
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

var lifecycleFields = fields{
	"stopSignal": nil, "preStop": {"exec": probeFields["exec"], "httpGet": probeFields["httpGet"], "sleep": {"seconds": nil}},
}

var userFields = fields{"runAsUser": nil, "runAsGroup": nil}

// containerFields includes variables, mounts and devices that a process cannot have: those are reported as Obstacles
// instead.
var containerFields = fields{
	"name": nil, "image": nil, "command": nil, "args": nil, "workingDir": nil, "envFrom": nil, "volumeMounts": nil, "volumeDevices": nil,
	"env":                {"name": nil, "value": nil, "valueFrom": nil},
	"ports":              {"name": nil, "containerPort": nil, "protocol": nil},
	"restartPolicyRules": {"action": nil, "exitCodes": {"operator": nil, "values": nil}},
	"restartPolicy":      nil, "securityContext": userFields, "lifecycle": lifecycleFields,
	"livenessProbe": probeFields, "readinessProbe": probeFields, "startupProbe": probeFields,
}

// podFields includes hostNetwork, which has no effect on processes: the pod's address is taken from its status.
var podFields = fields{
	"containers": nil, "initContainers": nil, "restartPolicy": nil, "terminationGracePeriodSeconds": nil,
	"hostNetwork": nil, "securityContext": userFields, "os": {"name": nil},
}

// containedFields and containedPodFields are the supported fields for containers of a container runtime.
var (
	containedFields = with(containerFields, fields{
		"imagePullPolicy": nil, "resources": {"limits": {"cpu": nil, "memory": nil}},
		"ports": {"name": nil, "containerPort": nil, "protocol": nil, "hostPort": nil, "hostIP": nil},
	})
	containedPodFields = with(podFields, fields{"volumes": nil})
)

// with returns fields with more added or replaced.
func with(all, more fields) fields {
	all = maps.Clone(all)
	maps.Copy(all, more)
	return all
}

// ForContainers prepares the manifest for conversion to containers of a container runtime: Ignored and IgnoredOf list the
// fields that neither Containers nor Contained supports, and the addresses of the pod and its host are cleared.
func (m *Manifest) ForContainers() {
	if m.Pod == nil {
		return
	}
	m.Pod.Status.PodIP, m.Pod.Status.HostIP = "", ""
	m.SetAddress("")
	m.findIgnored(containedPodFields, containedFields)
}

// findIgnored sets Ignored and IgnoredOf.
func (m *Manifest) findIgnored(podFields, containerFields fields) {
	o, spec := m.object, strings.TrimPrefix(m.spec.String(), ".")
	known := fields{"apiVersion": nil, "kind": nil, "metadata": serverFields, "status": nil}
	below := known
	path := strings.Split(spec, ".")
	for _, name := range path[:len(path)-1] {
		below[name] = fields{"metadata": {"creationTimestamp": nil}}
		below = below[name]
	}
	below["spec"] = podFields
	m.Ignored = unknown(o, known, "")
	m.IgnoredOf = map[string][]string{}
	pod := lookup(o, path)
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := pod[list].([]any)
		for _, c := range containers {
			one, _ := c.(map[string]any)
			left := unknown(one, containerFields, "")
			if len(left) > 0 {
				m.IgnoredOf[text(one, "name")] = left
			}
		}
	}
	for _, c := range slices.Concat(m.Pod.Spec.Containers, m.Pod.Spec.InitContainers) {
		if user, group := userAndGroup(m.Pod, c); user == nil && group != nil {
			m.IgnoredOf[c.Name] = append(m.IgnoredOf[c.Name], "securityContext.runAsGroup (without runAsUser)")
		}
	}
}

func lookup(o map[string]any, path []string) map[string]any {
	for _, name := range path {
		o, _ = o[name].(map[string]any)
	}
	return o
}

// unknown returns the sorted paths of an object's fields that are not in known. Empty fields are skipped.
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
			for i, e := range list {
				object, _ := e.(map[string]any)
				left = append(left, unknown(object, below, fmt.Sprintf("%s%s[%d].", prefix, name, i))...)
			}
		default:
			left = append(left, prefix+name)
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

package manifests

import (
	"fmt"
	"strings"

	"github.com/sonde-probe/sonde/config/suggest"
	"github.com/sonde-probe/sonde/kube"
)

// probeFields are the fields of a container that define its probes. If one of them is misspelt, the container lacks a probe.
var probeFields = []string{
	"livenessProbe", "readinessProbe", "startupProbe", "httpGet", "tcpSocket", "command", "httpHeaders", "containerPort",
	"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds",
}

// gates lists the gates of a manifest's pods. In Kubernetes, such a pod is not ready, or not even started, until a controller
// sets conditions or removes gates. Here nothing does that.
func gates(m kube.Manifest) (readiness, scheduling string) {
	var ready, schedule []string
	for _, g := range m.Pod.Spec.ReadinessGates {
		ready = append(ready, string(g.ConditionType))
	}
	for _, g := range m.Pod.Spec.SchedulingGates {
		schedule = append(schedule, g.Name)
	}
	return strings.Join(ready, ", "), strings.Join(schedule, ", ")
}

// listFields lists unsupported fields, with suggestions for those that are probably misspelt.
func listFields(fields []string) string {
	texts := make([]string, len(fields))
	for i, field := range fields {
		texts[i] = field
		name := field[strings.LastIndexByte(field, '.')+1:]
		if near := suggest.Nearest(name, probeFields); near != "" {
			texts[i] = fmt.Sprintf("%s (did you mean %s?)", field, near)
		}
	}
	return strings.Join(texts, ", ")
}

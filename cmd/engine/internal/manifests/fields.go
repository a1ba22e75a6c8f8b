package manifests

import (
	"fmt"
	"strings"

	"github.com/sonde-probe/sonde/config/suggest"
)

// probeFields are the fields of a container that make its probes. When one of them
// is misspelt, the manifest has a probe fewer than its author expects.
var probeFields = []string{
	"livenessProbe", "readinessProbe", "startupProbe", "httpGet", "tcpSocket", "command", "httpHeaders", "containerPort",
	"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds",
}

// ListFields lists fields that are not supported, with a suggestion for those that
// are probably misspelt.
func ListFields(fields []string) string {
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

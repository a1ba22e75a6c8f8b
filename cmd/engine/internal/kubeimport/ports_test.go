package kubeimport

import (
	"strings"
	"testing"
)

func TestPortsThatImportedProcessesShareAreTold(t *testing.T) {
	in := func() *strings.Reader {
		return strings.NewReader(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, command: [x], livenessProbe: {httpGet: {port: 80}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, command: [x], ports: [{name: web, containerPort: 80}], livenessProbe: {tcpSocket: {port: web}}}]}}
`)
	}
	const want = "port 80 is also used by default/a/c, and processes share the ports of this machine."
	out, complaints, err := runImport(in(), "-")
	if err != nil || !strings.Contains(complaints, "Pod default/b: container c: "+want) || !strings.Contains(strings.ReplaceAll(out, "\n  # ", " "), want) {
		t.Errorf("%v\n%s\n%s", err, complaints, out)
	}
	if _, complaints, err := runImport(in(), "--address", "10.0.0.7", "-"); err != nil || strings.Contains(complaints, "share the ports") {
		t.Errorf("of what runs elsewhere it says: %v\n%s", err, complaints)
	}
}

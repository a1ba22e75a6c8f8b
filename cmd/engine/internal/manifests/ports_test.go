package manifests

import (
	"strings"
	"testing"
)

func TestPortConflictsOfImportedProcessesAreWarnings(t *testing.T) {
	in := func() *strings.Reader {
		return strings.NewReader(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i, command: [x], livenessProbe: {httpGet: {port: 80}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i, command: [x], ports: [{name: web, containerPort: 80}], livenessProbe: {tcpSocket: {port: web}}}]}}
`)
	}
	const want = "port 80 is also used by default/a/c, and processes share the ports of this machine."
	out, stderr, err := runImport(in(), "-")
	if err != nil || !strings.Contains(stderr, "Pod default/b: container c: "+want) || !strings.Contains(strings.ReplaceAll(out, "\n  # ", " "), want) {
		t.Errorf("%v\n%s\n%s", err, stderr, out)
	}
	if _, stderr, err := runImport(in(), "--address", "10.0.0.7", "-"); err != nil || strings.Contains(stderr, "share the ports") {
		t.Errorf("with --address: %v\n%s", err, stderr)
	}
}

package kube_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/kube"
)

// problems returns Validate's errors, sorted.
func problems(pod *v1.Pod) []string {
	var all []string
	for _, err := range kube.Validate(pod) {
		all = append(all, err.Error())
	}
	slices.Sort(all)
	return all
}

func TestProbesAreRejectedInTheAPIServersWords(t *testing.T) {
	for _, test := range []struct {
		name  string
		probe string // the container's probes, as YAML
		want  []string
	}{
		{"K170 an explicit 0 is the default", "livenessProbe: {exec: {command: [x]}, periodSeconds: 0, timeoutSeconds: 0, successThreshold: 0, failureThreshold: 0}", nil},
		{"K171 no number is below 0", "livenessProbe: {exec: {command: [x]}, initialDelaySeconds: -1, timeoutSeconds: -2, periodSeconds: -3, failureThreshold: -4}", []string{
			"spec.containers[0].livenessProbe.failureThreshold: Invalid value: -4: must be greater than or equal to 0",
			"spec.containers[0].livenessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
			"spec.containers[0].livenessProbe.periodSeconds: Invalid value: -3: must be greater than or equal to 0",
			"spec.containers[0].livenessProbe.timeoutSeconds: Invalid value: -2: must be greater than or equal to 0",
		}},
		{"K171 successThreshold is not below 0", "readinessProbe: {exec: {command: [x]}, successThreshold: -1}", []string{
			"spec.containers[0].readinessProbe.successThreshold: Invalid value: -1: must be greater than or equal to 0",
		}},
		{"K171 a grace period is above 0", "livenessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 0}", []string{
			"spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
		}},
		{"K171 readiness has no grace period", "readinessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 3}", []string{
			"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 3: must not be set for readinessProbes",
		}},
		{"K171 liveness needs one success", "livenessProbe: {exec: {command: [x]}, successThreshold: 2}", []string{
			"spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
		}},
		{"K171 startup needs one success", "startupProbe: {exec: {command: [x]}, successThreshold: 3}", []string{
			"spec.containers[0].startupProbe.successThreshold: Invalid value: 3: must be 1",
		}},
		{"K171 readiness may need more", "readinessProbe: {exec: {command: [x]}, successThreshold: 3}", nil},
		{"K172 a handler is needed", "readinessProbe: {periodSeconds: 3}", []string{
			"spec.containers[0].readinessProbe: Required value: must specify a handler type",
		}},
		{"K172 one handler only", "readinessProbe: {exec: {command: [x]}, httpGet: {port: 1}, tcpSocket: {port: 1}, grpc: {port: 1}}", []string{
			"spec.containers[0].readinessProbe.grpc: Forbidden: may not specify more than 1 handler type",
			"spec.containers[0].readinessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
			"spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
		}},
		{"K172 exec needs a command", "livenessProbe: {exec: {}}", []string{
			"spec.containers[0].livenessProbe.exec.command: Required value",
		}},
		{"K172 a scheme is HTTP or HTTPS, in capitals", "livenessProbe: {httpGet: {port: 80, scheme: https}}", []string{
			`spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "https": supported values: "HTTP", "HTTPS"`,
		}},
		{"K172 a header's name is a name", "livenessProbe: {httpGet: {port: 80, httpHeaders: [{name: 'a b', value: x}]}}", []string{
			`spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')`,
		}},
		{"K172 paths, hosts and values are not looked at", "livenessProbe: {httpGet: {port: 80, path: '//%zz', host: '[::1', httpHeaders: [{name: a, value: '\t'}]}}", nil},
		{"K172 nor is the timeout against the period, nor a port's name among the ports", "livenessProbe: {tcpSocket: {port: none}, timeoutSeconds: 60}", nil},
		{"K173 a port number has bounds", "livenessProbe: {httpGet: {port: 0}}", []string{
			"spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
		}},
		{"K173 for tcp and grpc too", "livenessProbe: {tcpSocket: {port: 65536}}, readinessProbe: {grpc: {port: -1}}", []string{
			"spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 65536: must be between 1 and 65535, inclusive",
			"spec.containers[0].readinessProbe.grpc.port: Invalid value: -1: must be between 1 and 65535, inclusive",
		}},
		{"K173 a port's name is short", "livenessProbe: {tcpSocket: {port: a234567890123456}}", []string{
			`spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: "a234567890123456": must be no more than 15 characters`,
		}},
		{"K173 it has a letter", "livenessProbe: {tcpSocket: {port: '8080'}}", []string{
			`spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: "8080": must contain at least one letter (a-z)`,
		}},
		{"K173 it has small letters, digits and single hyphens inside", "livenessProbe: {tcpSocket: {port: Web}}, readinessProbe: {tcpSocket: {port: a--b}}, startupProbe: {tcpSocket: {port: a-}}", []string{
			`spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: "Web": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
			`spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: "a--b": must not contain consecutive hyphens`,
			`spec.containers[0].startupProbe.tcpSocket.port: Invalid value: "a-": must not begin or end with a hyphen`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := problems(podWith(t, "{containers: [{name: app, "+test.probe+"}]}")); !slices.Equal(got, test.want) {
				t.Errorf("problems are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestPodsAreRejectedInTheAPIServersWords(t *testing.T) {
	for _, test := range []struct {
		name string
		spec string
		want []string
	}{
		{"no container", "{}", []string{"spec.containers: Required value"}},
		{"K174 an init container has no probes", "{containers: [{name: a}], initContainers: [{name: i, livenessProbe: {}, readinessProbe: {}, startupProbe: {}}]}", []string{
			"spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
			"spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
			"spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
		}},
		{"K174 a sidecar has", "{containers: [{name: a}], initContainers: [{name: i, restartPolicy: Always, livenessProbe: {tcpSocket: {port: 1}}}]}", nil},
		{"K174 and its probes are looked at", "{containers: [{name: a}], initContainers: [{name: i, restartPolicy: Always, livenessProbe: {}}]}", []string{
			"spec.initContainers[0].livenessProbe: Required value: must specify a handler type",
		}},
		{"K174 an ephemeral container has none", "{containers: [{name: a}], ephemeralContainers: [{name: e, readinessProbe: {}}]}", []string{
			"spec.ephemeralContainers[0].readinessProbe: Forbidden: cannot be set for an Ephemeral Container",
		}},
		{"names", "{containers: [{}, {name: A}, {name: b}, {name: b}], initContainers: [{name: b}]}", []string{
			"spec.containers[0].name: Required value",
			`spec.containers[1].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			`spec.containers[3].name: Duplicate value: "b"`,
			`spec.initContainers[0].name: Duplicate value: "b"`,
		}},
		{"ports", "{containers: [{name: a, ports: [{}, {containerPort: 70000}, {name: x, containerPort: 1}, {name: x, containerPort: 2, protocol: HTTP}, {name: '1', containerPort: 3}]}]}", []string{
			"spec.containers[0].ports[0].containerPort: Required value",
			"spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
			`spec.containers[0].ports[3].name: Duplicate value: "x"`,
			`spec.containers[0].ports[3].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP"`,
			`spec.containers[0].ports[4].name: Invalid value: "1": must contain at least one letter (a-z)`,
		}},
		{"variables", "{containers: [{name: a, env: [{value: x}, {name: 'a=b'}]}]}", []string{
			"spec.containers[0].env[0].name: Required value",
			`spec.containers[0].env[1].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='`,
		}},
		{"policy", "{containers: [{name: a}], restartPolicy: Sometimes}", []string{
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := problems(podWith(t, test.spec)); !slices.Equal(got, test.want) {
				t.Errorf("problems are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestContainerWithoutAnImageIsRejected(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}, InitContainers: []v1.Container{{Name: "b"}}}}
	pod.Name = "web"
	want := []string{"spec.containers[0].image: Required value", "spec.initContainers[0].image: Required value"}
	if got := problems(pod); !slices.Equal(got, want) {
		t.Errorf("problems are %q, want %q", got, want)
	}
}

func TestNamesOfPodsAreChecked(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "image"}}}}
	if got := problems(pod); !slices.Equal(got, []string{"metadata.name: Required value: name or generateName is required"}) {
		t.Errorf("problems are %q", got)
	}
	pod.Name, pod.Namespace = "a/b", "c\x1b[31m"
	if got := problems(pod); len(got) != 2 || !strings.HasPrefix(got[0], "metadata.name: Invalid value") || !strings.HasPrefix(got[1], "metadata.namespace: Invalid value") {
		t.Errorf("problems are %q", got)
	}
}

func TestDefaultsAreTheAPIServers(t *testing.T) {
	pod := podWith(t, `{containers: [{name: app, ports: [{containerPort: 1}], livenessProbe: {httpGet: {port: 80}}, readinessProbe: {grpc: {port: 1}},
  lifecycle: {preStop: {httpGet: {port: 80, path: /drain}}}}]}`)
	pod.Namespace = ""
	before := pod.DeepCopy()
	got := kube.Default(pod)
	c := got.Spec.Containers[0]
	p := c.LivenessProbe
	if p.InitialDelaySeconds != 0 || p.TimeoutSeconds != 1 || p.PeriodSeconds != 10 || p.SuccessThreshold != 1 || p.FailureThreshold != 3 {
		t.Errorf("K170: the probe is %+v", p)
	}
	if p.HTTPGet.Path != "/" || p.HTTPGet.Scheme != "HTTP" || *c.ReadinessProbe.GRPC.Service != "" || c.Ports[0].Protocol != "TCP" {
		t.Errorf("K170: the container is %+v", c)
	}
	if h := c.Lifecycle.PreStop.HTTPGet; h.Path != "/drain" || h.Scheme != "HTTP" {
		t.Errorf("preStop is %+v", h)
	}
	if got.Namespace != "default" || got.Spec.RestartPolicy != "Always" || *got.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("the pod is %+v", got)
	}
	negative := int64(-5)
	pod.Spec.TerminationGracePeriodSeconds = &negative
	if got := *kube.Default(pod).Spec.TerminationGracePeriodSeconds; got != 1 {
		t.Errorf("a grace period below 0 becomes %d, want 1", got)
	}
	pod.Spec.TerminationGracePeriodSeconds = nil
	if pod.String() != before.String() {
		t.Error("the pod that was given has changed")
	}
}

package kube_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// containers returns the containers of a valid pod.
func containers(t *testing.T, spec string) []kube.Container {
	t.Helper()
	all, err := kube.Containers(podWith(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// container returns the only container of a pod. fields are its fields except the name.
func container(t *testing.T, fields string) kube.Container {
	t.Helper()
	return containers(t, "{containers: [{name: app, "+fields+"}]}")[0]
}

func TestRegularContainersComeBeforeSidecarsAndStartupBeforeTheRest(t *testing.T) {
	all := containers(t, `{
		initContainers: [{name: init}, {name: side, restartPolicy: Always}, {name: never, restartPolicy: Never}],
		containers: [{name: b, livenessProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}}, startupProbe: {tcpSocket: {port: 1}}}, {name: a}],
		ephemeralContainers: [{name: debug}]}`)
	var names []string
	for _, c := range all {
		names = append(names, c.Target.Name)
	}
	if want := []string{"default/web/b", "default/web/a", "default/web/side"}; !slices.Equal(names, want) {
		t.Errorf("K3: containers are %q, want %q", names, want)
	}
	if all[0].Sidecar || !all[2].Sidecar {
		t.Error("the sidecar is not the one that says so")
	}
	var kinds []probe.Kind
	for _, p := range all[0].Probes {
		kinds = append(kinds, p.Rule.Kind)
	}
	if want := []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness}; !slices.Equal(kinds, want) {
		t.Errorf("K3: probes are %v, want %v", kinds, want)
	}
}

func TestActionsAreConverted(t *testing.T) {
	for _, test := range []struct {
		name, handler string
		want          kube.Action
	}{
		{"exec", "exec: {command: [cat, /tmp/healthy]}", kube.Action{Handler: "exec", Command: []string{"cat", "/tmp/healthy"}}},
		{"K170 http", "httpGet: {port: 8080}", kube.Action{Handler: "http", Path: "/", Port: "8080", Scheme: "HTTP"}},
		{"K110 a named port", "httpGet: {path: '/a?b=c', port: http, host: h, scheme: HTTPS}",
			kube.Action{Handler: "http", Path: "/a?b=c", Port: "http", Host: "h", Scheme: "HTTPS"}},
		{"K87 headers", "httpGet: {port: 1, httpHeaders: [{name: x-a, value: '1'}, {name: host, value: first}, {name: X-A, value: '2'}, {name: Host, value: second}, {name: User-Agent, value: ''}]}",
			kube.Action{Handler: "http", Path: "/", Port: "1", Scheme: "HTTP", Headers: map[string][]string{
				"X-A": {"1", "2"}, "Host": {"first"}, "User-Agent": {""},
			}}},
		{"tcp", "tcpSocket: {port: db, host: 10.0.0.1}", kube.Action{Handler: "tcp", Port: "db", Host: "10.0.0.1"}},
		{"grpc", "grpc: {port: 2379}", kube.Action{Handler: "grpc", Port: "2379"}},
		{"grpc of a service", "grpc: {port: 2379, service: liveness}", kube.Action{Handler: "grpc", Port: "2379", Service: "liveness"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := container(t, "livenessProbe: {"+test.handler+"}").Probes[0].Action
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("the action is %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestVariablesInExecCommandsAreReplaced(t *testing.T) {
	for word, want := range map[string]string{
		"$(A)":         "1",
		"x$(A)$(B)y":   "x1$(A)y", // B's value is not expanded again
		"$(NONE)":      "$(NONE)",
		"$$(A)":        "$(A)",
		"$$$(A)":       "$1",
		"$A ${A} $ $(": "$A ${A} $ $(",
		"$(A":          "$(A",
		"$()":          "$()",
		"[$(SECRET)]":  "[]",
		"[$(NAME)]":    "[]", // even if the value is in the manifest
		"$(A))":        "1)",
		"$":            "$",
	} {
		c := container(t, `env: [{name: A, value: "1"}, {name: B, value: $(A)}, {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}},
			{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}],
			livenessProbe: {exec: {command: ['`+word+`']}}`)
		if got := c.Probes[0].Command[0]; got != want {
			t.Errorf("K76: %s becomes %s, want %s", word, got, want)
		}
	}
}

func TestProcessHasTheVariablesOfTheManifest(t *testing.T) {
	c := container(t, `env: [{name: A, value: a}, {name: B, value: "$(A)$(C)$$(A)"}, {name: C, value: c}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}},
		{name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
		{name: NONE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['none']"}}}]`)
	want := map[string]string{"A": "a", "B": "a$(C)$(A)", "C": "c", "POD": "web", "NS": "default", "NONE": ""}
	if !maps.Equal(c.Target.Env, want) {
		t.Errorf("the variables are %q, want %q", c.Target.Env, want)
	}
	if want := []string{"variable IP is set by valueFrom"}; !slices.Equal(c.Obstacles, want) {
		t.Errorf("obstacles are %q, want %q", c.Obstacles, want)
	}
}

// Values that the kubelet takes from the pod's metadata and status are known if the manifest or the caller provides them.
func TestFieldReferencesHaveWhatIsKnownOfThePod(t *testing.T) {
	pod := podWith(t, `{nodeName: n1, containers: [{name: app}]}`)
	pod.UID, pod.Labels, pod.Annotations = "u1", map[string]string{"app": "shop"}, map[string]string{"a.example/b": "note"}
	pod.Status.PodIP, pod.Status.HostIP = "10.0.0.7", "10.0.0.1"
	for path, want := range map[string]string{
		"metadata.uid": "u1", "metadata.labels['app']": "shop", "metadata.annotations['a.example/b']": "note", "spec.nodeName": "n1",
		"status.podIP": "10.0.0.7", "status.podIPs": "10.0.0.7", "status.hostIP": "10.0.0.1",
	} {
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "V", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}}
		all, err := kube.Containers(pod)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := all[0].Target.Env["V"]; !ok || got != want || len(all[0].Obstacles) > 0 {
			t.Errorf("%s is %q, want %q; obstacles %q", path, got, want, all[0].Obstacles)
		}
	}
}

// Init containers are in the order of the manifest, each after the previous ones. No container waits until a sidecar is ready.
func TestContainersStartAfterTheInitContainers(t *testing.T) {
	m := kube.Manifest{Pod: podWith(t, `{
		initContainers: [{name: a}, {name: b, restartPolicy: Always}, {name: c, restartPolicy: Always, readinessProbe: {tcpSocket: {port: 1}}}, {name: d, restartPolicy: Never}],
		containers: [{name: app, lifecycle: {stopSignal: SIGUSR1}}]}`)}
	all, err := m.Containers()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprintf("%s %v %s after %q", c.Name, c.Init, c.RestartPolicy, c.StartAfter))
	}
	want := []string{
		`app false Always after ["default/web/a" "default/web/b" "default/web/d"]`,
		`a true OnFailure after []`,
		`b false Always after ["default/web/a"]`,
		`c false Always after ["default/web/a" "default/web/b"]`,
		`d true Never after ["default/web/a" "default/web/b"]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if signal := all[0].StopSignal; signal != "SIGUSR1" {
		t.Errorf("the stop signal is %q", signal)
	}
}

func TestRulesHaveTheNumbersOfTheManifest(t *testing.T) {
	c := container(t, `readinessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: 5, periodSeconds: 6, timeoutSeconds: 7, successThreshold: 8, failureThreshold: 9},
		livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 60}`)
	want := []probe.Rule{
		{Kind: probe.Readiness, InitialDelay: 5 * time.Second, Period: 6 * time.Second, Timeout: 7 * time.Second, SuccessThreshold: 8, FailureThreshold: 9},
		{Kind: probe.Liveness, Period: 10 * time.Second, Timeout: time.Second, SuccessThreshold: 1, FailureThreshold: 3, TerminationGracePeriod: time.Minute},
	}
	if got := []probe.Rule{c.Probes[0].Rule, c.Probes[1].Rule}; !slices.Equal(got, want) {
		t.Errorf("rules are %+v, want %+v", got, want)
	}
}

func TestNumbersAboveTheEnginesLimitsAreRejected(t *testing.T) {
	for spec, want := range map[string]string{
		"{containers: [{name: a, livenessProbe: {exec: {command: [x]}, periodSeconds: 2147483647}}]}":                                                        "spec.containers[0].livenessProbe: period is",
		"{containers: [{name: a, livenessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 9223372036854775807}}]}":                               "spec.containers[0].livenessProbe: termination_grace_period is",
		"{containers: [{name: a}], terminationGracePeriodSeconds: 9223372036854775807}":                                                                      "terminationGracePeriodSeconds is 9223372036854775807",
		"{containers: [{name: b}], initContainers: [{name: a, restartPolicy: Always, startupProbe: {exec: {command: [x]}, initialDelaySeconds: 40000000}}]}": "spec.initContainers[0].startupProbe: initial_delay is",
	} {
		_, err := kube.Containers(podWith(t, spec))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error of %s is %v, want %q", spec, err, want)
		}
	}
}

func TestContainerHasAddressPortsDirAndUser(t *testing.T) {
	pod := podWith(t, `{securityContext: {runAsUser: 1000, runAsGroup: 2000}, terminationGracePeriodSeconds: 0, restartPolicy: OnFailure, containers: [
		{name: a, image: nginx, workingDir: /srv, ports: [{name: http, containerPort: 80}, {containerPort: 81}, {name: dns, containerPort: 53, protocol: UDP}]},
		{name: b, securityContext: {runAsUser: 0}, restartPolicy: Never}]}`)
	pod.Status.PodIP = "10.1.2.3"
	all, err := kube.Containers(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := probe.Target{
		Name: "default/web/a", Address: "10.1.2.3", Ports: map[string]uint16{"http": 80, "dns": 53},
		Env: map[string]string{}, Dir: "/srv", User: "1000:2000",
	}
	if a := all[0]; !a.Target.Equal(want) {
		t.Errorf("K110, K111: the target is %+v, want %+v", a.Target, want)
	}
	if a, b := all[0], all[1]; b.Target.User != "0:2000" || a.RestartPolicy != "OnFailure" || b.RestartPolicy != "Never" {
		t.Errorf("containers are %+v", all)
	}
	if got := all[0].TerminationGracePeriod; got != 2*time.Second {
		t.Errorf("K138: the grace period is %v, want 2s", got)
	}
}

func TestObstaclesListWhatAProcessCannotHave(t *testing.T) {
	all := containers(t, `{os: {name: windows}, volumes: [{name: pki, hostPath: {path: /etc/pki}}, {name: tmp, emptyDir: {}}], containers: [{name: a,
		envFrom: [{configMapRef: {name: c}}],
		volumeMounts: [{name: pki, mountPath: /etc/pki/}, {name: pki, mountPath: /etc/pki/ca, subPath: ca}, {name: pki, mountPath: /pki}, {name: tmp, mountPath: /tmp}],
		volumeDevices: [{name: raw, devicePath: /dev/x}]}]}`)
	want := []string{
		"its pod is for Windows",
		"variables are set by envFrom",
		`volume "pki" is mounted at /pki`,
		`volume "tmp" is mounted at /tmp`,
		`volume "raw" is device /dev/x`,
	}
	if got := all[0].Obstacles; !slices.Equal(got, want) {
		t.Errorf("obstacles are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := container(t, "command: [x], resources: {limits: {cpu: 1}}").Obstacles; len(got) != 0 {
		t.Errorf("obstacles of a plain container are %q", got)
	}
}

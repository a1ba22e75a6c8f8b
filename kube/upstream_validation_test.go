package kube_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file have the cases of the API server's tests of probes
// (validation_test.go and defaults_test.go), and of the kubelet's grace periods;
// tests/upstream.md sets both side by side.

// wrong returns the errors about a liveness probe, without its path.
func wrong(t *testing.T, p *v1.Probe) []string {
	t.Helper()
	pod := podWith(t, one)
	pod.Spec.Containers[0].LivenessProbe = p
	var all []string
	for _, err := range kube.Validate(pod) {
		all = append(all, strings.TrimPrefix(err.Error(), "spec.containers[0].livenessProbe"))
	}
	return all
}

func TestUpstreamSetDefaultProbe(t *testing.T) {
	pod := podWith(t, one)
	pod.Spec.Containers[0].LivenessProbe = &v1.Probe{}
	want := v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	if got := kube.Default(pod).Spec.Containers[0].LivenessProbe; *got != want {
		t.Errorf("the probe becomes %+v, want %+v", *got, want)
	}
}

// numbers are the fields of a probe that must not be negative.
var numbers = map[string]func(*v1.Probe) *int32{
	"initialDelaySeconds": func(p *v1.Probe) *int32 { return &p.InitialDelaySeconds },
	"timeoutSeconds":      func(p *v1.Probe) *int32 { return &p.TimeoutSeconds },
	"periodSeconds":       func(p *v1.Probe) *int32 { return &p.PeriodSeconds },
	"successThreshold":    func(p *v1.Probe) *int32 { return &p.SuccessThreshold },
	"failureThreshold":    func(p *v1.Probe) *int32 { return &p.FailureThreshold },
}

func TestUpstreamValidateProbe(t *testing.T) {
	const negative = "must be greater than or equal to 0"
	if got := wrong(t, nil); got != nil {
		t.Errorf("no probe: %q", got)
	}
	if got := wrong(t, &v1.Probe{TimeoutSeconds: 10, InitialDelaySeconds: 10}); !slices.Equal(got, []string{": Required value: must specify a handler type"}) {
		t.Errorf("no handler: %q", got)
	}
	if got := wrong(t, execProbe("echo")); got != nil {
		t.Errorf("a handler alone: %q", got)
	}
	for name, field := range numbers {
		t.Run(name, func(t *testing.T) {
			p := execProbe("echo")
			for _, value := range []int32{-1, -10} {
				*field(p) = value
				if got := strings.Join(wrong(t, p), "\n"); !strings.Contains(got, "."+name+": Invalid value: ") || !strings.Contains(got, negative) {
					t.Errorf("%d: %q", value, got)
				}
			}
			*field(p) = 10
			got := wrong(t, p)
			if name == "successThreshold" { // upstream ignores the kind; liveness needs a threshold of 1
				got = slices.DeleteFunc(got, func(s string) bool { return strings.HasSuffix(s, "must be 1") })
			}
			if len(got) > 0 {
				t.Errorf("10: %q", got)
			}
		})
	}
	for _, grace := range []int64{-1, 0, 1} {
		p := execProbe("echo")
		p.TerminationGracePeriodSeconds = &grace
		if got := strings.Join(wrong(t, p), "\n"); strings.Contains(got, "must be greater than 0") != (grace < 1) {
			t.Errorf("a grace period of %d: %q", grace, got)
		}
	}
}

func TestUpstreamValidateHandler(t *testing.T) {
	type get = v1.HTTPGetAction
	http := func(g get) v1.ProbeHandler { return v1.ProbeHandler{HTTPGet: &g} }
	number, name := intstr.FromInt32, intstr.FromString
	for _, test := range []struct {
		name    string
		handler v1.ProbeHandler
		ok      bool
	}{
		{"exec", v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"echo"}}}, true},
		{"http", http(get{Path: "/", Port: number(1), Scheme: "HTTP"}), true},
		{"http of a host", http(get{Path: "/foo", Port: number(65535), Host: "host", Scheme: "HTTP"}), true},
		{"a port's name", http(get{Path: "/", Port: name("port"), Scheme: "HTTP"}), true},
		{"the header Host", http(get{Path: "/", Port: name("port"), Scheme: "HTTP", HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "foo.example.com"}}}), true},
		{"a header twice", http(get{Path: "/", Port: name("port"), Scheme: "HTTP", HTTPHeaders: []v1.HTTPHeader{{Name: "X-Forwarded-For", Value: "1.2.3.4"}, {Name: "X-Forwarded-For", Value: "5.6.7.8"}}}), true},
		{"none", v1.ProbeHandler{}, false},
		{"exec without a command", v1.ProbeHandler{Exec: &v1.ExecAction{}}, false},
		{"port 0", http(get{Port: number(0)}), false},
		{"port 65536", http(get{Path: "/foo", Port: number(65536), Host: "host"}), false},
		{"no port", http(get{Port: name("")}), false},
		{"a header's name with a colon", http(get{Path: "/", Port: name("port"), Scheme: "HTTP", HTTPHeaders: []v1.HTTPHeader{{Name: "Host:", Value: "foo.example.com"}}}), false},
		{"a header's name with an underscore", http(get{Path: "/", Port: name("port"), Scheme: "HTTP", HTTPHeaders: []v1.HTTPHeader{{Name: "X_Forwarded_For", Value: "foo.example.com"}}}), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := wrong(t, &v1.Probe{ProbeHandler: test.handler}); (len(got) == 0) != test.ok {
				t.Errorf("wrong are %q, want none: %v", got, test.ok)
			}
		})
	}
}

// containerCase is a pod's spec with the expected errors of the API server.
type containerCase struct {
	name, spec string
	want       []string
}

func runContainers(t *testing.T, cases []containerCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := problems(podWith(t, c.spec)); !slices.Equal(got, c.want) {
				t.Errorf("problems are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// negatives returns the errors about a probe whose numbers are all -1.
func negatives(kind string, successOne bool) []string {
	path := "spec.containers[0]." + kind + "."
	var all []string
	for name := range numbers {
		all = append(all, path+name+": Invalid value: -1: must be greater than or equal to 0")
	}
	all = append(all, path+"terminationGracePeriodSeconds: Invalid value: -1: must be greater than 0")
	if successOne {
		all = append(all, path+"successThreshold: Invalid value: -1: must be 1")
	} else {
		all = append(all, path+"terminationGracePeriodSeconds: Invalid value: -1: must not be set for readinessProbes")
	}
	slices.Sort(all)
	return all
}

func TestUpstreamValidateContainers(t *testing.T) {
	const tcp, minus = "tcpSocket: {port: 80}", ", initialDelaySeconds: -1, timeoutSeconds: -1, periodSeconds: -1, successThreshold: -1, failureThreshold: -1, terminationGracePeriodSeconds: -1"
	probed := func(probe string) string { return "{containers: [{name: life-123, " + probe + "}]}" }
	runContainers(t, []containerCase{
		{"liveness", probed("livenessProbe: {" + tcp + ", successThreshold: 1}"), nil},
		{"startup", probed("startupProbe: {" + tcp + ", successThreshold: 1}"), nil},
		{"readiness with a grace period", probed("readinessProbe: {" + tcp + ", terminationGracePeriodSeconds: 10}"),
			[]string{"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 10: must not be set for readinessProbes"}},
		{"no tcp port", probed("livenessProbe: {tcpSocket: {}}"),
			[]string{"spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		{"no action", probed("livenessProbe: {successThreshold: 1}"), []string{"spec.containers[0].livenessProbe: Required value: must specify a handler type"}},
		{"liveness needs two successes", probed("livenessProbe: {" + tcp + ", successThreshold: 2}"), []string{"spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"}},
		{"startup needs two successes", probed("startupProbe: {" + tcp + ", successThreshold: 2}"), []string{"spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1"}},
		{"liveness of negative numbers", probed("livenessProbe: {" + tcp + minus + "}"), negatives("livenessProbe", true)},
		{"readiness of negative numbers", probed("readinessProbe: {" + tcp + minus + "}"), negatives("readinessProbe", false)},
		{"startup of negative numbers", probed("startupProbe: {" + tcp + minus + "}"), negatives("startupProbe", true)},
		{"a policy that is none", probed("restartPolicy: Sometimes"),
			[]string{`spec.containers[0].restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"`}},
		{"a rule that is none", probed("restartPolicy: Never, restartPolicyRules: [{action: Stop}]"), []string{
			`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Stop": supported values: "Restart", "RestartAllContainers"`,
			"spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
		}},
		{"an operator that is none", probed("restartPolicyRules: [{action: Restart, exitCodes: {operator: Is, values: [1]}}]"), []string{
			"spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
			`spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"`,
		}},
	})
}

func TestUpstreamValidateInitContainers(t *testing.T) {
	const no = "Forbidden: may not be set for init containers without restartPolicy=Always"
	const at, tcp = "spec.initContainers[0].", "tcpSocket: {port: 80}"
	init := func(fields string) string { return "{containers: [{name: app}], initContainers: [{" + fields + "}]}" }
	side := func(probe string) string { return init("name: side, restartPolicy: Always, " + probe) }
	runContainers(t, []containerCase{
		{"a sidecar with all three", side("livenessProbe: {" + tcp + "}, readinessProbe: {" + tcp + "}, startupProbe: {" + tcp + "}"), nil},
		{"no name", init("image: x"), []string{at + "name: Required value"}},
		{"the name of a regular container", init("name: app"), []string{at + `name: Duplicate value: "app"`}},
		{"a name twice", "{containers: [{name: app}], initContainers: [{name: init}, {name: init}]}", []string{`spec.initContainers[1].name: Duplicate value: "init"`}},
		{"liveness", init("name: init, livenessProbe: {" + tcp + "}"), []string{at + "livenessProbe: " + no}},
		{"readiness", init("name: init, readinessProbe: {" + tcp + "}"), []string{at + "readinessProbe: " + no}},
		{"startup", init("name: init, startupProbe: {" + tcp + "}"), []string{at + "startupProbe: " + no}},
		{"errors in a forbidden probe are not reported", init("name: init, startupProbe: {" + tcp + ", successThreshold: 2}"), []string{at + "startupProbe: " + no}},
		{"a policy that is none", init("name: init, restartPolicy: Invalid"),
			[]string{at + `restartPolicy: Unsupported value: "Invalid": supported values: "Always", "Never", "OnFailure"`}},
		{"rules without a policy are not looked at", init("name: init, restartPolicyRules: [{action: Stop}]"),
			[]string{at + "restartPolicy: Required value: must specify restartPolicy when restart rules are used"}},
		{"an empty policy", init("name: init, restartPolicy: ''"),
			[]string{at + `restartPolicy: Unsupported value: "": supported values: "Always", "Never", "OnFailure"`}},
		{"a sidecar's startup needs two successes", side("startupProbe: {" + tcp + ", successThreshold: 2}"), []string{at + "startupProbe.successThreshold: Invalid value: 2: must be 1"}},
		{"a sidecar's readiness has a grace period", side("readinessProbe: {" + tcp + ", terminationGracePeriodSeconds: 10}"),
			[]string{at + "readinessProbe.terminationGracePeriodSeconds: Invalid value: 10: must not be set for readinessProbes"}},
		{"a sidecar's liveness needs two successes", side("livenessProbe: {" + tcp + ", successThreshold: 2}"), []string{at + "livenessProbe.successThreshold: Invalid value: 2: must be 1"}},
	})
}

func TestUpstreamValidateEphemeralContainers(t *testing.T) {
	for _, kind := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		spec := "{containers: [{name: app}], ephemeralContainers: [{name: debug, image: x, " + kind + ": {tcpSocket: {port: 80}}}]}"
		want := []string{"spec.ephemeralContainers[0]." + kind + ": Forbidden: cannot be set for an Ephemeral Container"}
		runContainers(t, []containerCase{{kind, spec, want}})
	}
}

// The kubelet determines the reason for ending a container, and then its grace period. Here each probe has its own grace
// period, and for any other reason the pod's applies.
func TestUpstreamKillContainerGracePeriod(t *testing.T) {
	const short, medium, long = "10", "30", "60"
	for _, test := range []struct {
		name                     string
		pod, liveness, startup   string // in seconds; empty if not set
		ends, failing, unstarted string // expected, by reason: another reason, failing liveness, failing startup
	}{
		{"nothing is given", "", "", "", "30s", "30s", "30s"}, // from a pod with the API server's defaults
		{"the pod's", long, "", "", "1m0s", "1m0s", "1m0s"},
		{"the pod's is 0", "0", "", "", "2s", "2s", "2s"},
		{"liveness has a shorter one", long, short, "", "1m0s", "10s", "1m0s"},
		{"startup has a shorter one", long, "", short, "1m0s", "1m0s", "10s"},
		{"startup has a longer one", short, "", long, "10s", "10s", "1m0s"},
		{"liveness has a longer one", short, long, "", "10s", "1m0s", "10s"},
		{"all three", long, medium, short, "1m0s", "30s", "10s"},
		{"liveness has one that is too short", long, "1", "", "1m0s", "2s", "1m0s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			field := func(seconds string) string {
				if seconds == "" {
					return ""
				}
				return ", terminationGracePeriodSeconds: " + seconds
			}
			pod := podWith(t, "{containers: [{name: app, livenessProbe: {exec: {command: [x]}"+field(test.liveness)+"}, startupProbe: {exec: {command: [x]}"+field(test.startup)+"}}]"+field(test.pod)+"}")
			all, err := kube.Containers(pod)
			if err != nil {
				t.Fatal(err)
			}
			set, err := all[0].Set(makers())
			if err != nil {
				t.Fatal(err)
			}
			of := func(k probe.Kind) string {
				return set[probe.ID{Target: "default/web/app", Kind: k}].Rule.TerminationGracePeriod.String()
			}
			got := [3]string{all[0].TerminationGracePeriod.String(), of(probe.Liveness), of(probe.Startup)}
			if want := [3]string{test.ends, test.failing, test.unstarted}; got != want {
				t.Errorf("the grace periods are %v, want %v", got, want)
			}
		})
	}
}

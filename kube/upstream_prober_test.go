package kube_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file have the cases of upstream's prober_test.go, pkg/probe/util,
// pkg/probe/http's headers and the kubelet's command expansion; tests/upstream.md
// sets both side by side.

// probeSet returns the probes of the pod default/web with the one container app.
func probeSet(t *testing.T, h kube.Handlers, c v1.Container) (probe.Set, error) {
	t.Helper()
	pod := podWith(t, one)
	c.Name, c.Image = "app", "image"
	pod.Spec.Containers = []v1.Container{c}
	return kube.Set(pod, h)
}

// giveProbe gives a container a probe of a kind.
func giveProbe(c *v1.Container, k probe.Kind, p *v1.Probe) {
	switch k {
	case probe.Startup:
		c.StartupProbe = p
	case probe.Readiness:
		c.ReadinessProbe = p
	case probe.Liveness:
		c.LivenessProbe = p
	}
}

// execProbe is an exec probe with these words.
func execProbe(words ...string) *v1.Probe {
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: words}}}
}

func TestUpstreamProbe(t *testing.T) {
	for _, kind := range allKinds {
		t.Run("no probe, "+kind.String(), func(t *testing.T) {
			set, err := probeSet(t, makers(), v1.Container{})
			if err != nil || len(set) != 0 {
				t.Errorf("the set is %v, %v", set, err)
			}
		})
		t.Run("no handler, "+kind.String(), func(t *testing.T) {
			var c v1.Container
			giveProbe(&c, kind, &v1.Probe{})
			if set, err := probeSet(t, makers(), c); err == nil {
				t.Errorf("the set is %v", set)
			}
		})
		for name, words := range map[string][2][]string{
			"arguments":      {{"/bin/bash", "-c", "some script"}, {"/bin/bash", "-c", "some script"}},
			"with variables": {{"/bin/bash", "-c", "some $(A) $(B)"}, {"/bin/bash", "-c", "some script $(B)"}},
		} {
			t.Run(name+", "+kind.String(), func(t *testing.T) {
				c := v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "script"}}}
				giveProbe(&c, kind, execProbe(words[0]...))
				set, err := probeSet(t, makers(), c)
				if err != nil {
					t.Fatal(err)
				}
				got := set[probe.ID{Target: "default/web/app", Kind: kind}].Handler
				if want := (&made{kube.Action{Handler: "exec", Command: words[1]}}); !reflect.DeepEqual(got, want) {
					t.Errorf("the handler is %+v, want %+v", got, want)
				}
			})
		}
		for outcome, want := range map[probe.Outcome]probe.Verdict{
			probe.Failure: probe.Failing, probe.Success: probe.Passing, probe.Warning: probe.Passing,
			probe.Unknown: verdict.Initial(kind), // an unknown attempt decides nothing
		} {
			t.Run(outcome.String()+", "+kind.String(), func(t *testing.T) { expectOutcome(t, kind, outcome, want) })
		}
	}
}

// expectOutcome checks the verdict of a probe in an engine after one attempt with this outcome.
func expectOutcome(t *testing.T, kind probe.Kind, outcome probe.Outcome, want probe.Verdict) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod := podNamed(t, "web", "{containers: [{name: app}]}")
		check := execProbe("x")
		check.FailureThreshold, check.PeriodSeconds = 1, 1
		giveProbe(&pod.Spec.Containers[0], kind, check)
		pod.Status = *runningStatus(1)
		h.say("exec", outcome)
		h.add(t, pod)
		wait(2 * time.Second)
		if s, _ := h.engine.Status(probe.ID{Target: "default/web/app", Kind: kind}); s.Verdict != want || s.Attempts[outcome] == 0 {
			t.Errorf("the probe is %v after %v, want %v", s.Verdict, s.Attempts, want)
		}
	})
}

func TestUpstreamNewProber(t *testing.T) {
	actions := []v1.ProbeHandler{
		{Exec: &v1.ExecAction{Command: []string{"x"}}}, {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(1)}},
		{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}, {GRPC: &v1.GRPCAction{Port: 1}},
	}
	asked := errors.New("asked")
	h := kube.Handlers{
		"exec": func(kube.Action) (probe.Handler, error) { return nil, asked },
		"http": func(kube.Action) (probe.Handler, error) { return nil, asked },
		"tcp":  func(kube.Action) (probe.Handler, error) { return nil, asked },
		"grpc": func(kube.Action) (probe.Handler, error) { return nil, asked },
	}
	for i, action := range actions {
		if _, err := probeSet(t, h, v1.Container{LivenessProbe: &v1.Probe{ProbeHandler: action}}); !errors.Is(err, asked) {
			t.Errorf("the constructor of action %d was not asked: %v", i, err)
		}
	}
}

// ports are the ports in upstream's tests.
var ports = []v1.ContainerPort{{Name: "foo", ContainerPort: 8080}, {Name: "bar", ContainerPort: 9000}}

// resolve returns the port that a tcp probe of a container with these ports dials. The error is that of creating the set, or of
// the attempt.
func resolve(t *testing.T, port intstr.IntOrString, ports []v1.ContainerPort) (uint16, error) {
	t.Helper()
	var dialled uint16
	var wrong error
	h := kube.Handlers{"tcp": func(tcp kube.Action) (probe.Handler, error) {
		return probe.HandlerFunc(func(_ context.Context, t probe.Target) probe.Result {
			dialled, wrong = t.Port(tcp.Port)
			return probe.Succeed("")
		}), nil
	}}
	set, err := probeSet(t, h, v1.Container{Ports: ports, LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: port}}}})
	if err != nil {
		return 0, err
	}
	for id, p := range set {
		p.Target.Name = id.Target
		engine.Once(t.Context(), p)
	}
	return dialled, wrong
}

func TestUpstreamFindPortByName(t *testing.T) {
	if got, err := resolve(t, intstr.FromString("foo"), ports); got != 8080 || err != nil {
		t.Errorf("port foo is %d, %v", got, err)
	}
	if got, err := resolve(t, intstr.FromString("http"), ports); err == nil {
		t.Errorf("port http is %d", got)
	}
}

func TestUpstreamResolveContainerPort(t *testing.T) {
	for _, test := range []struct {
		name  string
		port  intstr.IntOrString
		ports []v1.ContainerPort
		want  uint16 // 0 for an error
	}{
		{"a number", intstr.FromInt32(443), nil, 443},
		{"a number above 65535", intstr.FromInt32(66666), nil, 0},
		{"a name", intstr.FromString("foo"), ports, 8080},
		{"a name that is not there", intstr.FromString("foo"), ports[1:], 0},
		{"neither", intstr.IntOrString{Type: 2, StrVal: "foo"}, ports[:1], 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, err := resolve(t, test.port, test.ports); got != test.want || (err == nil) != (test.want != 0) {
				t.Errorf("the port is %d, %v, want %d", got, err, test.want)
			}
		})
	}
}

func TestUpstreamV1HeaderToHTTPHeader(t *testing.T) {
	type headers = map[string][]string
	for _, test := range []struct {
		name  string
		given []v1.HTTPHeader
		want  headers
	}{
		{"as they stand", []v1.HTTPHeader{{Name: "Connection", Value: "Keep-Alive"}, {Name: "Content-Type", Value: "text/html"}, {Name: "Accept-Ranges", Value: "bytes"}},
			headers{"Connection": {"Keep-Alive"}, "Content-Type": {"text/html"}, "Accept-Ranges": {"bytes"}}},
		{"names in any letters", []v1.HTTPHeader{{Name: "HOST", Value: "example.com"}, {Name: "FOO-bAR", Value: "value"}},
			headers{"Host": {"example.com"}, "Foo-Bar": {"value"}}},
		{"none", nil, nil},
		{"one", []v1.HTTPHeader{{Name: "Accept", Value: "application/json"}}, headers{"Accept": {"application/json"}}},
		{"one in small letters", []v1.HTTPHeader{{Name: "accept", Value: "application/json"}}, headers{"Accept": {"application/json"}}},
		{"one in two spellings", []v1.HTTPHeader{{Name: "accept", Value: "application/json"}, {Name: "Accept", Value: "*/*"}, {Name: "pragma", Value: "no-cache"}, {Name: "X-forwarded-for", Value: "username"}},
			headers{"Accept": {"application/json", "*/*"}, "Pragma": {"no-cache"}, "X-Forwarded-For": {"username"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			get := &v1.HTTPGetAction{Port: intstr.FromInt32(1), HTTPHeaders: test.given}
			set, err := probeSet(t, makers(), v1.Container{LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: get}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range set {
				if got := p.Handler.(*made).action.Headers; !reflect.DeepEqual(got, test.want) {
					t.Errorf("the headers are %v, want %v", got, test.want)
				}
			}
		})
	}
}

func TestUpstreamExpandContainerCommandOnlyStatic(t *testing.T) {
	env := []v1.EnvVar{{Name: "FOO", Value: "foo-value"}, {Name: "BAR", Value: "bar-value"}}
	for _, test := range []struct {
		name        string
		env         []v1.EnvVar
		words, want []string
	}{
		{"all are known", env, []string{"echo", "$(FOO)", "$(BAR)"}, []string{"echo", "foo-value", "bar-value"}},
		{"one is missing", env[:1], []string{"echo", "$(FOO)", "$(MISSING)"}, []string{"echo", "foo-value", "$(MISSING)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			set, err := probeSet(t, makers(), v1.Container{Env: test.env, LivenessProbe: execProbe(test.words...)})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range set {
				if got := p.Handler.(*made).action.Command; !slices.Equal(got, test.want) {
					t.Errorf("the command is %q, want %q", got, test.want)
				}
			}
		})
	}
}

// Package pods compares kube with Kubernetes' own code on random pods: defaults,
// validation, conditions, restarts and the variables in commands. A seed determines a pod.
package pods

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// seeds calls test with many seeds and a random source for each.
func seeds(t *testing.T, test func(r *rand.Rand) (problem string)) {
	t.Helper()
	n := uint64(20_000)
	if testing.Short() {
		n = 4_000
	}
	for seed := range n {
		if problem := test(rand.New(rand.NewPCG(seed, 0))); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
	}
}

// oneOf returns one of several values with equal probability.
func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// maybe returns a pointer to one of several values, or nil in two out of three cases.
func maybe[T any](r *rand.Rand, all ...T) *T {
	if r.IntN(3) > 0 {
		return nil
	}
	value := oneOf(r, all...)
	return &value
}

// several returns up to two values.
func several[T any](r *rand.Rand, one func(r *rand.Rand) T) []T {
	var all []T
	for range r.IntN(3) {
		all = append(all, one(r))
	}
	return all
}

// show returns a pod as YAML.
func show(pod *v1.Pod) string {
	text, err := json.Marshal(pod)
	if err != nil {
		return fmt.Sprint(pod)
	}
	return string(text)
}

// anyPod returns a pod with random errors.
func anyPod(r *rand.Rand) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: oneOf(r, "web", "web", "Web", ""), Namespace: oneOf(r, "default", "ns", "N", "")},
		Spec: v1.PodSpec{
			Containers: several(r, anyContainer), InitContainers: several(r, anyContainer),
			RestartPolicy:                 oneOf[v1.RestartPolicy](r, "", "Always", "Never", "OnFailure", "X"),
			TerminationGracePeriodSeconds: maybe[int64](r, 0, 5, -1),
		},
	}
}

func anyContainer(r *rand.Rand) v1.Container {
	return v1.Container{
		Name: oneOf(r, "a", "b", "c", "d", "", "A"), Image: oneOf(r, "image", "image", "image", ""),
		LivenessProbe: anyProbe(r), ReadinessProbe: anyProbe(r), StartupProbe: anyProbe(r),
		Ports: several(r, anyContainerPort), Env: several(r, anyVariable),
		RestartPolicy:      maybe[v1.ContainerRestartPolicy](r, "Always", "Never", "OnFailure", "", "X"),
		RestartPolicyRules: anyRules(r),
	}
}

func anyProbe(r *rand.Rand) *v1.Probe {
	if r.IntN(3) > 0 {
		return nil
	}
	number := func() int32 { return oneOf[int32](r, 0, 0, 1, 2, 3, -1, -5) }
	return &v1.Probe{
		ProbeHandler: v1.ProbeHandler{
			Exec:      maybe(r, v1.ExecAction{}, v1.ExecAction{Command: []string{"x"}}, v1.ExecAction{Command: []string{""}}),
			HTTPGet:   maybe(r, anyGet(r)),
			TCPSocket: maybe(r, v1.TCPSocketAction{Port: anyPort(r), Host: oneOf(r, "", "h")}),
			GRPC:      maybe(r, v1.GRPCAction{Port: oneOf[int32](r, 0, 80, -1, 70000), Service: maybe(r, "", "x")}),
		},
		InitialDelaySeconds: number(), TimeoutSeconds: number(), PeriodSeconds: number(), SuccessThreshold: number(), FailureThreshold: number(),
		TerminationGracePeriodSeconds: maybe[int64](r, 0, 1, -1, 30),
	}
}

func anyGet(r *rand.Rand) v1.HTTPGetAction {
	return v1.HTTPGetAction{
		Port: anyPort(r), Path: oneOf(r, "", "/", "x", "//"), Scheme: oneOf[v1.URIScheme](r, "", "HTTP", "HTTPS", "https"), Host: oneOf(r, "", "h", "a b"),
		HTTPHeaders: oneOf(r, nil, []v1.HTTPHeader{{Name: "A"}, {Name: ""}}, []v1.HTTPHeader{{Name: "a_b", Value: "x"}}),
	}
}

func anyPort(r *rand.Rand) intstr.IntOrString {
	if number := maybe[int32](r, 80, 0, 65536, -1); number != nil {
		return intstr.FromInt32(*number)
	}
	return intstr.FromString(oneOf(r, "http", "", "HTTP", "a--b", "80", "-a", "averyveryverylongname"))
}

func anyContainerPort(r *rand.Rand) v1.ContainerPort {
	return v1.ContainerPort{
		Name: oneOf(r, "", "http", "HTTP", "x", "1"), ContainerPort: oneOf[int32](r, 0, 80, 81, -1, 70000), Protocol: oneOf[v1.Protocol](r, "", "TCP", "UDP", "HTTP"),
	}
}

func anyVariable(r *rand.Rand) v1.EnvVar {
	return v1.EnvVar{Name: oneOf(r, "", "A", "a=b", "x.y", "1"), Value: "v"}
}

// anyRules returns mostly no rules, and sometimes too many.
func anyRules(r *rand.Rand) []v1.ContainerRestartRule {
	var all []v1.ContainerRestartRule
	for range oneOf(r, 0, 0, 0, 1, 2, 21) {
		all = append(all, anyRule(r))
	}
	return all
}

func anyRule(r *rand.Rand) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{
		Action: oneOf[v1.ContainerRestartRuleAction](r, "Restart", "RestartAllContainers", "x"),
		ExitCodes: maybe(r, v1.ContainerRestartRuleOnExitCodes{
			Operator: oneOf[v1.ContainerRestartRuleOnExitCodesOperator](r, "In", "NotIn", "Is"), Values: make([]int32, oneOf(r, 1, 2, 256)),
		}),
	}
}

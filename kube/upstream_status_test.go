package kube_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file have the cases of upstream's status manager that follow from
// probes (generate_test.go and status_manager_test.go); tests/upstream.md sets both
// side by side.

// Statuses of ready and unready containers.
func isReady(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, ContainerID: "cri://" + name, State: running()}
}

func isUnready(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: waiting("")}
}

func isDone(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: terminated(0)}
}

// conditionCase is a case of a condition: a pod, and the expected status, reason and message.
type conditionCase struct {
	name    string
	spec    string
	phase   v1.PodPhase // default: Running
	regular []v1.ContainerStatus
	init    []v1.ContainerStatus
	gates   map[string]v1.ConditionStatus
	want    string
}

func runConditions(t *testing.T, kind v1.PodConditionType, cases []conditionCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := podWith(t, c.spec)
			pod.Status = v1.PodStatus{Phase: c.phase, ContainerStatuses: c.regular, InitContainerStatuses: c.init}
			for gate, status := range c.gates {
				pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodConditionType(gate), Status: status})
			}
			if got := conditions(pod, nil)[kind]; got != c.want {
				t.Errorf("%s is %s, want %s", kind, got, c.want)
			}
		})
	}
}

// list returns a list of statuses.
func list(all ...v1.ContainerStatus) []v1.ContainerStatus { return all }

const (
	one     = "{containers: [{name: a}]}"
	two     = "{containers: [{name: a}, {name: b}]}"
	oneSide = "{containers: [{name: a}], initContainers: [{name: s, restartPolicy: Always}]}"
	twoSide = "{containers: [{name: a}], initContainers: [{name: s, restartPolicy: Always}, {name: t, restartPolicy: Always}]}"
)

// containersReadyCases are the cases of both conditions. An empty list of statuses means
// none, as in JSON; the kubelet's functions distinguish them.
var containersReadyCases = []conditionCase{
	{name: "no statuses", spec: one, want: "False/UnknownContainerStatuses/"},
	{name: "all are ready", spec: two, regular: list(isReady("a"), isReady("b")), want: "True//"},
	{name: "one has no status", spec: two, regular: list(isReady("a")), want: "False/ContainersNotReady/containers with unknown status: [b]"},
	{name: "one is not ready", spec: two, regular: list(isReady("a"), isUnready("b")), want: "False/ContainersNotReady/containers with unready status: [b]"},
	{name: "the pod has succeeded", spec: one, phase: v1.PodSucceeded, regular: list(isDone("a")), want: "False/PodCompleted/"},
}

func TestUpstreamGenerateContainersReadyCondition(t *testing.T) {
	runConditions(t, v1.ContainersReady, append([]conditionCase{
		{name: "a sidecar has no status", spec: oneSide, regular: list(isReady("a")), want: "False/ContainersNotReady/containers with unknown status: [s]"},
		{name: "sidecars are ready", spec: twoSide, regular: list(isReady("a")), init: list(isReady("s"), isReady("t")), want: "True//"},
		{name: "one of two sidecars has no status", spec: twoSide, regular: list(isReady("a")), init: list(isReady("s")), want: "False/ContainersNotReady/containers with unknown status: [t]"},
		{name: "one of two sidecars is not ready", spec: twoSide, regular: list(isReady("a")), init: list(isReady("s"), isUnready("t")), want: "False/ContainersNotReady/containers with unready status: [t]"},
	}, containersReadyCases...))
}

func TestUpstreamGeneratePodReadyCondition(t *testing.T) {
	const oneGate, twoGates = "{containers: [{name: a}], readinessGates: [{conditionType: g}]}", "{containers: [{name: a}], readinessGates: [{conditionType: g}, {conditionType: h}]}"
	yes, no := v1.ConditionTrue, v1.ConditionFalse
	well := list(isReady("a"))
	runConditions(t, v1.PodReady, append([]conditionCase{
		{name: "a gate without a condition", spec: oneGate, regular: well,
			want: `False/ReadinessGatesNotReady/corresponding condition of pod readiness gate "g" does not exist.`},
		{name: "a closed gate", spec: oneGate, regular: well, gates: map[string]v1.ConditionStatus{"g": no},
			want: `False/ReadinessGatesNotReady/the status of pod readiness gate "g" is not "True", but False`},
		{name: "an open gate", spec: oneGate, regular: well, gates: map[string]v1.ConditionStatus{"g": yes}, want: "True//"},
		{name: "one of two gates without a condition", spec: twoGates, regular: well, gates: map[string]v1.ConditionStatus{"g": yes},
			want: `False/ReadinessGatesNotReady/corresponding condition of pod readiness gate "h" does not exist.`},
		{name: "one of two gates is closed", spec: twoGates, regular: well, gates: map[string]v1.ConditionStatus{"g": yes, "h": no},
			want: `False/ReadinessGatesNotReady/the status of pod readiness gate "h" is not "True", but False`},
		{name: "both gates are open", spec: twoGates, regular: well, gates: map[string]v1.ConditionStatus{"g": yes, "h": yes}, want: "True//"},
		{name: "an open gate of a container that is not ready", spec: oneGate, regular: list(isUnready("a")), gates: map[string]v1.ConditionStatus{"g": yes},
			want: "False/ContainersNotReady/containers with unready status: [a]"},
	}, containersReadyCases...))
}

func TestUpstreamGeneratePodInitializedCondition(t *testing.T) {
	const oneInit, twoInit = "{containers: [{name: a}], initContainers: [{name: i}]}", "{containers: [{name: a}], initContainers: [{name: i}, {name: j}]}"
	runConditions(t, v1.PodInitialized, []conditionCase{
		{name: "no statuses", spec: twoInit, want: "False/UnknownContainerStatuses/"},
		{name: "no init containers", spec: one, want: "True//"},
		{name: "one has no status", spec: oneInit, regular: list(isUnready("a")), want: "False/ContainersNotInitialized/containers with unknown status: [i]"},
		{name: "both are done", spec: twoInit, init: list(isDone("i"), isDone("j")), want: "True//"},
		{name: "one of two has no status", spec: twoInit, init: list(isDone("i")), want: "False/ContainersNotInitialized/containers with unknown status: [j]"},
		{name: "one of two is not done", spec: twoInit, init: list(isDone("i"), isUnready("j")), want: "False/ContainersNotInitialized/containers with incomplete status: [j]"},
		{name: "the pod has succeeded", spec: oneInit, phase: v1.PodSucceeded, init: list(isDone("i")), want: "True/PodCompleted/"},
		{name: "a sidecar has not started", spec: oneSide, phase: v1.PodPending, init: list(isUnready("s")), want: "False/ContainersNotInitialized/containers with incomplete status: [s]"},
		{name: "a sidecar has started", spec: oneSide, init: list(isReady("s")), want: "True//"},
		{name: "a sidecar has not started again, and a regular container runs", spec: oneSide, init: list(isUnready("s")), regular: list(isReady("a")), want: "True//"},
		{name: "an init container restarts, and a regular container has run", spec: oneInit, init: list(isUnready("i")), regular: list(isDone("a")), want: "True//"},
	})
}

func TestUpstreamUpdateLastTransitionTime(t *testing.T) {
	before, now := metav1.NewTime(t0.Add(-time.Minute)), t0
	for _, test := range []struct {
		name string
		was  []v1.PodCondition
		want metav1.Time
	}{
		{"there was no condition", nil, now},
		{"it changes", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: before}}, now},
		{"it stays", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: before}}, before},
		{"another one stays", []v1.PodCondition{{Type: "mine", Status: v1.ConditionTrue, LastTransitionTime: before}}, now},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(t, one)
			pod.Status.ContainerStatuses = list(isReady("a"))
			pod.Status.Conditions = test.was
			for _, c := range kube.PodStatus(pod, targets{}, now.Time).Conditions {
				want := test.want
				if c.Type == "mine" {
					want = before
				}
				if (c.Type == v1.PodReady || c.Type == "mine") && !c.LastTransitionTime.Equal(&want) {
					t.Errorf("%s has changed at %v, want %v", c.Type, c.LastTransitionTime, want)
				}
			}
		})
	}
}

func TestUpstreamStatusNormalizeTimeStamp(t *testing.T) {
	pod := podWith(t, one)
	pod.Status.ContainerStatuses = list(isReady("a"))
	for _, c := range kube.PodStatus(pod, targets{}, t0.Add(123456789*time.Nanosecond)).Conditions {
		if !c.LastTransitionTime.Time.Equal(t0.Time) {
			t.Errorf("%s has changed at %v, want whole seconds", c.Type, c.LastTransitionTime)
		}
	}
}

// Only these of upstream's cases apply here: conditions set by others are kept, and a finished pod is not ready.
func TestUpstreamMergePodStatus(t *testing.T) {
	others := []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
		{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"},
		{Type: "example.com/feature", Status: v1.ConditionFalse},
	}
	for _, test := range []struct {
		name  string
		phase v1.PodPhase
		ready string
	}{
		{"no change", v1.PodRunning, "True//"},
		{"the pod has failed", v1.PodFailed, "False/PodFailed/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(t, one)
			pod.Status = v1.PodStatus{Phase: test.phase, Message: "Message", Reason: "Evicted", ContainerStatuses: list(isReady("a")), Conditions: others}
			got := kube.PodStatus(pod, targets{}, t0.Time)
			if got.Phase != test.phase || got.Message != "Message" || got.Reason != "Evicted" {
				t.Errorf("the status is %+v", got)
			}
			for i, want := range others {
				if got.Conditions[i] != want {
					t.Errorf("the condition %s is %+v, want %+v", want.Type, got.Conditions[i], want)
				}
			}
			if all := conditions(pod, nil); all[v1.PodReady] != test.ready || all[v1.ContainersReady] != test.ready {
				t.Errorf("the conditions are %v, want %s", all, test.ready)
			}
		})
	}
}

func TestUpstreamStatusEquality(t *testing.T) {
	pod := podWith(t, two)
	pod.Status.ContainerStatuses = list(isReady("a"), isUnready("b"))
	shuffled := pod.DeepCopy()
	shuffled.Status.ContainerStatuses = list(isUnready("b"), isReady("a"))
	ours, theirs := conditions(pod, nil), conditions(shuffled, nil)
	for kind, want := range ours {
		if theirs[kind] != want {
			t.Errorf("in another order %s is %s, want %s", kind, theirs[kind], want)
		}
	}
}

// The kubelet updates a changed readiness in its cached status. Here there is no cache: the status is computed from the
// engine's state at each call.
func TestUpstreamSetContainerReadiness(t *testing.T) {
	pod := podWith(t, "{containers: [{name: a}, {name: b}]}")
	pod.Status.ContainerStatuses = statuses(map[string]v1.ContainerState{"a": running(), "b": running()})
	yes, no := probe.Passing, probe.Failing
	for _, test := range []struct {
		name       string
		known      judged
		a, b, both bool
	}{
		{"at first", judged{"a": {probe.Readiness, no}, "b": {probe.Readiness, no}}, false, false, false},
		{"one", judged{"a": {probe.Readiness, yes}, "b": {probe.Readiness, no}}, true, false, false},
		{"both", judged{"a": {probe.Readiness, yes}, "b": {probe.Readiness, yes}}, true, true, true},
		{"and one that does not exist", judged{"a": {probe.Readiness, yes}, "b": {probe.Readiness, yes}, "c": {probe.Readiness, no}}, true, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := kube.PodStatus(pod, test.known.targets(), t0.Time)
			if a, b := got.ContainerStatuses[0].Ready, got.ContainerStatuses[1].Ready; a != test.a || b != test.b {
				t.Errorf("a is ready: %v, b: %v; want %v, %v", a, b, test.a, test.b)
			}
			ready := conditions(pod, test.known.targets())[v1.PodReady]
			if strings.HasPrefix(ready, "True/") != test.both {
				t.Errorf("the pod's condition is %s", ready)
			}
		})
	}
	if got := kube.PodStatus(podWith(t, "{containers: [{name: a}]}"), judged{"a": {probe.Readiness, yes}}.targets(), t0.Time); len(got.ContainerStatuses) != 0 {
		t.Errorf("without a status before there is %+v", got.ContainerStatuses)
	}
}

func TestUpstreamSetContainerStartup(t *testing.T) {
	pod := podWith(t, "{containers: [{name: a}, {name: b}]}")
	pod.Status.ContainerStatuses = statuses(map[string]v1.ContainerState{"a": running(), "b": running()})
	yes, no := probe.Passing, probe.Undecided
	for _, test := range []struct {
		name  string
		known judged
		a, b  bool
	}{
		{"at first", judged{"a": {probe.Startup, no}, "b": {probe.Startup, no}}, false, false},
		{"one", judged{"a": {probe.Startup, yes}, "b": {probe.Startup, no}}, true, false},
		{"both", judged{"a": {probe.Startup, yes}, "b": {probe.Startup, yes}}, true, true},
		{"and one that does not exist", judged{"a": {probe.Startup, yes}, "b": {probe.Startup, yes}, "c": {probe.Startup, no}}, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := kube.PodStatus(pod, test.known.targets(), t0.Time).ContainerStatuses
			if *got[0].Started != test.a || *got[1].Started != test.b {
				t.Errorf("a has started: %v, b: %v; want %v, %v", *got[0].Started, *got[1].Started, test.a, test.b)
			}
		})
	}
}

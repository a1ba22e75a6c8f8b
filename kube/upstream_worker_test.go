package kube_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file have the cases of upstream's worker_test.go that begin with
// a pod's status; those that begin with a verdict's state are in package verdict.
// tests/upstream.md sets all side by side.

// firstStep makes the first step of a probe of default/web's container app, like the engine: it uses the container's status,
// and a due attempt succeeds. It reports whether the probe continues.
func firstStep(pod *v1.Pod, r probe.Rule) (s verdict.State, goesOn bool) {
	now := t0.Add(time.Second)
	for _, in := range kube.Instances(pod) {
		if in.Target != "default/web/app" {
			continue
		}
		look := verdict.Event{Instance: in, Started: r.Kind != probe.Startup}
		state, next := verdict.Step(r, s, look, now)
		if next.WaitReason == verdict.NotWaiting {
			state, next = verdict.Step(r, state, verdict.Event{Attempted: true, Instance: in, Outcome: probe.Success}, now)
		}
		return state, next.WaitReason != verdict.Finished
	}
	return s, false
}

// allKinds are the kinds of probes.
var allKinds = []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness}

// once returns a rule with thresholds of 1 and the kubelet's compatibility.
func once(k probe.Kind) probe.Rule {
	return probe.Rule{Kind: k, SuccessThreshold: 1, FailureThreshold: 1, Compatibility: probe.Kubelet}
}

// never returns a pod with the restart policy Never, as in upstream's tests.
func never(t *testing.T, state v1.ContainerState, fields string) *v1.Pod {
	t.Helper()
	pod := podIn(t, state, fields)
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	return pod
}

func TestUpstreamDoProbe(t *testing.T) {
	const undecided, passing, failing = probe.Undecided, probe.Passing, probe.Failing
	all := func(goesOn bool) map[probe.Kind]bool {
		return map[probe.Kind]bool{probe.Startup: goesOn, probe.Readiness: goesOn, probe.Liveness: goesOn}
	}
	bare, other, failed, deleted := never(t, running(), ""), never(t, running(), ""), never(t, running(), ""), never(t, running(), "")
	bare.Status = v1.PodStatus{}
	other.Status.ContainerStatuses[0].Name = "other"
	failed.Status.Phase = v1.PodFailed
	deleted.DeletionTimestamp = &t0
	for _, test := range []struct {
		name   string
		pod    *v1.Pod
		delay  time.Duration
		goesOn map[probe.Kind]bool
		want   probe.Verdict
	}{
		{"no status", bare, 0, all(true), undecided},
		{"the pod has failed", failed, 0, all(false), failing}, // upstream returns no result
		{"the pod is to be deleted", deleted, 0, map[probe.Kind]bool{probe.Readiness: true}, passing},
		{"no status of the container", other, 0, all(true), undecided},
		{"the container waits", never(t, waiting(""), ""), 0, all(true), failing},
		{"the container has ended", never(t, terminated(0), ""), 0, all(false), failing},
		{"it succeeds", never(t, running(), ""), 0, all(true), passing},
		{"the delay is over", never(t, running(), ""), -100 * time.Second, all(true), passing},
	} {
		for _, kind := range allKinds {
			t.Run(test.name+", "+kind.String(), func(t *testing.T) {
				r := once(kind)
				r.InitialDelay = test.delay
				got, goesOn := firstStep(test.pod, r)
				if goesOn != test.goesOn[kind] || got.Verdict != test.want {
					t.Errorf("it goes on: %v, and is %v; want %v, %v", goesOn, got.Verdict, test.goesOn[kind], test.want)
				}
			})
		}
	}
}

// restartRule returns a restart policy with one rule for an exit code.
func restartRule(policy, action, code string) string {
	return ", restartPolicy: " + policy + ", restartPolicyRules: [{action: " + action + ", exitCodes: {operator: In, values: [" + code + "]}}]"
}

func TestUpstreamDoProbeWithContainerRestartRules(t *testing.T) {
	policy := func(p string) string { return ", restartPolicy: " + p }
	for _, test := range []struct {
		name   string
		fields string
		code   int32
		goesOn bool
	}{
		{"OnFailure, and it failed", policy("OnFailure"), 1, true},
		{"OnFailure, and it succeeded", policy("OnFailure"), 0, false},
		{"Always, and it failed", policy("Always"), 1, true},
		{"Always, and it succeeded", policy("Always"), 0, true},
		{"Never, and it failed", policy("Never"), 1, false},
		{"Never, and it succeeded", policy("Never"), 0, false},
		{"a rule matches", restartRule("Never", "Restart", "1"), 1, true},
		{"a rule does not match", restartRule("Never", "Restart", "99"), 1, false},
	} {
		for _, kind := range allKinds {
			t.Run(test.name+", "+kind.String(), func(t *testing.T) {
				expectGoingOn(t, never(t, terminated(test.code), test.fields), kind, test.goesOn)
			})
		}
	}
}

// expectGoingOn makes a step of a failed probe for a container that is not running, and checks whether the probe continues.
func expectGoingOn(t *testing.T, pod *v1.Pod, kind probe.Kind, want bool) {
	t.Helper()
	got, goesOn := firstStep(pod, once(kind))
	if goesOn != want || got.Verdict != probe.Failing {
		t.Errorf("it goes on: %v, and is %v; want %v, failing", goesOn, got.Verdict, want)
	}
}

func TestUpstreamDoProbeWithContainerRestartAllContainers(t *testing.T) {
	trigger := ", {name: trigger" + restartRule("Never", "RestartAllContainers", "1") + "}"
	beside := func(state, triggers v1.ContainerState) *v1.Pod {
		pod := podWith(t, "{restartPolicy: Never, containers: [{name: app}"+trigger+"]}")
		pod.Status.ContainerStatuses = []v1.ContainerStatus{
			{Name: "app", ContainerID: "cri://1", State: state}, {Name: "trigger", ContainerID: "cri://2", State: triggers}}
		return pod
	}
	for name, pod := range map[string]*v1.Pod{
		"the container that asks for it": never(t, terminated(1), restartRule("Never", "RestartAllContainers", "1")),
		"one that ends with it":          beside(terminated(1), terminated(1)),
		"one that was cleaned up":        beside(waiting(""), waiting("")),
	} {
		for _, kind := range allKinds {
			t.Run(name+", "+kind.String(), func(t *testing.T) { expectGoingOn(t, pod, kind, true) })
		}
	}
}

func TestUpstreamDoProbeTerminatedRestartableInitContainerWithRestartPolicyNever(t *testing.T) {
	pod := podWith(t, "{restartPolicy: Never, containers: [{name: main}], initContainers: [{name: app, restartPolicy: Always}]}")
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "app", ContainerID: "cri://1", State: terminated(0)}}
	expectGoingOn(t, pod, probe.Startup, true)
}

func TestUpstreamDoProbeTerminatedContainerWithRestartPolicyNever(t *testing.T) {
	expectGoingOn(t, never(t, terminated(0), ""), probe.Startup, false)
}

// withHistory returns a pod whose container app has this status, or no status if the ID is empty.
func withHistory(t *testing.T, policy v1.RestartPolicy, id string, state v1.ContainerState) *v1.Pod {
	t.Helper()
	pod := podIn(t, state, "")
	pod.Spec.RestartPolicy = policy
	pod.Status.ContainerStatuses[0].ContainerID = id
	return pod
}

func TestUpstreamShouldContainerBeRestarted(t *testing.T) {
	policies := []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure, v1.RestartPolicyAlways}
	for _, test := range []struct {
		name  string
		id    string
		state v1.ContainerState
		want  [3]probe.Phase // by policy
	}{
		{"it has not begun yet", "", waiting(""), [3]probe.Phase{probe.Absent, probe.Absent, probe.Absent}},
		{"running", "cri://1", running(), [3]probe.Phase{probe.Running, probe.Running, probe.Running}},
		{"it has succeeded", "cri://1", terminated(0), [3]probe.Phase{probe.Gone, probe.Gone, probe.Ended}},
		{"it has failed", "cri://1", terminated(1), [3]probe.Phase{probe.Gone, probe.Ended, probe.Ended}},
		{"its state is unknown", "cri://1", v1.ContainerState{}, [3]probe.Phase{probe.Waiting, probe.Waiting, probe.Waiting}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for i, policy := range policies {
				pod := withHistory(t, policy, test.id, test.state)
				if got := kube.Instances(pod)[0]; got.Phase != test.want[i] || got.Terminating {
					t.Errorf("under the policy %s it is %v, leaving: %v, want %v", policy, got.Phase, got.Terminating, test.want[i])
				}
				pod.DeletionTimestamp = &t0
				if got := kube.Instances(pod)[0]; test.id != "" && !got.Terminating {
					t.Errorf("under the policy %s, in a pod to be deleted, it does not leave: %+v", policy, got)
				}
			}
		})
	}
}

func TestUpstreamShouldAllContainersRestart(t *testing.T) {
	ends := func(spec string, status v1.PodStatus) *v1.Pod {
		pod := podWith(t, "{restartPolicy: Never, containers: [{name: app}, {name: other"+spec)
		pod.Status = status
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: "app", ContainerID: "cri://1", State: terminated(1)})
		return pod
	}
	init := func(code int32) v1.PodStatus {
		return v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "init", ContainerID: "cri://2", State: terminated(code)}}}
	}
	regular := func(code int32) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "other", ContainerID: "cri://2", State: terminated(code)}}}
	}
	said := v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}}
	rule := func(policy string) string { return restartRule(policy, "RestartAllContainers", "42") }
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want probe.Phase // of app, which would be gone on its own
	}{
		{"the pod says so", ends("}]}", said), probe.Ended},
		{"a regular container's rule", ends(rule("Never")+"}]}", regular(42)), probe.Ended},
		{"an init container's rule", ends("}], initContainers: [{name: init"+rule("Never")+"}]}", init(42)), probe.Ended},
		{"a sidecar's rule", ends("}], initContainers: [{name: init"+rule("Always")+"}]}", init(42)), probe.Ended},
		{"a container without rules", ends("}]}", regular(1)), probe.Gone},
		{"a rule for another exit code", ends(rule("Never")+"}]}", regular(1)), probe.Gone},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := kube.Instances(test.pod)[0]; got.Phase != test.want {
				t.Errorf("the container is %v, want %v", got.Phase, test.want)
			}
		})
	}
}

// rulesOf returns the policy Never with rules, each given as an action, an operator and exit codes.
func rulesOf(rules ...[3]string) string {
	text := ", restartPolicy: Never, restartPolicyRules: ["
	for _, r := range rules {
		text += "{action: " + r[0] + ", exitCodes: {operator: " + r[1] + ", values: [" + r[2] + "]}}, "
	}
	return text + "]"
}

func TestUpstreamFindMatchingContainerRestartRule(t *testing.T) {
	const one, all = "Restart", "RestartAllContainers"
	for _, test := range []struct {
		name   string
		fields string
		code   int32
		want   probe.Phase
		others probe.Phase // of a terminated container that would be gone on its own
	}{
		{"In matches", rulesOf([3]string{one, "In", "42, 50, 60"}), 42, probe.Ended, probe.Gone},
		{"NotIn matches", rulesOf([3]string{one, "NotIn", "0, 1, 2"}), 99, probe.Ended, probe.Gone},
		{"the first of two that match counts", rulesOf([3]string{one, "In", "42, 50, 60"}, [3]string{all, "In", "42"}), 42, probe.Ended, probe.Gone},
		{"also when it is the other one", rulesOf([3]string{all, "In", "42"}, [3]string{one, "In", "42, 50, 60"}), 42, probe.Ended, probe.Ended},
		{"none matches", rulesOf([3]string{one, "In", "42, 50, 60"}), 100, probe.Gone, probe.Gone},
		{"there are none", ", restartPolicy: Never", 0, probe.Gone, probe.Gone},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(t, "{restartPolicy: Never, containers: [{name: app"+test.fields+"}, {name: other}]}")
			pod.Status.ContainerStatuses = []v1.ContainerStatus{
				{Name: "app", ContainerID: "cri://1", State: terminated(test.code)}, {Name: "other", ContainerID: "cri://2", State: terminated(1)}}
			if got := kube.Instances(pod); got[0].Phase != test.want || got[1].Phase != test.others {
				t.Errorf("it is %v and the other one %v, want %v and %v", got[0].Phase, got[1].Phase, test.want, test.others)
			}
		})
	}
}

package pods

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// unprobed is an engine without probes.
type unprobed struct{}

func (unprobed) Target(string) (engine.TargetStatus, bool) { return engine.TargetStatus{}, false }

// livingPod returns a valid pod with a status that may lack containers.
func livingPod(r *rand.Rand) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", Generation: 3}}
	for i := range 1 + r.IntN(3) {
		name := fmt.Sprint("c", i)
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, anyStatus(r, name)...)
	}
	for i := range r.IntN(3) {
		name := fmt.Sprint("i", i)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: name, RestartPolicy: maybe[v1.ContainerRestartPolicy](r, "Always", "Never")})
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, anyStatus(r, name)...)
	}
	for _, gate := range []v1.PodConditionType{"g", "h"} {
		if r.IntN(3) == 0 {
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, v1.PodReadinessGate{ConditionType: gate})
		}
	}
	for _, kind := range []v1.PodConditionType{"g", "h", v1.PodInitialized} {
		if was := maybe[v1.ConditionStatus](r, "True", "False", "Unknown"); was != nil {
			pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: kind, Status: *was})
		}
	}
	pod.Status.Phase = oneOf[v1.PodPhase](r, "", "Pending", "Running", "Succeeded", "Failed")
	return pod
}

// anyStatus returns a container's status, or nil.
func anyStatus(r *rand.Rand, name string) []v1.ContainerStatus {
	states := []v1.ContainerState{
		{},
		{Waiting: &v1.ContainerStateWaiting{}},
		{Running: &v1.ContainerStateRunning{}},
		{Terminated: &v1.ContainerStateTerminated{ExitCode: int32(r.IntN(2))}},
	}
	if r.IntN(4) == 0 {
		return nil
	}
	return []v1.ContainerStatus{{Name: name, ContainerID: "cri://" + name, State: oneOf(r, states...)}}
}

func TestConditionsAreTheSame(t *testing.T) {
	seeds(t, func(r *rand.Rand) string {
		pod := livingPod(r)
		ours := kube.PodStatus(pod, unprobed{}, time.Unix(1e9, 0))
		all := slices.Concat(ours.InitContainerStatuses, ours.ContainerStatuses)
		for _, theirs := range []v1.PodCondition{
			status.GeneratePodInitializedCondition(pod, &pod.Status, all, ours.Phase),
			status.GeneratePodReadyCondition(pod, &pod.Status, pod.Status.Conditions, all, ours.Phase),
			status.GenerateContainersReadyCondition(pod, &pod.Status, all, ours.Phase),
		} {
			i := slices.IndexFunc(ours.Conditions, func(c v1.PodCondition) bool { return c.Type == theirs.Type })
			c := ours.Conditions[i]
			c.LastTransitionTime = metav1.Time{}
			if c != theirs {
				return fmt.Sprintf("%s\nhas the condition\n%+v\nand with us\n%+v", show(pod), theirs, c)
			}
		}
		return ""
	})
}

func TestTheSameContainersBeginAgain(t *testing.T) {
	rule := func(r *rand.Rand) v1.ContainerRestartRule {
		return v1.ContainerRestartRule{Action: "Restart", ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: oneOf[v1.ContainerRestartRuleOnExitCodesOperator](r, "In", "NotIn"), Values: []int32{r.Int32N(3), r.Int32N(3)},
		}}
	}
	seeds(t, func(r *rand.Rand) string {
		c := v1.Container{Name: "c", RestartPolicy: maybe[v1.ContainerRestartPolicy](r, "Always", "Never", "OnFailure"), RestartPolicyRules: several(r, rule)}
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: oneOf[v1.RestartPolicy](r, "Always", "Never", "OnFailure"), Containers: []v1.Container{c}}}
		code := r.Int32N(3)
		ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ContainerID: "cri://1", State: ended}}
		ours, theirs := kube.Instances(pod)[0].Phase == probe.Ended, podutil.ContainerShouldRestart(c, pod.Spec, code)
		if ours != theirs {
			return fmt.Sprintf("%s begins again: %v, and with us: %v", show(pod), theirs, ours)
		}
		return ""
	})
}

func TestVariablesInCommandsAreReplacedAlike(t *testing.T) {
	env := []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}, {Name: "C", ValueFrom: &v1.EnvVarSource{}}}
	seeds(t, func(r *rand.Rand) string {
		word := ""
		for range 50 {
			word += oneOf(r, "$", "(", ")", "A", "B", "C", "D", " ", "$(", "$$", "$(A)", "$(C)")
		}
		check := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{word}}}}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image", Env: env, LivenessProbe: check}}}}
		containers, err := kube.Containers(pod)
		if err != nil {
			return err.Error()
		}
		ours, theirs := containers[0].Probes[0].Command, container.ExpandContainerCommandOnlyStatic([]string{word}, env)
		if !slices.Equal(ours, theirs) {
			return fmt.Sprintf("%q becomes %q, and with us %q", word, theirs, ours)
		}
		return ""
	})
}

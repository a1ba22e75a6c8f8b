package kube_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

var t0 = metav1.NewTime(time.Unix(1_700_000_000, 0))

func running() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: t0}}
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func terminated(code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: "bye", FinishedAt: t0}}
}

// podIn returns the pod default/web with the container app in a state. fields are further fields of the container.
func podIn(t *testing.T, state v1.ContainerState, fields string) *v1.Pod {
	t.Helper()
	pod := podWith(t, "{containers: [{name: app"+fields+"}]}")
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", ContainerID: "cri://1", State: state, RestartCount: 2}}
	return pod
}

func TestContainerStateDeterminesThePhase(t *testing.T) {
	app := probe.Instance{Target: "default/web/app", ID: "cri://1", Managed: true, Restarts: 2}
	in := func(phase probe.Phase, since time.Time, reason probe.Reason, detail string) probe.Instance {
		i := app
		i.Phase, i.Since, i.Reason, i.Detail = phase, since, reason, detail
		return i
	}
	again := podIn(t, waiting("CrashLoopBackOff"), "")
	again.Status.ContainerStatuses[0].LastTerminationState = terminated(3)
	once := podIn(t, terminated(0), ", restartPolicy: Never")
	failed := podIn(t, terminated(1), ", restartPolicy: Never")
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want probe.Instance
	}{
		{"it runs", podIn(t, running(), ""), in(probe.Running, t0.Time, "", "")},
		{"it waits for its back-off", podIn(t, waiting("CrashLoopBackOff"), ""), in(probe.Waiting, time.Time{}, probe.ReasonBackOff, "CrashLoopBackOff")},
		{"and the status says how it has ended", again, in(probe.Waiting, time.Time{}, probe.ReasonBackOff, "exit status 3, Error: bye: CrashLoopBackOff")},
		{"it waits for its turn", podIn(t, waiting("ContainerCreating"), ""), in(probe.Waiting, time.Time{}, "", "ContainerCreating")},
		{"it cannot be started", podIn(t, waiting("RunContainerError"), ""), in(probe.Waiting, time.Time{}, probe.ReasonNoStart, "RunContainerError")},
		{"no state means waiting", podIn(t, v1.ContainerState{}, ""), in(probe.Waiting, time.Time{}, "", "")},
		{"it has ended", podIn(t, terminated(1), ""), in(probe.Ended, t0.Time, probe.ReasonExited, "exit status 1, Error: bye")},
		{"it has ended for good", failed, in(probe.Gone, t0.Time, probe.ReasonExited, "exit status 1, Error: bye")},
		{"it has completed", once, in(probe.Gone, t0.Time, probe.ReasonCompleted, "exit status 0, Error: bye")},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := kube.Instances(test.pod); len(got) != 1 || !got[0].Equal(test.want) {
				t.Errorf("instances are %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestContainerWithoutAnIDIsAbsent(t *testing.T) {
	want := probe.Instance{Target: "default/web/app"}
	unnamed := podIn(t, running(), "")
	unnamed.Status.ContainerStatuses[0].ContainerID = ""
	other := podIn(t, running(), "")
	other.Status.ContainerStatuses[0].Name = "other"
	for name, pod := range map[string]*v1.Pod{"K33 no ID": unnamed, "K33 no status": other} {
		if got := kube.Instances(pod); len(got) != 1 || !got[0].Equal(want) {
			t.Errorf("%s: instances are %+v, want %+v", name, got, want)
		}
	}
}

// A container that the kubelet shows as CrashLoopBackOff or ImagePullBackOff is in trouble.
func TestAContainerThatDoesNotStartIsInTrouble(t *testing.T) {
	unpulled := podIn(t, waiting("ImagePullBackOff"), "")
	unpulled.Status.ContainerStatuses[0].ContainerID = "" // there is none yet
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want probe.TargetState
	}{
		"crash loop":           {podIn(t, waiting("CrashLoopBackOff"), ""), probe.StateCrashLooping},
		"image not pulled":     {unpulled, probe.StateCannotStart},
		"creating":             {podIn(t, waiting("ContainerCreating"), ""), probe.StateStarting},
		"exited for good":      {podIn(t, terminated(1), ", restartPolicy: Never"), probe.StateExited},
		"completed":            {podIn(t, terminated(0), ", restartPolicy: Never"), probe.StateCompleted},
		"ended, not in a loop": {podIn(t, terminated(1), ""), probe.StateRestarting},
	} {
		e := engine.New(engine.Config{})
		id := probe.ID{Target: "default/web/app", Kind: probe.Readiness}
		if _, err := e.Apply(probe.Set{id: {Handler: probe.HandlerFunc(nil), HandlerName: "http"}}); err != nil {
			t.Fatal(err)
		}
		e.Report(kube.Instances(test.pod)[0])
		if st, _ := e.Target(id.Target); st.State != test.want {
			t.Errorf("%s: the state is %v, want %v", name, st.State, test.want)
		}
	}
}

func TestRestartPolicyAndRulesDecideBetweenEndedAndGone(t *testing.T) {
	rules := func(action, operator, values string) string {
		return ", restartPolicy: Never, restartPolicyRules: [{action: " + action + ", exitCodes: {operator: " + operator + ", values: " + values + "}}]"
	}
	for _, test := range []struct {
		name   string
		policy v1.RestartPolicy
		fields string
		code   int32
		want   probe.Phase
	}{
		{"K37 the default", "", "", 0, probe.Ended},
		{"K37 always", "Always", "", 0, probe.Ended},
		{"K37 on failure, and it failed", "OnFailure", "", 1, probe.Ended},
		{"K37 on failure, and it did not", "OnFailure", "", 0, probe.Gone},
		{"K37 never", "Never", "", 1, probe.Gone},
		{"K37 the container's policy comes first", "Never", ", restartPolicy: Always", 0, probe.Ended},
		{"K37 also when it is never", "Always", ", restartPolicy: Never", 1, probe.Gone},
		{"K37 or on failure", "Always", ", restartPolicy: OnFailure", 0, probe.Gone},
		{"K37 a rule comes before both", "Never", rules("Restart", "In", "[42]"), 42, probe.Ended},
		{"K37 when it matches", "Always", rules("Restart", "In", "[42]"), 1, probe.Gone},
		{"K37 or what it lists does not", "Never", rules("Restart", "NotIn", "[42]"), 1, probe.Ended},
		{"K37 and not when it does", "Never", rules("Restart", "NotIn", "[42]"), 42, probe.Gone},
		{"K37 the whole pod restarts", "Never", rules("RestartAllContainers", "In", "[7]"), 7, probe.Ended},
		{"K37 rules without a policy do not count", "Never", ", restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]", 1, probe.Gone},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podIn(t, terminated(test.code), test.fields)
			pod.Spec.RestartPolicy = test.policy
			if got := kube.Instances(pod)[0].Phase; got != test.want {
				t.Errorf("the phase is %v, want %v", got, test.want)
			}
		})
	}
}

func TestAllContainersAreEndedWhenThePodRestarts(t *testing.T) {
	pod := podIn(t, terminated(0), "")
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
	if got := kube.Instances(pod)[0].Phase; got != probe.Ended {
		t.Errorf("K37: the phase is %v, want ended", got)
	}
}

func TestSidecarIsRestartedUnderAnyPodPolicy(t *testing.T) {
	pod := podWith(t, "{restartPolicy: Never, containers: [{name: app}], initContainers: [{name: once}, {name: side, restartPolicy: Always}]}")
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "once", ContainerID: "cri://0"}, {Name: "side", ContainerID: "cri://2", State: terminated(0)}}
	got := kube.Instances(pod)
	if len(got) != 2 || got[0].Phase != probe.Absent || got[1].Target != "default/web/side" || got[1].Phase != probe.Ended {
		t.Errorf("K37: instances are %+v", got)
	}
}

func TestContainersOfATerminalPodAreGone(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		pod := podIn(t, running(), "")
		pod.Status.Phase = phase
		if got := kube.Instances(pod)[0].Phase; got != probe.Gone {
			t.Errorf("K32: in a pod that is %s the phase is %v, want gone", phase, got)
		}
	}
}

func TestContainersOfADeletedPodAreTerminating(t *testing.T) {
	pod := podIn(t, running(), "")
	pod.DeletionTimestamp = &t0
	if got := kube.Instances(pod)[0]; !got.Terminating || got.Phase != probe.Running {
		t.Errorf("K38: the instance is %+v", got)
	}
}

package kube_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// appStatus returns the new status of default/web's container app.
func appStatus(pod *v1.Pod, known targets) v1.ContainerStatus {
	return kube.PodStatus(pod, known, t0.Time).ContainerStatuses[0]
}

func TestRunningContainerHasStartedWhenItsStartupProbePasses(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		name  string
		state v1.ContainerState
		was   *bool
		known targets
		want  bool
	}{
		{"K98 what does not run has not", waiting(""), &yes, nil, false},
		{"K98 nor what has ended", terminated(0), &yes, nil, false},
		{"K98 without a startup probe it has", running(), &no, nil, true},
		{"K98 a startup probe passes", running(), &no, found(probe.Startup, "cri://1", probe.Passing), true},
		{"K98 a startup probe has not decided", running(), &yes, found(probe.Startup, "cri://1", probe.Undecided), false},
		{"K98 a startup probe fails", running(), &yes, found(probe.Startup, "cri://1", probe.Failing), false},
		{"K98 the engine does not have this instance, and the status says yes", running(), &yes, found(probe.Startup, "cri://0", probe.Failing), true},
		{"K98 the engine does not have this instance, and the status says no", running(), &no, found(probe.Startup, "cri://0", probe.Passing), false},
		{"K98 nor has the status anything to say", running(), nil, found(probe.Startup, "", probe.Undecided), false},
		{"another kind of probe does not matter", running(), nil, found(probe.Liveness, "cri://1", probe.Failing), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podIn(t, test.state, "")
			pod.Status.ContainerStatuses[0].Started = test.was
			if got := appStatus(pod, test.known); *got.Started != test.want {
				t.Errorf("started is %v, want %v", *got.Started, test.want)
			}
		})
	}
}

func TestStartedContainerIsReadyWhenItsReadinessProbePasses(t *testing.T) {
	for _, test := range []struct {
		name  string
		state v1.ContainerState
		known targets
		want  bool
	}{
		{"K113 what does not run is not", waiting(""), found(probe.Readiness, "cri://1", probe.Passing), false},
		{"K113 without a readiness probe it is", running(), nil, true},
		{"K113 a readiness probe passes", running(), found(probe.Readiness, "cri://1", probe.Passing), true},
		{"K113 a readiness probe fails", running(), found(probe.Readiness, "cri://1", probe.Failing), false},
		{"K115 it passed for another instance", running(), found(probe.Readiness, "cri://0", probe.Passing), false},
		{"K113 what has not started is not", running(), found(probe.Startup, "cri://1", probe.Undecided), false},
		{"liveness does not matter", running(), found(probe.Liveness, "cri://1", probe.Failing), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podIn(t, test.state, "")
			pod.Status.ContainerStatuses[0].Ready = !test.want
			if got := appStatus(pod, test.known); got.Ready != test.want {
				t.Errorf("ready is %v, want %v", got.Ready, test.want)
			}
		})
	}
}

func TestInitContainersAreReadyWhenCompleted(t *testing.T) {
	pod := podWith(t, "{containers: [{name: app}], initContainers: [{name: a}, {name: b}, {name: c}, {name: side, restartPolicy: Always}]}")
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{
		{Name: "a", ContainerID: "cri://a", State: terminated(0)}, {Name: "b", ContainerID: "cri://b", State: terminated(1), Ready: true},
		{Name: "c", ContainerID: "cri://c", State: running()}, {Name: "side", ContainerID: "cri://d", State: running()},
	}
	got := kube.PodStatus(pod, targets{}, t0.Time).InitContainerStatuses
	for i, want := range []struct{ started, ready bool }{{false, true}, {false, false}, {true, false}, {true, true}} {
		if *got[i].Started != want.started || got[i].Ready != want.ready {
			t.Errorf("K114: %s is started %v, ready %v, want %+v", got[i].Name, *got[i].Started, got[i].Ready, want)
		}
	}
}

// conditions returns the status, reason and message of a pod's conditions.
func conditions(pod *v1.Pod, known targets) map[v1.PodConditionType]string {
	all := map[v1.PodConditionType]string{}
	for _, c := range kube.PodStatus(pod, known, t0.Time).Conditions {
		all[c.Type] = string(c.Status) + "/" + c.Reason + "/" + c.Message
	}
	return all
}

func TestConditionsHaveTheKubeletsReasonsAndMessages(t *testing.T) {
	run := func(name string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, ContainerID: "cri://1", State: running()}
	}
	wait := func(name string) v1.ContainerStatus { return v1.ContainerStatus{Name: name, State: waiting("")} }
	done := func(name string) v1.ContainerStatus { return v1.ContainerStatus{Name: name, State: terminated(0)} }
	list := func(all ...v1.ContainerStatus) []v1.ContainerStatus { return all }
	const two = "{containers: [{name: app}, {name: b}], initContainers: [{name: init}, {name: side, restartPolicy: Always}]}"
	const gates = "{containers: [{name: app}], readinessGates: [{conditionType: a}, {conditionType: b}]}"
	for _, test := range []struct {
		name                             string
		spec                             string
		status                           v1.PodStatus
		initialized, ready, containersOK string
	}{
		{"K120, K122 no status at all", two, v1.PodStatus{},
			"False/UnknownContainerStatuses/", "False/UnknownContainerStatuses/", "False/UnknownContainerStatuses/"},
		{"K122 without init containers there is nothing to wait for", "{containers: [{name: app}]}", v1.PodStatus{},
			"True//", "False/UnknownContainerStatuses/", "False/UnknownContainerStatuses/"},
		{"K120 sidecars come first", two, v1.PodStatus{ContainerStatuses: list(wait("b")), InitContainerStatuses: list(wait("init"))},
			"False/ContainersNotInitialized/containers with unknown status: [side], containers with incomplete status: [init]",
			"False/ContainersNotReady/containers with unknown status: [side app], containers with unready status: [b]",
			"False/ContainersNotReady/containers with unknown status: [side app], containers with unready status: [b]"},
		{"K122 a sidecar has to have started", two, v1.PodStatus{InitContainerStatuses: list(done("init"), wait("side"))},
			"False/ContainersNotInitialized/containers with incomplete status: [side]",
			"False/ContainersNotReady/containers with unknown status: [app b], containers with unready status: [side]",
			"False/ContainersNotReady/containers with unknown status: [app b], containers with unready status: [side]"},
		{"K122 once a regular container has started it stays", two, v1.PodStatus{ContainerStatuses: list(run("app"), run("b")), InitContainerStatuses: list(done("init"), wait("side"))},
			"True//", "False/ContainersNotReady/containers with unready status: [side]", "False/ContainersNotReady/containers with unready status: [side]"},
		{"K122 and what was initialized is", two, v1.PodStatus{InitContainerStatuses: list(wait("init"), run("side")), Conditions: []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}},
			"True//", "False/ContainersNotReady/containers with unknown status: [app b]", "False/ContainersNotReady/containers with unknown status: [app b]"},
		{"K120 all is well", two, v1.PodStatus{ContainerStatuses: list(run("app"), run("b")), InitContainerStatuses: list(done("init"), run("side"))},
			"True//", "True//", "True//"},
		{"K120 a pod that is done", two, v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: list(done("app"), done("b")), InitContainerStatuses: list(done("init"), done("side"))},
			"True/PodCompleted/", "False/PodCompleted/", "False/PodCompleted/"},
		{"K120, K123 a pod that has failed, though something runs", two, v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: list(run("app"), run("b")), InitContainerStatuses: list(done("init"), run("side"))},
			"True//", "False/PodFailed/", "False/PodFailed/"},
		{"K121 gates without a condition", gates, v1.PodStatus{ContainerStatuses: list(run("app"))},
			"True//", `False/ReadinessGatesNotReady/corresponding condition of pod readiness gate "a" does not exist., corresponding condition of pod readiness gate "b" does not exist.`, "True//"},
		{"K121 a gate that is closed", gates, v1.PodStatus{ContainerStatuses: list(run("app")), Conditions: []v1.PodCondition{{Type: "a", Status: v1.ConditionTrue}, {Type: "b", Status: v1.ConditionFalse}}},
			"True//", `False/ReadinessGatesNotReady/the status of pod readiness gate "b" is not "True", but False`, "True//"},
		{"K121 open gates", gates, v1.PodStatus{ContainerStatuses: list(run("app")), Conditions: []v1.PodCondition{{Type: "a", Status: v1.ConditionTrue}, {Type: "b", Status: v1.ConditionTrue}}},
			"True//", "True//", "True//"},
		{"K121 gates do not matter as long as containers are not ready", gates, v1.PodStatus{ContainerStatuses: list(wait("app"))},
			"True//", "False/ContainersNotReady/containers with unready status: [app]", "False/ContainersNotReady/containers with unready status: [app]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(t, test.spec)
			pod.Status = test.status
			got := conditions(pod, nil)
			for kind, want := range map[v1.PodConditionType]string{v1.PodInitialized: test.initialized, v1.PodReady: test.ready, v1.ContainersReady: test.containersOK} {
				if got[kind] != want {
					t.Errorf("%s is %s, want %s", kind, got[kind], want)
				}
			}
		})
	}
}

func TestConditionKeepsItsTransitionTimeWithItsStatus(t *testing.T) {
	pod := podIn(t, running(), "")
	pod.Generation = 7
	first := t0.Add(1500 * time.Millisecond)
	pod.Status = kube.PodStatus(pod, targets{}, first)
	pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: "mine", Status: v1.ConditionTrue})
	second := first.Add(time.Minute)
	pod.Status = kube.PodStatus(pod, found(probe.Readiness, "cri://1", probe.Failing), second)
	times := map[v1.PodConditionType]metav1.Time{}
	for _, c := range pod.Status.Conditions {
		times[c.Type] = c.LastTransitionTime
		if !c.LastProbeTime.IsZero() || c.Type != "mine" && c.ObservedGeneration != 7 {
			t.Errorf("K124: %s is %+v", c.Type, c)
		}
	}
	if got, want := times[v1.PodInitialized].Time, first.Truncate(time.Second); !got.Equal(want) {
		t.Errorf("K118: Initialized has its time from %v, want %v", got, want)
	}
	if got, want := times[v1.PodReady].Time, second.Truncate(time.Second); !got.Equal(want) {
		t.Errorf("K118: Ready has its time from %v, want %v", got, want)
	}
	if len(pod.Status.Conditions) != 4 {
		t.Errorf("conditions are %+v", pod.Status.Conditions)
	}
}

func TestPodArgumentIsNotChanged(t *testing.T) {
	pod := podIn(t, running(), ", readinessProbe: {tcpSocket: {port: 1}}")
	before := pod.DeepCopy()
	kube.PodStatus(pod, targets{}, t0.Time)
	kube.Instances(pod)
	if _, err := kube.Set(pod, makers()); err != nil {
		t.Fatal(err)
	}
	if pod.String() != before.String() {
		t.Error("the pod has changed")
	}
}

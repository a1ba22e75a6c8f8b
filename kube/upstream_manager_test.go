package kube_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// The tests in this file have the cases of upstream's prober_manager_test.go, in its
// order; tests/upstream.md sets both side by side.

// expectProbes compares the probes of the engine.
func (h harness) expectProbes(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for s := range h.engine.All() {
		got = append(got, s.ID.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("there are the probes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// podNamed returns a pod in the namespace default with this spec. Its UID is its name.
func podNamed(t *testing.T, name, spec string) *v1.Pod {
	t.Helper()
	pod := podWith(t, spec)
	pod.Name, pod.UID = name, types.UID(name)
	return pod
}

// check is a probe in a manifest.
const check = "{exec: {command: [x]}, periodSeconds: 1}"

func TestUpstreamAddRemovePods(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		plain := podNamed(t, "plain", "{containers: [{name: a}, {name: b}, {name: c}]}")
		checked := podNamed(t, "checked", "{containers: [{name: a}, {name: r, readinessProbe: "+check+"}, {name: b}, {name: l, livenessProbe: "+check+"}, {name: c}, {name: s, startupProbe: "+check+"}]}")
		h.expectProbes(t)
		h.add(t, plain)
		h.expectProbes(t)
		h.add(t, checked)
		three := []string{"default/checked/r:readiness", "default/checked/l:liveness", "default/checked/s:startup"}
		h.expectProbes(t, three...)
		h.RemovePod(plain)
		h.expectProbes(t, three...)
		for range 2 { // adding it twice is allowed
			h.RemovePod(checked)
			h.expectProbes(t)
		}
	})
}

func TestUpstreamAddRemovePodsWithRestartableInitContainer(t *testing.T) {
	const probes = "livenessProbe: " + check + ", readinessProbe: " + check + ", startupProbe: " + check
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		sidecar := podNamed(t, "web", "{containers: [{name: main}], initContainers: [{name: init}, {name: side, restartPolicy: Always, "+probes+"}]}")
		h.add(t, sidecar)
		h.expectProbes(t, "default/web/side:liveness", "default/web/side:readiness", "default/web/side:startup")
		for range 2 {
			h.RemovePod(sidecar)
			h.expectProbes(t)
		}
		// The kubelet skips the probes of ordinary init containers, which the API server forbids. Here such a pod is an error.
		ordinary := podNamed(t, "web", "{containers: [{name: main}], initContainers: [{name: init}, {name: side, "+probes+"}]}")
		if err := h.AddPod(ordinary); err == nil || !strings.Contains(err.Error(), "may not be set for init containers without restartPolicy=Always") {
			t.Errorf("AddPod = %v", err)
		}
		h.expectProbes(t)
		h.RemovePod(ordinary)
	})
}

const threeContainers = "{containers: [{name: a, readinessProbe: " + check + "}, {name: b, livenessProbe: " + check + "}, {name: c, startupProbe: " + check + "}]}"

func TestUpstreamCleanupPods(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		h.add(t, podNamed(t, "go", threeContainers))
		h.add(t, podNamed(t, "stay", threeContainers))
		h.CleanupPods(map[types.UID]sets.Empty{"stay": {}})
		h.expectProbes(t, "default/stay/a:readiness", "default/stay/b:liveness", "default/stay/c:startup")
	})
}

func TestUpstreamCleanupRepeated(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		for i := range 100 {
			h.add(t, podNamed(t, fmt.Sprint("pod-", i), threeContainers))
		}
		for range 10 {
			h.CleanupPods(map[types.UID]sets.Empty{})
			h.expectProbes(t)
		}
	})
}

// judged implements kube.Targets for default/web's containers, by container name: a verdict for a kind of probe, about the
// instance "cri://<container>".
type judged map[string]struct {
	kind    probe.Kind
	verdict probe.Verdict
}

func (j judged) targets() targets {
	known := targets{}
	for name, j := range j {
		id := probe.ID{Target: "default/web/" + name, Kind: j.kind}
		known[id.Target] = engine.TargetStatus{Target: id.Target, Probes: []engine.Status{{ID: id, Instance: "cri://" + name, Verdict: j.verdict}}}
	}
	return known
}

// statuses returns a status for each container, by its name.
func statuses(states map[string]v1.ContainerState) []v1.ContainerStatus {
	var all []v1.ContainerStatus
	for _, name := range slices.Sorted(maps.Keys(states)) {
		all = append(all, v1.ContainerStatus{Name: name, ContainerID: "cri://" + name, State: states[name]})
	}
	return all
}

func TestUpstreamUpdatePodStatus(t *testing.T) {
	pod := podWith(t, "{containers: [{name: unprobed}, {name: ready}, {name: pending}, {name: unready}, {name: starting}, {name: started}, {name: ended}]}")
	pod.Status.ContainerStatuses = statuses(map[string]v1.ContainerState{
		"unprobed": running(), "ready": running(), "pending": running(), "unready": running(),
		"starting": running(), "started": running(), "ended": terminated(0),
	})
	known := judged{
		"unprobed": {probe.Liveness, probe.Passing},
		"ready":    {probe.Readiness, probe.Passing},
		"pending":  {probe.Readiness, probe.Undecided},
		"unready":  {probe.Readiness, probe.Failing},
		"starting": {probe.Startup, probe.Undecided},
		"started":  {probe.Startup, probe.Passing},
		"ended":    {probe.Readiness, probe.Passing},
	}
	want := map[string]bool{"unprobed": true, "ready": true, "started": true}
	for _, c := range kube.PodStatus(pod, known.targets(), t0.Time).ContainerStatuses {
		if c.Ready != want[c.Name] {
			t.Errorf("container %s is ready: %v, want %v", c.Name, c.Ready, want[c.Name])
		}
	}
}

func TestUpstreamUpdatePodStatusWithInitContainers(t *testing.T) {
	type want struct{ started, ready bool }
	for _, test := range []struct {
		name   string
		policy string
		want   map[string]want
	}{
		{"ordinary", "", map[string]want{"starting": {false, false}, "started": {true, false}, "ended": {false, true}}},
		{"sidecars", ", restartPolicy: Always", map[string]want{"starting": {false, false}, "started": {true, true}, "ended": {false, false}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(t, strings.ReplaceAll("{containers: [{name: main}], initContainers: [{name: starting+}, {name: started+}, {name: ended+}]}", "+", test.policy))
			pod.Status.InitContainerStatuses = statuses(map[string]v1.ContainerState{"starting": running(), "started": running(), "ended": terminated(0)})
			known := judged{"starting": {probe.Startup, probe.Undecided}, "started": {probe.Startup, probe.Passing}}
			for _, c := range kube.PodStatus(pod, known.targets(), t0.Time).InitContainerStatuses {
				if got := (want{*c.Started, c.Ready}); got != test.want[c.Name] {
					t.Errorf("container %s is %+v, want %+v", c.Name, got, test.want[c.Name])
				}
			}
		})
	}
}

func TestUpstreamUpdateReadiness(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod := podNamed(t, "web", "{containers: [{name: app, readinessProbe: {exec: {command: [x]}, periodSeconds: 1, failureThreshold: 1}}]}")
		status := runningStatus(1)
		h.say("exec", probe.Success)
		h.add(t, pod)
		h.UpdatePodStatus(pod, status)
		wait(2 * time.Second)
		h.expect(t, pod, status, true, true)
		h.say("exec", probe.Failure)
		wait(2 * time.Second)
		h.expect(t, pod, status, true, false)
	})
}

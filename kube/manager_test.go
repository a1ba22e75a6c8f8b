package kube_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// outcomes provides the outcome of each kind of action, and counts the attempts.
type outcomes struct {
	mu      sync.Mutex
	answers map[string]probe.Outcome // by action: "exec"
	asked   map[string]int
	at      string // the address that was probed last
}

func newWorld() *outcomes {
	return &outcomes{answers: map[string]probe.Outcome{}, asked: map[string]int{}}
}

func (w *outcomes) say(action string, o probe.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[action] = o
}

func (w *outcomes) count(action string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[action]
}

func (w *outcomes) handler(action string) probe.Handler {
	return probe.HandlerFunc(func(_ context.Context, t probe.Target) probe.Result {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked[action]++
		w.at = t.Address
		return probe.Result{Outcome: w.answers[action]}
	})
}

func (w *outcomes) handlers() kube.Handlers {
	return kube.Handlers{
		"exec": func(kube.Action) (probe.Handler, error) { return w.handler("exec"), nil },
		"http": func(kube.Action) (probe.Handler, error) { return w.handler("http"), nil },
		"tcp":  func(kube.Action) (probe.Handler, error) { return w.handler("tcp"), nil },
	}
}

// harness is a manager with its engine, and the outcomes of its probes.
type harness struct {
	*kube.Manager
	*outcomes
	engine *engine.Engine
}

// inBubble runs a test with a running engine.
func inBubble(t *testing.T, c engine.Config, test func(*testing.T, harness)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := engine.New(c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		test(t, harness{kube.NewManager(e, w.handlers()), w, e})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// probed returns the pod default/web with all kinds of probes: exec for startup, http for readiness, tcp for liveness.
func probed(t *testing.T, uid types.UID) *v1.Pod {
	t.Helper()
	pod := podWith(t, `{containers: [{name: app, startupProbe: {exec: {command: [x]}, periodSeconds: 1},
		readinessProbe: {httpGet: {port: 1}, periodSeconds: 4}, livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1}}]}`)
	pod.UID = uid
	return pod
}

// runningStatus returns a pod's status with running containers.
func runningStatus(n int) *v1.PodStatus {
	state := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}
	pulling := metav1.NewTime(time.Now().Add(-time.Hour)) // nothing is measured from this startTime (K39)
	return &v1.PodStatus{PodIP: "10.0.0.1", StartTime: &pulling, ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: fmt.Sprintf("cri://%d", n), State: state}}}
}

// wait advances the time of the bubble.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h harness) add(t *testing.T, pod *v1.Pod) {
	t.Helper()
	if err := h.AddPod(pod); err != nil {
		t.Fatal(err)
	}
}

// expect checks how UpdatePodStatus sets a status.
func (h harness) expect(t *testing.T, pod *v1.Pod, status *v1.PodStatus, started, ready bool) {
	t.Helper()
	h.UpdatePodStatus(pod, status)
	if c := status.ContainerStatuses[0]; *c.Started != started || c.Ready != ready {
		t.Errorf("at %v the container is started %v, ready %v, want %v, %v", time.Now().Format("05.000"), *c.Started, c.Ready, started, ready)
	}
}

func TestManagerProbesAPodFromAddToRemove(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod := probed(t, "1")
		h.add(t, pod)
		wait(5 * time.Second)
		if n := h.count("exec"); n != 0 {
			t.Errorf("without a container there were %d attempts", n)
		}
		status := runningStatus(1)
		h.say("exec", probe.Failure)
		h.expect(t, pod, status, false, false)
		wait(1500 * time.Millisecond)
		h.expect(t, pod, status, false, false)
		h.say("exec", probe.Success)
		wait(time.Second)
		h.expect(t, pod, status, true, false)
		if h.at != "10.0.0.1" {
			t.Errorf("the probes looked at %q", h.at)
		}
		h.say("http", probe.Success)
		h.say("tcp", probe.Success)
		wait(8 * time.Second)
		h.expect(t, pod, status, true, true)
		h.say("exec", probe.Failure)
		next := runningStatus(2) // earlier results do not count for a restarted container (K115)
		h.expect(t, pod, next, false, false)
		h.say("exec", probe.Success)
		wait(10 * time.Second)
		h.expect(t, pod, next, true, true)
		h.RemovePod(pod)
		before := h.count("http")
		wait(time.Minute)
		if n := h.count("http"); n != before {
			t.Errorf("after the pod was removed there were %d attempts", n-before)
		}
		if _, there := h.engine.Target("default/web/app"); there {
			t.Error("the engine remembers the pod")
		}
	})
}

func TestKnownPodKeepsItsProbes(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod := probed(t, "1")
		h.add(t, pod)
		changed := pod.DeepCopy()
		changed.Spec.Containers[0].LivenessProbe.PeriodSeconds = 60
		h.add(t, changed)
		h.add(t, pod)
		s, there := h.engine.Status(probe.ID{Target: "default/web/app", Kind: probe.Liveness})
		if !there || s.Rule.Period != time.Second {
			t.Errorf("K4, K6: the probe is %+v", s.Rule)
		}
	})
}

func TestRejectedPodAddsNothing(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		h.add(t, probed(t, "1"))
		bad := podOf(t, "{apiVersion: v1, kind: Pod, metadata: {name: rpc, uid: u2}, spec: {containers: [{name: app, livenessProbe: {grpc: {port: 1}}}]}}")
		if err := h.AddPod(bad); err == nil || !strings.Contains(err.Error(), "no handler for grpc probes") {
			t.Errorf("AddPod = %v", err)
		}
		if n := h.engine.Stats().Probes; n != 3 {
			t.Errorf("there are %d probes, want 3", n)
		}
		h.RemovePod(bad)
	})
}

// readyOnly returns the pod default/web with only a readiness probe, which has the given action.
func readyOnly(t *testing.T, uid types.UID, action string) *v1.Pod {
	t.Helper()
	pod := podWith(t, "{containers: [{name: app, readinessProbe: {"+action+", periodSeconds: 1}}]}")
	pod.UID = uid
	return pod
}

func TestPodsOfOneNameAreToldApartByUID(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		old, young := readyOnly(t, "1", "exec: {command: [x]}"), readyOnly(t, "2", "tcpSocket: {port: 1}")
		oldStatus, youngStatus := runningStatus(1), runningStatus(2)
		h.say("exec", probe.Failure) // the old one is not ready
		h.say("tcp", probe.Success)
		h.add(t, old)
		h.UpdatePodStatus(old, oldStatus)
		h.add(t, young)
		h.UpdatePodStatus(young, youngStatus)
		h.StopLivenessAndStartup(old)
		wait(10 * time.Second)
		h.expect(t, old, oldStatus, true, false)
		h.expect(t, young, youngStatus, true, true)
		if name, known := h.TargetName(old, "app"); name != "default/web/app" || !known {
			t.Errorf("the old pod's target is %q, %v", name, known)
		}
		if name, known := h.TargetName(young, "app"); name != "default/web@2/app" || !known {
			t.Errorf("the young pod's target is %q, %v", name, known)
		}
		for _, pod := range []*v1.Pod{old, young} {
			full := pod.DeepCopy()
			full.Status = *map[types.UID]*v1.PodStatus{"1": oldStatus, "2": youngStatus}[pod.UID]
			if s := h.PodStatus(full, time.Now()); s.ContainerStatuses[0].Ready != (pod == young) {
				t.Errorf("the status of pod %s says ready: %v", pod.UID, s.ContainerStatuses[0].Ready)
			}
		}
		h.RemovePod(old)
		h.expect(t, old, oldStatus, true, false) // it does not become ready by losing its probes
		h.expect(t, young, youngStatus, true, true)
		if n := h.engine.Stats().Probes; n != 1 {
			t.Errorf("there are %d probes, want 1", n)
		}
	})
}

func TestRejectedPodLeavesThePodOfItsName(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod, status := readyOnly(t, "1", "exec: {command: [x]}"), runningStatus(1)
		h.say("exec", probe.Success)
		h.add(t, pod)
		h.UpdatePodStatus(pod, status)
		wait(2 * time.Second)
		for name, bad := range map[string]*v1.Pod{
			"no handler":               readyOnly(t, "2", "grpc: {port: 1}"),
			"a name that is too long":  podNamed(t, strings.Repeat("w", 600), threeContainers),
			"a UID that makes it long": readyOnly(t, types.UID(strings.Repeat("u", 600)), "exec: {command: [x]}"),
		} {
			if err := h.AddPod(bad); err == nil {
				t.Errorf("%s: the pod was added", name)
			}
			before := h.count("exec")
			wait(2 * time.Second)
			if h.count("exec") < before+2 {
				t.Errorf("%s: the pod with its name is not probed any more", name)
			}
			h.expect(t, pod, status, true, true)
		}
	})
}

// restarted returns another manager with a new engine, as after a restart of the program, and with the stored pod: without
// earlier attempts.
func (h harness) restarted(t *testing.T) harness {
	t.Helper()
	w := newWorld()
	e := engine.New(engine.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return harness{kube.NewManager(e, w.handlers()), w, e}
}

func TestRestartedManagerTakesOverStartedAndReady(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod, status := probed(t, "1"), runningStatus(1)
		for _, action := range []string{"exec", "http", "tcp"} {
			h.say(action, probe.Success)
		}
		h.add(t, pod)
		h.UpdatePodStatus(pod, status)
		wait(10 * time.Second)
		h.expect(t, pod, status, true, true)
		pod.Status = *status.DeepCopy() // as stored in the API server

		next := h.restarted(t)
		next.say("exec", probe.Failure)
		next.say("http", probe.Failure)
		next.say("tcp", probe.Success)
		next.expect(t, pod, status.DeepCopy(), true, true) // K98, K165: before it is added
		next.add(t, pod)
		next.expect(t, pod, status.DeepCopy(), true, true) // K164: there is no result yet
		wait(10 * time.Second)                             // two or three failures of three
		if n := next.count("exec"); n != 0 {
			t.Errorf("K98, K166: the startup probe was attempted %d times", n)
		}
		if next.count("tcp") == 0 {
			t.Error("the liveness probe was not attempted")
		}
		wait(20 * time.Second)
		next.expect(t, pod, status.DeepCopy(), true, false) // K164: until the threshold
		again := runningStatus(2)                           // K115: another container has no results
		again.ContainerStatuses[0].Ready = true
		next.UpdatePodStatus(pod, again)
		wait(time.Second)
		next.expect(t, pod, again, false, false)
	})
}

func TestRestartedManagerTrustsTheStatusOfTheSameContainerOnly(t *testing.T) {
	yes := true
	for name, change := range map[string]func(*v1.ContainerStatus){
		"another container":              func(s *v1.ContainerStatus) { s.ContainerID = "cri://0" },
		"a container that did not run":   func(s *v1.ContainerStatus) { s.State = waiting("") },
		"a container that was not ready": func(s *v1.ContainerStatus) { s.Started, s.Ready = new(bool), false },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
				pod, status := probed(t, "1"), runningStatus(1)
				stored := runningStatus(1)
				stored.ContainerStatuses[0].Started, stored.ContainerStatuses[0].Ready = &yes, true
				change(&stored.ContainerStatuses[0])
				pod.Status = *stored
				h.say("exec", probe.Failure)
				h.add(t, pod)
				h.expect(t, pod, status, false, false)
				wait(2 * time.Second)
				h.expect(t, pod, status, false, false)
				if h.count("exec") == 0 {
					t.Error("the startup probe was not attempted")
				}
			})
		})
	}
}

func TestCleanupRemovesUndesiredPods(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		keep, other := probed(t, "1"), probed(t, "2")
		other.Name = "other"
		h.add(t, keep)
		h.add(t, other)
		for range 3 { // repeating it is allowed
			h.CleanupPods(map[types.UID]sets.Empty{"1": {}, "3": {}})
		}
		_, kept := h.engine.Target("default/web/app")
		_, gone := h.engine.Target("default/other/app")
		if !kept || gone {
			t.Errorf("K8: the one to keep is there: %v, the other one: %v", kept, gone)
		}
	})
}

func TestTerminatingPodIsNotRestartedByProbes(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod, status := probed(t, "1"), runningStatus(1)
		h.say("exec", probe.Success)
		h.say("http", probe.Success)
		h.say("tcp", probe.Success)
		h.add(t, pod)
		h.UpdatePodStatus(pod, status)
		wait(10 * time.Second)
		h.StopLivenessAndStartup(pod)
		h.say("tcp", probe.Failure)
		h.say("http", probe.Failure)
		before, readiness := h.count("tcp"), h.count("http")
		wait(20 * time.Second)
		if n := h.count("tcp"); n != before {
			t.Errorf("K7: liveness made %d more attempts", n-before)
		}
		if n := h.count("http"); n < readiness+4 {
			t.Errorf("K51: readiness made %d more attempts, want at least 4", n-readiness)
		}
		h.expect(t, pod, status, true, false)
	})
}

// TestStoppedStartupProbeStartsTheContainerWithCompatibilityOnly stops an undecided startup probe, and one that has failed
// (K99).
func TestStoppedStartupProbeStartsTheContainerWithCompatibilityOnly(t *testing.T) {
	for _, c := range []struct {
		compatibility probe.Compatibility
		failed        bool
		started       bool
	}{{probe.Mended, false, false}, {probe.Mended, true, false}, {probe.Kubelet, false, true}, {probe.Kubelet, true, false}} {
		inBubble(t, engine.Config{Compatibility: c.compatibility}, func(t *testing.T, h harness) {
			pod, status := probed(t, "1"), runningStatus(1)
			h.say("exec", probe.Failure)
			h.say("http", probe.Success)
			h.add(t, pod)
			h.expect(t, pod, status, false, false)
			if wait(time.Second); c.failed {
				wait(10 * time.Second)
			}
			h.StopLivenessAndStartup(pod)
			wait(10 * time.Second)
			h.expect(t, pod, status, c.started, c.started)
		})
	}
}

func TestUnknownPodIsReadyOnlyWithoutProbes(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod, status := probed(t, "1"), runningStatus(1)
		h.StopLivenessAndStartup(pod)
		h.RemovePod(pod)
		h.expect(t, pod, status, false, false)
		pod.Spec.Containers[0].StartupProbe = nil
		h.expect(t, pod, status, true, false)
		status.ContainerStatuses[0].Ready = true // as set by an earlier manager
		h.expect(t, pod, status, true, true)
		pod.Spec.Containers[0].ReadinessProbe = nil
		h.expect(t, pod, runningStatus(1), true, true)
	})
}

func TestRemovedPodKeepsStartedAndReady(t *testing.T) {
	for _, ready := range []bool{true, false} {
		inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
			pod, status := probed(t, "1"), runningStatus(1)
			h.say("exec", probe.Success)
			h.say("tcp", probe.Success)
			if ready {
				h.say("http", probe.Success)
			}
			h.add(t, pod)
			h.UpdatePodStatus(pod, status)
			wait(10 * time.Second)
			h.StopLivenessAndStartup(pod)
			h.expect(t, pod, status, true, ready)
			h.RemovePod(pod) // its containers still run
			h.expect(t, pod, status, true, ready)
			status.ContainerStatuses[0].State = terminated(0)
			h.expect(t, pod, status, false, false)
		})
	}
}

func TestReadinessIsTriggeredInKubeletCompatibilityOnly(t *testing.T) {
	for _, test := range []struct {
		compatibility probe.Compatibility
		least, most   int
	}{{probe.Mended, 0, 1}, {probe.Kubelet, 3, 4}} { // of the period of four seconds; triggered attempts are a tenth of it apart
		inBubble(t, engine.Config{Compatibility: test.compatibility}, func(t *testing.T, h harness) {
			pod, status := probed(t, "1"), runningStatus(1)
			h.say("exec", probe.Success)
			h.say("http", probe.Failure)
			h.add(t, pod)
			h.UpdatePodStatus(pod, status)
			wait(time.Second)
			before := h.count("http")
			for range 10 {
				h.UpdatePodStatus(pod, status)
				wait(100 * time.Millisecond)
			}
			if n := h.count("http") - before; n < test.least || n > test.most {
				t.Errorf("K96: with compatibility %v there were %d attempts in a second, want %d to %d", test.compatibility, n, test.least, test.most)
			}
		})
	}
}

func TestAddedPodReportsItsStatus(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod := probed(t, "1")
		pod.Status = *runningStatus(1)
		h.say("exec", probe.Success)
		h.add(t, pod)
		wait(time.Second)
		if h.count("exec") == 0 || h.at != "10.0.0.1" {
			t.Errorf("there were %d attempts, at %q", h.count("exec"), h.at)
		}
	})
}

func TestManagerIsSafeForConcurrentUse(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		var callers sync.WaitGroup
		for i := range 8 {
			pod := probed(t, types.UID(fmt.Sprint(i)))
			pod.Name = fmt.Sprint("web-", i)
			callers.Go(func() {
				for range 20 {
					if err := h.AddPod(pod); err != nil {
						t.Error(err)
					}
					h.UpdatePodStatus(pod, runningStatus(1))
					h.StopLivenessAndStartup(pod)
					if i%2 == 0 {
						h.RemovePod(pod)
					}
				}
			})
		}
		callers.Wait()
		if n := h.engine.Stats().Probes; n != 12 {
			t.Errorf("there are %d probes, want 12", n)
		}
	})
}

func BenchmarkAddPod(b *testing.B) {
	w := newWorld()
	m := kube.NewManager(engine.New(engine.Config{}), w.handlers())
	pod := &v1.Pod{}
	pod.Spec.Containers = []v1.Container{{Name: "app", Image: "image", LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}}}
	n := 0
	add := func() {
		n++
		pod.UID, pod.Name = types.UID(fmt.Sprint(n)), fmt.Sprint("web-", n)
		if err := m.AddPod(pod); err != nil {
			b.Fatal(err)
		}
	}
	for range 1000 { // about the number of pods on a large machine
		add()
	}
	b.ReportAllocs()
	for b.Loop() {
		add()
		m.RemovePod(pod)
	}
}

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

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// outcomes has the outcome of each kind of action, and counts the attempts.
type outcomes struct {
	mu      sync.Mutex
	answers map[string]probe.Outcome // by action: "exec"
	asked   map[string]int
	at      string // the address that was asked last
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
		Exec: func(kube.Exec) (probe.Handler, error) { return w.handler("exec"), nil },
		HTTP: func(kube.HTTP) (probe.Handler, error) { return w.handler("http"), nil },
		TCP:  func(kube.TCP) (probe.Handler, error) { return w.handler("tcp"), nil },
	}
}

// harness is a manager with its engine, and the outcomes of its probes.
type harness struct {
	*kube.Manager
	*outcomes
	engine *engine.Engine
}

// inBubble runs a test with an engine that runs.
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

// probed is the pod default/web with all kinds of probes: exec is startup, http
// readiness, tcp liveness.
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
	return &v1.PodStatus{PodIP: "10.0.0.1", ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: fmt.Sprintf("cri://%d", n), State: state}}}
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

// expect checks what UpdatePodStatus makes of a status.
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

func TestPodWithTheSameNameReplacesTheOther(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		old, young := probed(t, "1"), probed(t, "2")
		young.Spec.Containers[0].StartupProbe = nil
		h.add(t, old)
		h.add(t, young)
		h.RemovePod(old) // it is gone already
		if n := h.engine.Stats().Probes; n != 2 {
			t.Errorf("there are %d probes, want 2", n)
		}
	})
}

func TestCleanupRemovesUndesiredPods(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		keep, other := probed(t, "1"), probed(t, "2")
		other.Name = "other"
		h.add(t, keep)
		h.add(t, other)
		for range 3 { // again and again is no mistake
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

func TestStoppedStartupProbeDoesNotStartTheContainer(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod, status := probed(t, "1"), runningStatus(1)
		h.say("exec", probe.Failure)
		h.add(t, pod)
		h.expect(t, pod, status, false, false)
		wait(time.Second)
		h.StopLivenessAndStartup(pod)
		wait(10 * time.Second)
		h.expect(t, pod, status, false, false) // K99 is not copied
	})
}

func TestUnknownPodIsReadyWhenRunning(t *testing.T) {
	inBubble(t, engine.Config{}, func(t *testing.T, h harness) {
		pod, status := probed(t, "1"), runningStatus(1)
		h.StopLivenessAndStartup(pod)
		h.RemovePod(pod)
		h.expect(t, pod, status, true, true)
	})
}

func TestReadinessIsTriggeredInKubeletCompatibilityOnly(t *testing.T) {
	for _, test := range []struct {
		compatibility probe.Compatibility
		least, most   int
	}{{probe.Mended, 1, 3}, {probe.Kubelet, 10, 13}} {
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
			if n := h.count("http") - before; n < test.least-1 || n > test.most {
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
	pod.Spec.Containers = []v1.Container{{Name: "app", LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}}}}
	n := 0
	add := func() {
		n++
		pod.UID, pod.Name = types.UID(fmt.Sprint(n)), fmt.Sprint("web-", n)
		if err := m.AddPod(pod); err != nil {
			b.Fatal(err)
		}
	}
	for range 1000 { // as many as a large machine has
		add()
	}
	b.ReportAllocs()
	for b.Loop() {
		add()
		m.RemovePod(pod)
	}
}

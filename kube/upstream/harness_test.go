// Package upstream contains the cases of the kubelet's end-to-end tests of probes: how often containers are restarted, and when
// pods are ready. Time is virtual. Processes, commands and gRPC are faked; HTTP and TCP are real.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// fakeRuntime is the driver of the container app, with a fake process.
type fakeRuntime struct {
	// files maps each file to the ages of the process between which it exists; 0 as the second age means forever. A file
	// without an entry always exists. All files are removed when the process is asked to end.
	files     map[string][2]time.Duration
	endsAfter time.Duration // time from a request to end until the exit; at most the grace period

	age atomic.Int64 // of the process at the latest attempt, for servers outside the bubble

	stateMu sync.Mutex
	started int
	since   time.Time // start of the process
	ending  bool      // the process was asked to end
	graces  []time.Duration
}

// Run implements restart.Driver.
func (m *fakeRuntime) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	m.stateMu.Lock()
	m.started++
	m.since, m.ending = time.Now(), false
	began(restart.Begun{ID: fmt.Sprint("cri://", m.started)})
	m.stateMu.Unlock()
	select {
	case grace := <-end:
		m.stateMu.Lock()
		m.ending = true
		m.graces = append(m.graces, grace)
		m.stateMu.Unlock()
		select {
		case <-time.After(min(grace, m.endsAfter)):
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	return restart.Exit{Code: 137}
}

// has reports whether a file exists now.
func (m *fakeRuntime) has(file string) bool {
	m.stateMu.Lock()
	defer m.stateMu.Unlock()
	span, age := m.files[file], time.Since(m.since)
	return !m.ending && age >= span[0] && (span[1] == 0 || age < span[1])
}

func (m *fakeRuntime) restarts() int {
	m.stateMu.Lock()
	defer m.stateMu.Unlock()
	return m.started - 1
}

// exec is a fake command.
func (m *fakeRuntime) exec(e kube.Action) (probe.Handler, error) {
	line := strings.Join(e.Command, " ")
	return probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
		name, file, _ := strings.Cut(line, " ")
		switch {
		case name == "sleep":
			<-ctx.Done() // all sleep longer than the timeout
			return probe.Fail(probe.ReasonExecTimeout, "killed")
		case name == "true", name == "cat" && m.has(file):
			return probe.Succeed("")
		}
		return probe.Fail(probe.ReasonExecExit, "exit status 1")
	}), nil
}

// grpc is a fake server that is healthy while /healthz exists.
func (m *fakeRuntime) grpc(kube.Action) (probe.Handler, error) {
	return probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
		if m.has("/healthz") {
			return probe.Succeed("")
		}
		return probe.Fail("grpc.not_serving", "NOT_SERVING")
	}), nil
}

// recordAge returns a handler that stores the age of the process for the servers, which are outside the bubble and its virtual
// time.
func (m *fakeRuntime) recordAge(h probe.Handler) probe.Handler {
	return probe.HandlerFunc(func(ctx context.Context, t probe.Target) probe.Result {
		m.stateMu.Lock()
		m.age.Store(int64(time.Since(m.since)))
		m.stateMu.Unlock()
		return h.Probe(ctx, t)
	})
}

func (m *fakeRuntime) handlers() kube.Handlers {
	return kube.Handlers{
		"exec": m.exec,
		"grpc": m.grpc,
		"http": func(c kube.Action) (probe.Handler, error) {
			h, err := httpprobe.New(httpprobe.Config{Path: c.Path, Port: c.Port, Headers: c.Headers})
			return m.recordAge(h), err
		},
		"tcp": func(c kube.Action) (probe.Handler, error) {
			h, err := tcpprobe.New(tcpprobe.Config{Port: c.Port})
			return m.recordAge(h), err
		},
	}
}

// harness is a running pod.
type harness struct {
	*testing.T
	*fakeRuntime
	pod     *v1.Pod
	engine  *engine.Engine
	control *restart.Controller
	ended   chan error
}

// inBubble runs a test with a pod whose only probed container is app.
func inBubble(t *testing.T, manifest string, m *fakeRuntime, test func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, manifest, m)
		engineCtx, endEngine := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.ended <- h.engine.Run(engineCtx) })
		running.Go(func() { h.ended <- h.control.Run(ctx) })
		test(h)
		stop()
		h.control.Kill()
		endEngine()
		running.Wait()
		if err := errors.Join(<-h.ended, <-h.ended); err != nil {
			t.Error(err)
		}
	})
}

func newHarness(t *testing.T, manifest string, m *fakeRuntime) *harness {
	t.Helper()
	found, errs := kube.Read("pod.yaml", []byte(manifest))
	if len(errs) > 0 || len(found) != 1 {
		t.Fatalf("the manifest has %v, %v\n%s", found, errs, manifest)
	}
	h := &harness{T: t, fakeRuntime: m, pod: found[0].Pod, engine: engine.New(engine.Config{}), ended: make(chan error, 2)}
	h.pod.Status.PodIP = "127.0.0.1"
	set, err := kube.Set(h.pod, m.handlers())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.engine.Apply(set); err != nil {
		t.Fatal(err)
	}
	if h.control, err = restart.New(restart.Config{Engine: h.engine}); err != nil {
		t.Fatal(err)
	}
	h.apply(h.units())
	return h
}

// units returns the unit that restarts the container app as specified by the pod.
func (h *harness) units() map[string]restart.Unit {
	containers, err := kube.Containers(h.pod)
	if err != nil {
		h.Fatal(err)
	}
	app := containers[slices.IndexFunc(containers, func(c kube.Container) bool { return c.Name == "app" })]
	var policy restart.Policy
	if err := policy.UnmarshalText([]byte(policies[app.RestartPolicy])); err != nil {
		h.Fatal(err)
	}
	return map[string]restart.Unit{app.Target.Name: {Driver: h.fakeRuntime, Policy: policy, TerminationGracePeriod: app.TerminationGracePeriod}}
}

var policies = map[v1.RestartPolicy]string{v1.RestartPolicyAlways: "always", v1.RestartPolicyOnFailure: "on_failure", v1.RestartPolicyNever: "never"}

func (h *harness) apply(units map[string]restart.Unit) {
	h.Helper()
	if err := h.control.Apply(units); err != nil {
		h.Fatal(err)
	}
}

// wait advances the time of the bubble.
func (h *harness) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ready reports whether the pod's condition Ready is true.
func (h *harness) ready() bool {
	h.Helper()
	target, _ := h.engine.Target("default/web/app")
	state := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	if target.Instance.Phase == probe.Running {
		state = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(target.Instance.Since)}}
	}
	status := v1.ContainerStatus{Name: "app", ContainerID: target.Instance.ID, State: state}
	h.pod.Status.ContainerStatuses, h.pod.Status.InitContainerStatuses = nil, nil
	if len(h.pod.Spec.InitContainers) > 0 {
		main := status
		main.Name = "main" // never probed; runs as long as its sidecar
		h.pod.Status.InitContainerStatuses, status = []v1.ContainerStatus{status}, main
	}
	h.pod.Status.ContainerStatuses = []v1.ContainerStatus{status}
	for _, c := range kube.PodStatus(h.pod, h.engine, time.Now()).Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	h.Error("the pod has no condition Ready")
	return false
}

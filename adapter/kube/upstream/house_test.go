// Package upstream runs pods as the kubelet's end-to-end tests do, and looks at how
// often their containers are restarted and when they are ready. Time is virtual.
// The processes are played, and so are commands; HTTP and TCP are real.
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

	"github.com/sonde-probe/sonde/adapter/kube"
	"github.com/sonde-probe/sonde/adapter/restart"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// machine plays the process of a pod's container app, life after life.
type machine struct {
	// files says of a file from which age of a life on it is there, and until when;
	// 0 is for ever. A file that is not in it is always there. All vanish when the
	// life is asked to end.
	files map[string][2]time.Duration
	dying time.Duration // from being asked to end to the end; as long as is allowed at most

	age atomic.Int64 // as it was at the latest attempt, for servers outside of the bubble

	mu     sync.Mutex
	lives  int
	since  time.Time // of the present life
	asked  bool      // the present life is asked to end
	graces []time.Duration
}

// Run is restart.Driver's.
func (m *machine) Run(ctx context.Context, began func(string), end <-chan time.Duration) restart.Exit {
	m.mu.Lock()
	m.lives++
	m.since, m.asked = time.Now(), false
	began(fmt.Sprint("cri://", m.lives))
	m.mu.Unlock()
	select {
	case grace := <-end:
		m.mu.Lock()
		m.asked = true
		m.graces = append(m.graces, grace)
		m.mu.Unlock()
		select {
		case <-time.After(min(grace, m.dying)):
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	return restart.Exit{Code: 137}
}

// has reports whether a file is there now.
func (m *machine) has(file string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	span, age := m.files[file], time.Since(m.since)
	return !m.asked && age >= span[0] && (span[1] == 0 || age < span[1])
}

func (m *machine) restarts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lives - 1
}

// exec plays a command.
func (m *machine) exec(e kube.Exec) (probe.Handler, error) {
	line := strings.Join(e.Command, " ")
	return probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
		name, file, _ := strings.Cut(line, " ")
		switch {
		case name == "sleep":
			<-ctx.Done() // each sleeps longer than its probe's timeout
			return probe.Fail(probe.ReasonExecTimeout, "killed")
		case name == "true", name == "cat" && m.has(file):
			return probe.Succeed("")
		}
		return probe.Fail(probe.ReasonExecExit, "exit status 1")
	}), nil
}

// grpc plays a server that is well for ten seconds.
func (m *machine) grpc(kube.GRPC) (probe.Handler, error) {
	return probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
		if m.has("/healthz") {
			return probe.Succeed("")
		}
		return probe.Fail("grpc.not_serving", "NOT_SERVING")
	}), nil
}

// noting returns a handler that tells the servers how old the life is. They have no
// part in the bubble: their time is another.
func (m *machine) noting(h probe.Handler) probe.Handler {
	return probe.HandlerFunc(func(ctx context.Context, t probe.Target) probe.Result {
		m.mu.Lock()
		m.age.Store(int64(time.Since(m.since)))
		m.mu.Unlock()
		return h.Probe(ctx, t)
	})
}

func (m *machine) handlers() kube.Handlers {
	return kube.Handlers{
		Exec: m.exec,
		GRPC: m.grpc,
		HTTP: func(c kube.HTTP) (probe.Handler, error) {
			h, err := httpprobe.New(httpprobe.Config{Path: c.Path, Port: c.Port, Headers: c.Headers})
			return m.noting(h), err
		},
		TCP: func(c kube.TCP) (probe.Handler, error) {
			h, err := tcpprobe.New(tcpprobe.Config{Port: c.Port})
			return m.noting(h), err
		},
	}
}

// house is a pod that runs.
type house struct {
	*testing.T
	*machine
	pod     *v1.Pod
	engine  *engine.Engine
	control *restart.Controller
	ended   chan error
}

// inHouse runs a test beside a pod whose only probed container is app.
func inHouse(t *testing.T, manifest string, m *machine, test func(h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, manifest, m)
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

func newHouse(t *testing.T, manifest string, m *machine) *house {
	t.Helper()
	found, errs := kube.Read("pod.yaml", []byte(manifest))
	if len(errs) > 0 || len(found) != 1 {
		t.Fatalf("the manifest has %v, %v\n%s", found, errs, manifest)
	}
	h := &house{T: t, machine: m, pod: found[0].Pod, engine: engine.New(engine.Config{}), ended: make(chan error, 2)}
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

// units has the container app kept alive as the pod says.
func (h *house) units() map[string]restart.Unit {
	containers, err := kube.Containers(h.pod)
	if err != nil {
		h.Fatal(err)
	}
	app := containers[slices.IndexFunc(containers, func(c kube.Container) bool { return c.Name == "app" })]
	var policy restart.Policy
	if err := policy.UnmarshalText([]byte(policies[app.RestartPolicy])); err != nil {
		h.Fatal(err)
	}
	return map[string]restart.Unit{app.Target.Name: {Driver: h.machine, Policy: policy, TerminationGracePeriod: app.TerminationGracePeriod}}
}

var policies = map[v1.RestartPolicy]string{v1.RestartPolicyAlways: "always", v1.RestartPolicyOnFailure: "on_failure", v1.RestartPolicyNever: "never"}

func (h *house) apply(units map[string]restart.Unit) {
	h.Helper()
	if err := h.control.Apply(units); err != nil {
		h.Fatal(err)
	}
}

// wait lets virtual time pass.
func (h *house) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ready reports whether the pod is ready: whether its condition of that name is true.
func (h *house) ready() bool {
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
		main.Name = "main" // is never probed, and runs as long as its sidecar does
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

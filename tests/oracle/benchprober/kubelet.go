package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // events need a scheme that knows pods
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// kubelet is the kubelet's prober with the parts that it depends on.
type kubelet struct {
	status.Manager // only GetPodStatus is ever called

	prober prober.Manager
	looks  atomic.Uint64 // number of attempts, since all containers run
	events atomic.Uint64 // number of attempts that did not succeed

	mu     sync.RWMutex
	status map[types.UID]v1.PodStatus
}

// newKubelet returns a kubelet with registered metrics, which are part of the cost of an
// attempt.
func newKubelet(ctx context.Context) *kubelet {
	metrics.NewKubeRegistry().MustRegister(prober.ProberResults, prober.ProberDuration)
	k := &kubelet{status: map[types.UID]v1.PodStatus{}}
	k.prober = prober.NewManager(k, drained(ctx), drained(ctx), drained(ctx), nil, recorder{k})
	return k
}

// drained returns a results cache whose updates are discarded.
func drained(ctx context.Context) results.Manager {
	cache := results.NewManager()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-cache.Updates():
			}
		}
	}()
	return cache
}

func (k *kubelet) add(ctx context.Context, pod *v1.Pod, st v1.PodStatus) {
	k.mu.Lock()
	k.status[pod.UID] = st
	k.mu.Unlock()
	k.prober.AddPod(ctx, pod)
}

// GetPodStatus is called by a worker before each attempt.
func (k *kubelet) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	k.looks.Add(1)
	k.mu.RLock()
	defer k.mu.RUnlock()
	st, ok := k.status[uid]
	return st, ok
}

func (k *kubelet) counts() counts { return counts{k.looks.Load(), k.events.Load()} }

// recorder counts events.
type recorder struct{ kubelet *kubelet }

// Event counts one event.
func (r recorder) Event(runtime.Object, string, string, string) { r.kubelet.events.Add(1) }

// Eventf counts one event.
func (r recorder) Eventf(runtime.Object, string, string, string, ...any) { r.kubelet.events.Add(1) }

// AnnotatedEventf counts one event.
func (r recorder) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
	r.kubelet.events.Add(1)
}

// WithLogger returns r.
func (r recorder) WithLogger(klog.Logger) record.EventRecorderLogger { return r }

// container is the name of each pod's only container.
const container = "web"

// pod returns a pod with a readiness probe.
func (l load) pod(i int) *v1.Pod {
	name := fmt.Sprintf("shop-%d", i)
	p := &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	switch {
	case l.http:
		p.HTTPGet = &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt(l.port), Scheme: v1.URISchemeHTTP}
	case l.grpc:
		service := ""
		p.GRPC = &v1.GRPCAction{Port: int32(l.port), Service: &service}
	default:
		p.TCPSocket = &v1.TCPSocketAction{Port: intstr.FromInt(l.port)}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "bench", UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: container, ReadinessProbe: p}}},
	}
}

// status returns the status of a running pod.
func (l load) status(i int) v1.PodStatus {
	started := true // as the kubelet reports for a container without a startup probe
	now := metav1.Now()
	return v1.PodStatus{
		Phase:     v1.PodRunning,
		PodIP:     address(i),
		StartTime: &now,
		ContainerStatuses: []v1.ContainerStatus{{
			Name:        container,
			Started:     &started,
			ContainerID: fmt.Sprintf("bench://%d", i),
			State:       v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		}},
	}
}

// address returns the loopback address of a pod, the same as on the other sides of
// tests/bench.
func address(i int) string {
	return fmt.Sprintf("127.%d.%d.%d", 1+i>>16&0x7f, i>>8&0xff, i&0xff)
}

package pods

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// silent has no status of any pod, so the kubelet's workers do nothing.
type silent struct{ status.Manager }

func (silent) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// found is the kubelet's results cache of one kind.
type found map[container.ContainerID]results.Result

func (f found) Get(id container.ContainerID) (r results.Result, ok bool) { r, ok = f[id]; return r, ok }
func (f found) Set(container.ContainerID, results.Result, *v1.Pod)       {}
func (f found) Remove(container.ContainerID)                             {}
func (f found) Updates() <-chan results.Update                           { return nil }

// knowledge has the results of the probes on both sides.
type knowledge struct {
	cached map[probe.Kind]found // the kubelet's
	ours   map[string]engine.TargetStatus
}

func (k knowledge) Target(name string) (engine.TargetStatus, bool) {
	t, ok := k.ours[name]
	return t, ok
}

// note adds a probe of a container and its result to both sides.
func (k knowledge) note(r *rand.Rand, pod *v1.Pod, name string, kind probe.Kind) {
	target := kube.TargetName(pod, name)
	st := engine.Status{ID: probe.ID{Target: target, Kind: kind}, Instance: "cri://" + name}
	id := container.ParseContainerID(st.Instance)
	switch r.IntN(4) {
	case 0: // no result yet, or one of an earlier instance
		st.Instance, st.Verdict = "cri://before", probe.Passing
	case 1:
		k.cached[kind][id] = results.Unknown
	case 2:
		k.cached[kind][id], st.Verdict = results.Failure, probe.Failing
	case 3:
		k.cached[kind][id], st.Verdict = results.Success, probe.Passing
	}
	t := k.ours[target]
	t.Probes = append(t.Probes, st)
	k.ours[target] = t
}

func TestTheSameContainersAreStartedAndReady(t *testing.T) {
	// In the bubble the kubelet's workers must be stopped.
	synctest.Test(t, func(t *testing.T) {
		k := knowledge{map[probe.Kind]found{probe.Startup: {}, probe.Readiness: {}, probe.Liveness: {}}, map[string]engine.TargetStatus{}}
		kubelet := prober.NewManager(silent{}, k.cached[probe.Liveness], k.cached[probe.Readiness], k.cached[probe.Startup], nil, &record.FakeRecorder{})
		n := 0
		seeds(t, func(r *rand.Rand) string {
			for _, cache := range k.cached {
				clear(cache)
			}
			clear(k.ours)
			n++
			pod := probedPod(r, k)
			pod.UID = types.UID(fmt.Sprint(n))
			kubelet.AddPod(t.Context(), pod)
			defer kubelet.RemovePod(pod)
			theirs := *pod.Status.DeepCopy()
			kubelet.UpdatePodStatus(t.Context(), pod, &theirs)
			ours := kube.PodStatus(pod, k, time.Now())
			if got, want := sums(ours), sums(theirs); got != want {
				return fmt.Sprintf("%s\nwith the results %+v is\n%s\nand with us\n%s", show(pod), k.cached, want, got)
			}
			return ""
		})
		time.Sleep(time.Minute)
	})
}

// probedPod returns a random pod with random results of its probes.
func probedPod(r *rand.Rand, k knowledge) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}}
	for i := range 1 + r.IntN(2) {
		c, s := probedContainer(r, k, pod, fmt.Sprint("c", i), true)
		pod.Spec.Containers, pod.Status.ContainerStatuses = append(pod.Spec.Containers, c), append(pod.Status.ContainerStatuses, s)
	}
	for i := range r.IntN(3) {
		policy := maybe[v1.ContainerRestartPolicy](r, "Always")
		c, s := probedContainer(r, k, pod, fmt.Sprint("i", i), policy != nil)
		c.RestartPolicy = policy
		pod.Spec.InitContainers, pod.Status.InitContainerStatuses = append(pod.Spec.InitContainers, c), append(pod.Status.InitContainerStatuses, s)
	}
	return pod
}

func probedContainer(r *rand.Rand, k knowledge, pod *v1.Pod, name string, probed bool) (v1.Container, v1.ContainerStatus) {
	c := v1.Container{Name: name}
	for kind, field := range []**v1.Probe{probe.Startup: &c.StartupProbe, probe.Readiness: &c.ReadinessProbe, probe.Liveness: &c.LivenessProbe} {
		if field != nil && probed && r.IntN(2) == 0 {
			*field = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}, PeriodSeconds: 1}
			k.note(r, pod, name, probe.Kind(kind))
		}
	}
	s := v1.ContainerStatus{Name: name, ContainerID: "cri://" + name, Started: maybe(r, true, false)}
	switch r.IntN(3) {
	case 0:
		s.State.Waiting = &v1.ContainerStateWaiting{}
	case 1:
		s.State.Terminated = &v1.ContainerStateTerminated{ExitCode: r.Int32N(2)}
	case 2:
		s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.Now()}
	}
	return c, s
}

// sums returns started and ready of each container of a status.
func sums(s v1.PodStatus) string {
	text := ""
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		text += fmt.Sprintf("%s started %v ready %v\n", c.Name, *c.Started, c.Ready)
	}
	return text
}

package kube

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Manager probes pods. It has the methods of the kubelet's prober manager, for a
// caller with a sync loop like the kubelet's. Only the manager may call the engine's
// Apply. Its methods are safe for concurrent use by multiple goroutines, and do not
// wait for attempts. Adding or removing a pod takes time in proportion to the number
// of all probes: about a millisecond for a thousand.
//
// It differs from the kubelet's manager in four points: a pod is added completely or
// not at all (K5 in docs/kubelet.md), stopping a probe cancels its attempt in flight
// (K9, K10), sidecars are stopped like other containers (K7), and stopping a startup
// probe does not make its container started (K99).
type Manager struct {
	engine   *engine.Engine
	handlers Handlers

	podsMu sync.Mutex // guards pods and what they point to
	pods   map[types.UID]*managedPod
}

// managedPod is a pod as it was when it was added (K6).
type managedPod struct {
	pod     *v1.Pod
	set     probe.Set
	stopped bool // StopLivenessAndStartup was called
}

// NewManager returns a Manager without pods. The engine is run by the caller.
func NewManager(e *engine.Engine, h Handlers) *Manager {
	return &Manager{engine: e, handlers: h, pods: map[types.UID]*managedPod{}}
}

// AddPod adds the probes of a pod. A pod with a known UID stays as it was when it was
// added (K4 and K6 in docs/kubelet.md). A pod with the name of another one removes
// that one's probes. The pod's status is reported as by UpdatePodStatus.
//
// On an error, which is Set's, nothing is added.
func (m *Manager) AddPod(pod *v1.Pod) error {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	if m.pods[pod.UID] != nil {
		return nil
	}
	set, err := Set(pod, m.handlers)
	if err != nil {
		return err
	}
	for uid, other := range m.pods {
		if TargetName(other.pod, "") == TargetName(pod, "") {
			delete(m.pods, uid)
		}
	}
	added := &managedPod{pod: Default(pod), set: set}
	m.pods[pod.UID] = added
	if err := m.apply(); err != nil {
		delete(m.pods, pod.UID)
		return err
	}
	m.report(added, &pod.Status)
	return nil
}

// apply applies the probes of all pods to the engine.
func (m *Manager) apply() error {
	all := probe.Set{}
	for _, p := range m.pods {
		maps.Copy(all, p.set)
	}
	_, err := m.engine.Apply(all)
	return err
}

// RemovePod removes the probes of a pod, if it is known.
func (m *Manager) RemovePod(pod *v1.Pod) {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	m.remove(pod.UID)
}

// CleanupPods removes the probes of all pods that are not desired.
func (m *Manager) CleanupPods(desired map[types.UID]sets.Empty) {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	for uid := range m.pods {
		if _, wanted := desired[uid]; !wanted {
			m.remove(uid)
		}
	}
}

func (m *Manager) remove(uid types.UID) {
	gone := m.pods[uid]
	if gone == nil {
		return
	}
	delete(m.pods, uid)
	_ = m.apply() // cannot fail: a subset of what was applied
	for _, in := range Instances(gone.pod) {
		m.engine.Report(probe.Instance{Target: in.Target}) // phase Absent: the engine removes the instance
	}
}

// StopLivenessAndStartup stops the liveness and startup probes of a terminating pod,
// so that they do not restart its containers. Readiness is probed until RemovePod. A
// started container stays started.
func (m *Manager) StopLivenessAndStartup(pod *v1.Pod) {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	p := m.pods[pod.UID]
	if p == nil {
		return
	}
	p.stopped = true
	m.report(p, &p.pod.Status)
}

// UpdatePodStatus reports the instances of a status to the engine, and sets Started
// and Ready of each container in the status (K98 and K113 in docs/kubelet.md). Call
// it whenever a status was generated, and when the engine's Subscribe reports a
// change. A pod that is not known has no probes: its running containers are started
// and ready.
//
// PodStatus sets the conditions too.
func (m *Manager) UpdatePodStatus(pod *v1.Pod, status *v1.PodStatus) {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	p := m.pods[pod.UID]
	if p == nil {
		setContainers(pod, status, noTargets{})
		return
	}
	m.report(p, status)
	setContainers(p.pod, status, m.engine)
	m.triggerReadiness(p, status)
}

// noTargets is a Targets without targets.
type noTargets struct{}

func (noTargets) Target(string) (engine.TargetStatus, bool) { return engine.TargetStatus{}, false }

// report reports the pod's address and its containers' instances to the engine.
func (m *Manager) report(p *managedPod, status *v1.PodStatus) {
	moved := p.pod.Status.PodIP != status.PodIP
	p.pod.Status = *status.DeepCopy()
	if moved {
		for id, one := range p.set {
			one.Target.Address = status.PodIP
			p.set[id] = one
		}
		_ = m.apply() // cannot fail: only addresses have changed
	}
	for _, in := range Instances(p.pod) {
		in.Terminating = in.Terminating || p.stopped
		m.engine.Report(in)
	}
}

// triggerReadiness triggers the readiness probe of each container that has started
// and is not ready (K96). It does so only for probes with the kubelet's compatibility.
func (m *Manager) triggerReadiness(p *managedPod, status *v1.PodStatus) {
	for _, s := range slices.Concat(status.ContainerStatuses, status.InitContainerStatuses) {
		id := probe.ID{Target: TargetName(p.pod, s.Name), Kind: probe.Readiness}
		if s.Ready || s.Started == nil || !*s.Started {
			continue
		}
		if st, found := m.engine.Status(id); found && st.Rule.Compatibility == probe.Kubelet {
			m.engine.Trigger(id)
		}
	}
}

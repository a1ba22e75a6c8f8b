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

// Manager probes pods by the verbs of the kubelet's prober manager, for who has
// a loop that calls them. The engine's set is its own: nobody else may call the
// engine's Apply. Its methods may be called from several goroutines at once, and
// wait for no attempt. Adding or removing a pod takes time in proportion to the
// probes of all pods, about a millisecond for a thousand.
//
// It differs from the kubelet's where that surprises: a pod is added as a whole or
// not at all (K5), an attempt in flight is cancelled when its probe is stopped (K9,
// K10), sidecars are stopped like all others (K7), and stopping a startup probe does
// not make its container started (K99).
type Manager struct {
	engine   *engine.Engine
	handlers Handlers

	mu   sync.Mutex
	pods map[types.UID]*known
}

// known is a pod as it was when it was added (K6).
type known struct {
	pod    *v1.Pod
	set    probe.Set
	ending bool // StopLivenessAndStartup was called
}

// NewManager returns a Manager without pods. The engine is run by the caller.
func NewManager(e *engine.Engine, h Handlers) *Manager {
	return &Manager{engine: e, handlers: h, pods: map[types.UID]*known{}}
}

// AddPod adds the probes of a pod. A pod whose UID is known stays as it was when
// it was added (K4, K6); one that takes the name of another ends that one's
// probes. The pod's status is reported as UpdatePodStatus would.
//
// The error is Set's; then nothing is added.
func (m *Manager) AddPod(pod *v1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	added := &known{pod: Default(pod), set: set}
	m.pods[pod.UID] = added
	if err := m.apply(); err != nil {
		delete(m.pods, pod.UID)
		return err
	}
	m.report(added, &pod.Status)
	return nil
}

// apply has the engine probe what all pods ask for.
func (m *Manager) apply() error {
	all := probe.Set{}
	for _, k := range m.pods {
		maps.Copy(all, k.set)
	}
	_, err := m.engine.Apply(all)
	return err
}

// RemovePod removes the probes of a pod. A pod that is not known is no mistake.
func (m *Manager) RemovePod(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(pod.UID)
}

// CleanupPods removes the probes of every pod that is not in the set.
func (m *Manager) CleanupPods(desired map[types.UID]sets.Empty) {
	m.mu.Lock()
	defer m.mu.Unlock()
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
	_ = m.apply() // what is left was applied before
	for _, in := range Instances(gone.pod) {
		m.engine.Report(probe.Instance{Target: in.Target}) // absent: the engine forgets it
	}
}

// StopLivenessAndStartup ends the liveness and startup probes of a pod that is
// about to end, so that none ends a container on its way. Readiness goes on until
// RemovePod. What had started stays so.
func (m *Manager) StopLivenessAndStartup(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.pods[pod.UID]
	if k == nil {
		return
	}
	k.ending = true
	m.report(k, &k.pod.Status)
}

// UpdatePodStatus tells the engine what a status says of the containers' lives,
// and sets Started and Ready of each in it (K98, K113). Call it whenever a status
// was made, and when the engine's Subscribe reports a change. A pod that is not
// known has no probes: what runs is started and ready.
//
// PodStatus sets the conditions, too.
func (m *Manager) UpdatePodStatus(pod *v1.Pod, status *v1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.pods[pod.UID]
	if k == nil {
		fill(pod, status, nothing{})
		return
	}
	m.report(k, status)
	fill(k.pod, status, m.engine)
	m.hurry(k, status)
}

// nothing knows no target.
type nothing struct{}

func (nothing) Target(string) (engine.TargetStatus, bool) { return engine.TargetStatus{}, false }

// report tells the engine of the pod's address and of its containers' lives.
func (m *Manager) report(k *known, status *v1.PodStatus) {
	moved := k.pod.Status.PodIP != status.PodIP
	k.pod.Status = *status.DeepCopy()
	if moved {
		for id, p := range k.set {
			p.Target.Address = status.PodIP
			k.set[id] = p
		}
		_ = m.apply() // only addresses differ from what was applied before
	}
	for _, in := range Instances(k.pod) {
		in.Terminating = in.Terminating || k.ending
		m.engine.Report(in)
	}
}

// hurry asks for an attempt of each readiness probe whose container has started
// and is not ready, in the kubelet's compatibility (K96). Else the engine's own
// turns do.
func (m *Manager) hurry(k *known, status *v1.PodStatus) {
	for _, s := range slices.Concat(status.ContainerStatuses, status.InitContainerStatuses) {
		id := probe.ID{Target: TargetName(k.pod, s.Name), Kind: probe.Readiness}
		if s.Ready || s.Started == nil || !*s.Started {
			continue
		}
		if p, found := m.engine.Status(id); found && p.Rule.Compatibility == probe.Kubelet {
			m.engine.Trigger(id)
		}
	}
}

package kube

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Manager probes pods. It has the methods of the kubelet's prober manager, for a caller with a sync loop like the
// kubelet's. Do not call the engine's Apply, which would remove the pods' probes; use Change for the engine's other probes.
// The manager's methods are safe for concurrent use by multiple goroutines, and do not wait for attempts.
//
// Pods are identified by their UIDs. The targets of a pod are named as by TargetName. While another pod with the same name
// is known, such as one that is being deleted, they are named "namespace/pod@uid/container". A pod keeps its targets' names
// until it is removed.
//
// The manager differs from the kubelet's in these points: a pod is added completely or not at all (K5 in docs/kubelet.md);
// stopping a probe cancels its attempt in flight (K9, K10); sidecars are stopped like other containers (K7); a container
// whose startup probe has failed does not become started when that probe is stopped (K99), nor does a container whose pod
// is removed (K13). A container whose startup probe is undecided becomes started when the probe is stopped only with the
// kubelet's compatibility.
type Manager struct {
	engine   *engine.Engine
	handlers Handlers

	podsMu sync.Mutex // guards pods and what they point to
	pods   map[types.UID]*managedPod
}

// managedPod is a pod as of the time when it was added (K6).
type managedPod struct {
	pod     *v1.Pod
	name    podName // of its targets
	set     probe.Set
	stopped bool // StopLivenessAndStartup was called
}

// NewManager returns a Manager without pods. The caller runs the engine.
func NewManager(e *engine.Engine, h Handlers) *Manager {
	return &Manager{engine: e, handlers: h, pods: map[types.UID]*managedPod{}}
}

// AddPod adds the probes of a pod. A pod with a known UID stays as first added (K4 and K6 in docs/kubelet.md). The pod's
// status is reported as by UpdatePodStatus.
//
// After a restart of the caller, pod.Status is the last known status, as the kubelet reads it from the API server. A
// container that still has the ID in its status and was started is not probed for startup again, and a container that was
// ready stays ready until its readiness probe reaches its failure threshold (K163 to K166).
//
// If AddPod returns an error, which is that of Set, nothing has changed.
func (m *Manager) AddPod(pod *v1.Pod) error {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	if m.pods[pod.UID] != nil {
		return nil
	}
	name := m.unusedName(pod)
	set, err := setOf(pod, name, m.handlers)
	if err != nil {
		return err
	}
	added := &managedPod{pod: Default(pod), name: name, set: set}
	if _, err := m.engine.Change(engine.Change{Set: set, Memories: added.memories()}); err != nil {
		return err
	}
	m.pods[pod.UID] = added
	for _, in := range instancesOf(added.pod, name) {
		m.engine.Report(in)
	}
	return nil
}

// unusedName returns a prefix for the names of a pod's targets that no other pod uses.
func (m *Manager) unusedName(pod *v1.Pod) podName {
	name := nameOf(pod)
	for _, other := range m.pods {
		if other.name == name {
			return name + "@" + podName(pod.UID) // a pod's name cannot contain an @
		}
	}
	return name
}

// memories returns the probes' memories according to the pod's status: the probes of a container that was started and ready
// when the status was stored resume as passing (K164, K166).
func (p *managedPod) memories() map[probe.ID]engine.Memory {
	all := map[probe.ID]engine.Memory{}
	for _, in := range instancesOf(p.pod, p.name) {
		if in.Phase != probe.Running {
			continue
		}
		s, _ := statusOf(&p.pod.Status, p.name.container(in.Target))
		passed := engine.Memory{
			State:   verdict.State{Instance: in.ID, Verdict: probe.Passing},
			Started: s.Started != nil && *s.Started, InstanceSince: in.Since,
		}
		if id := (probe.ID{Target: in.Target, Kind: probe.Readiness}); s.Ready && p.has(id) {
			all[id] = passed
		}
		if id := (probe.ID{Target: in.Target, Kind: probe.Startup}); passed.Started && p.has(id) {
			passed.State.OnHold = true
			all[id] = passed
		}
	}
	return all
}

func (p *managedPod) has(id probe.ID) bool { _, found := p.set[id]; return found }

// RemovePod removes the probes of a pod. It does nothing if the pod is not known.
func (m *Manager) RemovePod(pod *v1.Pod) {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	m.remove(pod.UID)
}

// CleanupPods removes the probes of all pods that are not in desired.
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
	_, _ = m.engine.Change(engine.Change{Remove: slices.Collect(maps.Keys(gone.set))}) // cannot fail: it adds nothing
	for _, in := range instancesOf(gone.pod, gone.name) {
		m.engine.Report(probe.Instance{Target: in.Target}) // phase Absent: the engine removes the instance
	}
}

// StopLivenessAndStartup stops the liveness and startup probes of a terminating pod, so that they do not restart its
// containers. Readiness is probed until RemovePod. The containers keep their started and ready states. With the kubelet's
// compatibility, a container whose startup probe is undecided becomes started (K99).
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

// UpdatePodStatus reports the instances of a status to the engine, and sets Started and Ready of each container in the
// status (K98 and K113 in docs/kubelet.md). Call it whenever a status is generated, and when the engine's Subscribe reports
// a change.
//
// A pod may be unknown because it was not added yet, or was removed. Its running containers with probes keep Started and
// Ready of the status; running containers without probes are started and ready.
//
// PodStatus also sets the conditions.
func (m *Manager) UpdatePodStatus(pod *v1.Pod, status *v1.PodStatus) {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	p := m.pods[pod.UID]
	if p == nil {
		setContainers(pod, nameOf(pod), status, noTargets{})
		return
	}
	m.report(p, status)
	setContainers(p.pod, p.name, status, m.engine)
	m.triggerReadiness(p, status)
}

// PodStatus returns the status of a pod like the function PodStatus, with the results of the pod with this UID. It does not
// report the status: call UpdatePodStatus first.
func (m *Manager) PodStatus(pod *v1.Pod, now time.Time) v1.PodStatus {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	if p := m.pods[pod.UID]; p != nil {
		return statusFrom(pod, p.name, m.engine, now)
	}
	return statusFrom(pod, nameOf(pod), noTargets{}, now)
}

// TargetName returns the name of a container's target in the engine, and whether the
// pod is known.
func (m *Manager) TargetName(pod *v1.Pod, container string) (name string, known bool) {
	m.podsMu.Lock()
	defer m.podsMu.Unlock()
	p := m.pods[pod.UID]
	if p == nil {
		return "", false
	}
	return p.name.target(container), true
}

// noTargets is a Targets without targets.
type noTargets struct{}

func (noTargets) Target(string) (engine.TargetStatus, bool) { return engine.TargetStatus{}, false }

// report reports a pod's address and the instances of its containers to the engine.
func (m *Manager) report(p *managedPod, status *v1.PodStatus) {
	moved := p.pod.Status.PodIP != status.PodIP
	p.pod.Status = *status.DeepCopy()
	if moved {
		for id, one := range p.set {
			one.Target.Address = status.PodIP
			p.set[id] = one
		}
		_, _ = m.engine.Change(engine.Change{Set: p.set}) // cannot fail: only addresses have changed
	}
	for _, in := range instancesOf(p.pod, p.name) {
		in.Terminating = in.Terminating || p.stopped
		m.engine.Report(in)
	}
}

// triggerReadiness triggers the readiness probe of each container that has started
// and is not ready (K96). It does so only for probes with the kubelet's compatibility.
func (m *Manager) triggerReadiness(p *managedPod, status *v1.PodStatus) {
	for _, s := range slices.Concat(status.ContainerStatuses, status.InitContainerStatuses) {
		id := probe.ID{Target: p.name.target(s.Name), Kind: probe.Readiness}
		if s.Ready || s.Started == nil || !*s.Started {
			continue
		}
		if st, found := m.engine.Status(id); found && st.Rule.Compatibility == probe.Kubelet {
			m.engine.Trigger(id)
		}
	}
}

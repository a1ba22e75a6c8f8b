package oracle

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // events need a scheme that knows pods
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/sonde-probe/sonde/probe"
)

// kubelet is the kubelet's side: its prober manager, and the parts of the kubelet that the prober uses.
type kubelet struct {
	status.Manager // only GetPodStatus is ever called

	ctx     context.Context
	prober  prober.Manager
	metrics metrics.KubeRegistry
	web     int         // the port of the http server
	updated chan update // large enough to never be full

	mu   sync.Mutex
	pods map[types.UID]*kubePod
}

// kubePod is a pod of the kubelet's side.
type kubePod struct {
	play *play
	spec *v1.Pod

	syncing   sync.Mutex // one sync at a time; guards instances
	instances map[string]instance

	mu      sync.Mutex
	status  v1.PodStatus
	known   bool // the status manager has a status
	looks   map[int]int
	delayed time.Time         // calls before this time do not count: some probe waits for its initial delay
	ended   bool              // its phase is Succeeded
	leaving map[probeKey]bool // workers that were stopped, or stop at their next look
	cached  map[probeKey]bool // probes with a result in the cache; none for a worker that has stopped
}

// newKubelet returns the kubelet's side. It is stopped when the test ends.
func newKubelet(t testing.TB) *kubelet {
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{})) // a logger that logs nothing
	k := &kubelet{
		ctx: ctx, pods: map[types.UID]*kubePod{}, updated: make(chan update, 1<<16),
		metrics: metrics.NewKubeRegistry(),
	}
	k.metrics.MustRegister(prober.ProberResults, prober.ProberDuration)
	var working sync.WaitGroup
	caches := map[probe.Kind]*cache{}
	for kind := probe.Startup; kind <= probe.Liveness; kind++ {
		c := newCache(k, kind)
		caches[kind] = c
		working.Go(func() { c.drain(ctx) })
	}
	working.Go(k.loop)
	t.Cleanup(func() {
		cancel()
		working.Wait()
	})
	k.prober = prober.NewManager(k, caches[probe.Liveness], caches[probe.Readiness], caches[probe.Startup], runner{k}, recorder{k})
	t.Cleanup(func() { k.prober.CleanupPods(nil) }) // nothing else stops its workers
	k.web = serve(t, func(at probeKey) byte { return k.pod(at.script).play.try(at, unnumbered) })
	return k
}

// newSide adds a script to the kubelet.
func (k *kubelet) newSide(t testing.TB, s *Script) side {
	p := newPlay(s)
	ports := makePorts(t, s, func(at probeKey) { p.kernel(at, Success) })
	pod := &kubePod{
		play: p, spec: podSpec(s, k.web, ports), instances: map[string]instance{},
		looks: map[int]int{}, leaving: map[probeKey]bool{}, cached: map[probeKey]bool{},
	}
	p.moved = pod.stir
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[types.UID(s.Name)] = pod
	return &kubeSide{k, pod, ports}
}

func (k *kubelet) pod(script string) *kubePod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[types.UID(script)]
}

// GetPodStatus is called by the workers. It records which workers have called it since the last change.
func (k *kubelet) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	pod := k.pod(string(uid))
	pod.mu.Lock()
	defer pod.mu.Unlock()
	if now := time.Now(); !now.Before(pod.delayed) {
		pod.looks[goroutine()]++
	}
	return pod.status, pod.known
}

// goroutine returns the ID of the calling goroutine, which identifies a worker.
func goroutine() int {
	buffer := make([]byte, 64)
	buffer = buffer[:runtime.Stack(buffer, false)]
	n, _ := strconv.Atoi(string(bytes.Fields(buffer)[1]))
	return n
}

// stir clears the recorded calls after a change.
func (p *kubePod) stir() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.looks)
}

// sync computes the pod's status from its containers and the cached results.
func (k *kubelet) sync(p *kubePod) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	p.mu.Lock()
	st := podStatus(p.play.script, p.instances, p.status)
	p.mu.Unlock()
	k.prober.UpdatePodStatus(k.ctx, p.spec, &st)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.known = st, true
}

// change applies a step to a container and syncs the pod.
func (k *kubelet) change(p *kubePod, step Step) {
	p.syncing.Lock()
	c := p.play.script.container(step.Container)
	p.instances[c.Name] = p.instances[c.Name].after(step, p.play.script.follows(c, step.Exit))
	p.mu.Lock()
	p.delayed = delayed(p.play.script, p.instances)
	p.mu.Unlock()
	p.syncing.Unlock()
	k.sync(p)
	p.stir()
}

// delayed returns the end of the last initial delay of the running containers.
func delayed(s *Script, instances map[string]instance) (until time.Time) {
	for _, c := range s.Containers {
		for _, check := range c.Checks {
			if l := instances[c.Name]; l.phase == probe.Running {
				until = later(until, l.since.Add(time.Duration(check.Delay)*time.Second))
			}
		}
	}
	return until
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// settled reports whether each running worker has read the pod's status since the start
// of the step and since the last used answer: once, or twice when answers are left, which
// shows that no attempt will use them.
func (p *kubePod) settled() bool {
	looks := p.looksNeeded()
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for _, n := range p.looks {
		if n >= looks {
			done++
		}
	}
	return done >= p.workers() && p.startsDeleted()
}

// startsDeleted reports whether each running container has started, in a pod that was added while it was being deleted: its startup
// worker stops at its first look (K38). The caller holds mu.
func (p *kubePod) startsDeleted() bool {
	for _, s := range slices.Concat(p.status.ContainerStatuses, p.status.InitContainerStatuses) {
		if p.play.script.Deleting && !p.ended && s.State.Running != nil && (s.Started == nil || !*s.Started) {
			return false
		}
	}
	return true
}

// workers returns the known number of running workers. The caller holds mu.
func (p *kubePod) workers() int {
	n := 0
	for at := range p.play.lines {
		if !p.leaving[at] || p.cached[at] {
			n++
		}
	}
	return n
}

func (p *kubePod) looksNeeded() int {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	for at := range p.play.lines {
		if !p.ended && p.instances[at.container].phase == probe.Running && !p.play.used(at) {
			return 2
		}
	}
	return 1
}

// counts reads a probe's counters.
func (k *kubelet) counts(at probeKey) (good, bad uint64) {
	labels := prometheus.Labels{
		"probe_type": kubeKind(at.kind), "container": at.container, "pod": at.script, "namespace": namespace, "pod_uid": at.script,
	}
	read := func(result string) uint64 {
		labels["result"] = result
		var m dto.Metric
		if err := prober.ProberResults.CounterVec.With(labels).Write(&m); err != nil {
			return 0
		}
		return uint64(m.GetCounter().GetValue())
	}
	return read("successful"), read("failed")
}

// kubeSide is one script on the kubelet's side.
type kubeSide struct {
	kubelet *kubelet
	pod     *kubePod
	ports   map[probeKey]*tcpPort
}

func (s *kubeSide) played() *play { return s.pod.play }

func (s *kubeSide) do(step Step) error {
	switch step.Do {
	case Add, Sync:
		s.kubelet.prober.AddPod(s.kubelet.ctx, s.pod.spec)
		s.kubelet.sync(s.pod)
		s.pod.come()
		s.pod.leave(func(at probeKey, _ *Container) bool {
			return s.pod.spec.DeletionTimestamp != nil && at.kind != probe.Readiness
		})
	case Answer:
		return setPorts(s.pod.play.script.Name, s.ports, step)
	case Terminate:
		s.kubelet.prober.StopLivenessAndStartup(s.pod.spec)
		s.pod.leave(func(at probeKey, c *Container) bool { return at.kind != probe.Readiness && !c.Sidecar })
	case Remove:
		s.kubelet.prober.RemovePod(s.pod.spec)
		s.pod.leave(func(probeKey, *Container) bool { return true })
	case Cleanup:
		s.kubelet.prober.CleanupPods(s.kubelet.others(s.pod))
		s.pod.leave(func(probeKey, *Container) bool { return true })
	case Succeed:
		s.pod.succeed()
		s.pod.leave(func(probeKey, *Container) bool { return true })
	default:
		s.kubelet.change(s.pod, step)
		s.pod.leave(func(at probeKey, _ *Container) bool { return s.pod.instances[at.container].phase == probe.Gone })
	}
	return nil
}

// come records that all workers run.
func (p *kubePod) come() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.leaving)
	clear(p.looks)
}

// leave records which workers stop.
func (p *kubePod) leave(leaves func(probeKey, *Container) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.play.lines {
		if leaves(at, p.play.script.container(at.container)) {
			p.leaving[at] = true
		}
	}
}

// others returns all pods but one.
func (k *kubelet) others(p *kubePod) map[types.UID]sets.Empty {
	k.mu.Lock()
	defer k.mu.Unlock()
	wanted := map[types.UID]sets.Empty{}
	for uid, pod := range k.pods {
		if pod != p {
			wanted[uid] = sets.Empty{}
		}
	}
	return wanted
}

// succeed sets the pod's phase to Succeeded.
func (p *kubePod) succeed() {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.status.Phase = v1.PodSucceeded
	clear(p.looks)
}

// record records started and ready of the pod's containers, and the counters of its probes.
func (s *kubeSide) record(step Step) {
	p := s.pod
	s.kubelet.sync(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.play.lines {
		good, bad := s.kubelet.counts(at)
		p.play.count(at, step, good, bad)
	}
	for _, c := range p.play.script.Containers {
		if cs := statusOf(p.status, c.Name); cs != nil {
			left := !p.cached[probeKey{p.play.script.Name, c.Name, probe.Readiness}]
			gone := cs.State.Terminated != nil && left && p.play.script.showsEnd(&c, instance{})
			p.play.add(c.Name, flagsOf(cs.Started != nil && *cs.Started, cs.Ready, gone))
		}
	}
}

func (s *kubeSide) settled() bool { return s.pod.settled() }

package times

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-probe/sonde/probe"
)

// app is a program in a container, as a function of its age.
type app struct {
	up   time.Duration // it is healthy from this age on; never: not at all
	down time.Duration // until this age; 0: forever
	back time.Duration // and again from this age on; 0: not again
	took time.Duration // response time; if longer than the timeout: no response
}

const never = 1000 * time.Hour

func (a app) isHealthy(age time.Duration) bool {
	isBack := a.back > 0 && age >= a.back
	return age >= a.up && (a.down == 0 || age < a.down || isBack)
}

// pod is a pod with one container, which runs once: it is not restarted after it was killed.
type pod struct {
	node *node
	spec *v1.Pod
	app  app

	syncing sync.Mutex // one sync at a time

	mu       sync.Mutex // guards all below
	status   v1.PodStatus
	started  time.Time // of the container; zero before
	killed   time.Duration
	isKilled bool
	attempts map[probe.Kind][]time.Duration // the ages at which they began
	flags    []flag
}

// flag has started and ready of the container from an age on.
type flag struct {
	age            time.Duration
	started, ready bool
}

// proberManager has the methods of the kubelet's prober manager.
type proberManager interface {
	AddPod(*v1.Pod)
	StopLivenessAndStartup(*v1.Pod)
	RemovePod(*v1.Pod)
	UpdatePodStatus(*v1.Pod, *v1.PodStatus)
	end() // removes all pods, and returns when every goroutine has exited
}

// node is the environment of a prober manager in the kubelet: pods, their statuses, and the loop that syncs a pod and kills its
// container when a probe requires it.
type node struct {
	prober proberManager
	mu     sync.Mutex
	pods   map[types.UID]*pod
}

// side creates a prober manager for a node.
type side func(*testing.T, *node) proberManager

// newNode returns a node whose prober manager is a minute old, so that the kubelet's attempts have no random delay (K22).
func newNode(t *testing.T, s side) *node {
	n := &node{pods: map[types.UID]*pod{}}
	n.prober = s(t, n)
	time.Sleep(time.Minute)
	return n
}

// restart replaces the prober manager by a new one, as after a restart of the kubelet. The pods' containers continue. The pods are
// added with their stored status.
func (n *node) restart(t *testing.T, s side, outage time.Duration) {
	n.prober.end()
	time.Sleep(outage)
	n.prober = s(t, n)
	for _, p := range n.pods {
		p.mu.Lock()
		p.spec.Status = *p.status.DeepCopy()
		ready := v1.ConditionFalse
		if p.status.ContainerStatuses[0].Ready {
			ready = v1.ConditionTrue
		}
		p.spec.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: ready}}
		clear(p.attempts)
		p.mu.Unlock()
		p.sync() // the kubelet computes the status before it adds the pod
		n.prober.AddPod(p.spec)
		p.sync()
	}
}

// add adds a pod. Its container starts after a while.
func (n *node) add(spec *v1.Pod, a app) *pod {
	p := &pod{node: n, spec: spec, app: a, attempts: map[probe.Kind][]time.Duration{}}
	pulling := metav1.NewTime(time.Now().Add(-time.Hour)) // its images; initial delays are not measured from this time (K39)
	p.status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", StartTime: &pulling}
	n.mu.Lock()
	n.pods[spec.UID] = p
	n.mu.Unlock()
	n.prober.AddPod(spec)
	p.sync()
	return p
}

func (n *node) pod(uid types.UID) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[uid]
}

const containerName = "app"

// id returns the ID of the pod's container.
func (p *pod) id() string { return "oracle://" + string(p.spec.UID) }

// start starts the container.
func (p *pod) start() {
	p.mu.Lock()
	p.started = time.Now()
	p.mu.Unlock()
	p.sync()
}

func (p *pod) age() time.Duration { return time.Since(p.started) }

// sync computes and stores the status, as the kubelet does after each change.
func (p *pod) sync() {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	p.mu.Lock()
	status := *p.status.DeepCopy()
	if !p.started.IsZero() {
		c := v1.ContainerStatus{Name: containerName, ContainerID: p.id()}
		since := metav1.NewTime(p.started.Truncate(time.Second)) // K118
		if p.isKilled {
			c.State.Terminated = &v1.ContainerStateTerminated{ExitCode: 137, FinishedAt: since}
		} else {
			c.State.Running = &v1.ContainerStateRunning{StartedAt: since}
			if len(status.ContainerStatuses) > 0 {
				c.Started = status.ContainerStatuses[0].Started
				c.Ready = status.ContainerStatuses[0].Ready
			}
		}
		status.ContainerStatuses = []v1.ContainerStatus{c}
	}
	p.mu.Unlock()
	p.node.prober.UpdatePodStatus(p.spec, &status)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
	if len(status.ContainerStatuses) == 0 {
		return
	}
	c := status.ContainerStatuses[0]
	f := flag{p.age(), c.Started != nil && *c.Started, c.Ready}
	if last := len(p.flags) - 1; last < 0 || p.flags[last].started != f.started || p.flags[last].ready != f.ready {
		p.flags = append(p.flags, f)
	}
}

// kill kills the container because a probe failed.
func (p *pod) kill() {
	p.mu.Lock()
	if p.isKilled || p.started.IsZero() {
		p.mu.Unlock()
		return
	}
	p.isKilled, p.killed = true, p.age()
	p.mu.Unlock()
	p.sync()
}

// attempt simulates an attempt of a probe: ok says whether the app was healthy when the attempt began, and late whether it did not
// respond before the timeout.
func (p *pod) attempt(ctx context.Context, kind probe.Kind, timeout time.Duration) (ok, late bool) {
	p.mu.Lock()
	age := p.age()
	p.attempts[kind] = append(p.attempts[kind], age)
	p.mu.Unlock()
	late = p.app.took > timeout
	timer := time.NewTimer(min(p.app.took, timeout))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.app.isHealthy(age), late
}

// last returns the container's last flags.
func (p *pod) last() flag {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flags) == 0 {
		return flag{}
	}
	return p.flags[len(p.flags)-1]
}

// inBubble runs a test on a side, in virtual time. Nothing is late there.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// wait advances the bubble's time.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// podSpec returns a pod with these probes, whose commands name the pod and the kind.
func podSpec(name, uid string, probes map[probe.Kind]v1.Probe) *v1.Pod {
	c := v1.Container{Name: containerName, Image: "none"}
	for kind, p := range probes {
		p.Exec = &v1.ExecAction{Command: []string{uid, kind.String(), fmt.Sprint(p.TimeoutSeconds)}}
		switch kind {
		case probe.Startup:
			c.StartupProbe = &p
		case probe.Readiness:
			c.ReadinessProbe = &p
		case probe.Liveness:
			c.LivenessProbe = &p
		}
	}
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "times", UID: types.UID(uid)}}
	spec.Spec.RestartPolicy = v1.RestartPolicyAlways
	spec.Spec.Containers = []v1.Container{c}
	return spec
}

// numbers returns a probe with a delay, period, timeout, and the thresholds of successes and failures.
func numbers(delay, period, timeout, success, failure int32) v1.Probe {
	return v1.Probe{InitialDelaySeconds: delay, PeriodSeconds: period, TimeoutSeconds: timeout, SuccessThreshold: success, FailureThreshold: failure}
}

package oracle

import (
	"context"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// adapted is the side of package kube: an engine with pods and their statuses, used through the methods of the kubelet's prober
// manager.
type adapted struct {
	*sonde
	manager *kube.Manager

	mu   sync.Mutex
	pods map[string]*adaptedPod
}

// newAdapted returns the side of package kube. It is stopped when the test ends.
func newAdapted(t testing.TB) *adapted {
	a := &adapted{sonde: newSonde(t, probe.Kubelet), pods: map[string]*adaptedPod{}}
	a.manager = kube.NewManager(a.engine, kube.Handlers{
		"exec": func(e kube.Action) (probe.Handler, error) { return a.handler(probeKeyOfCommand(e.Command)) },
		"http": func(h kube.Action) (probe.Handler, error) { return a.handler(probeKeyOf(h.Path)) },
		"tcp":  func(h kube.Action) (probe.Handler, error) { return a.handler(a.probeKeyOfPort(h.Port)) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var syncing sync.WaitGroup
	syncing.Go(func() { a.loop(ctx) })
	t.Cleanup(func() {
		cancel()
		syncing.Wait()
	})
	return a
}

// loop syncs the pod of each probe that has changed.
func (a *adapted) loop(ctx context.Context) {
	changes := a.engine.Subscribe()
	defer changes.Close()
	for {
		st, err := changes.Next(ctx)
		if err != nil {
			return
		}
		if p := a.pod(scriptOf(st.ID)); p != nil {
			p.sync()
		}
	}
}

func (a *adapted) pod(script string) *adaptedPod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[script]
}

// newSide adds a script to the adapter.
func (a *adapted) newSide(t testing.TB, s *Script) side {
	bare := a.sonde.newSide(t, s).(*sondePod)
	p := &adaptedPod{sondePod: bare, side: a, spec: podSpec(s, a.web, bare.ports)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods[s.Name] = p
	return p
}

// handler returns the handler of a scripted probe.
func (a *adapted) handler(at probeKey, ok bool) (probe.Handler, error) {
	if !ok {
		return nil, &probe.FieldError{Field: "probe", Problem: "is in no script"}
	}
	return a.pod(at.script).probes[at].Handler, nil
}

func (a *adapted) probeKeyOfPort(port string) (probeKey, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pods {
		for at, d := range p.ports {
			if d.port() == port {
				return at, true
			}
		}
	}
	return probeKey{}, false
}

// adaptedPod is one script on the side of package kube.
type adaptedPod struct {
	*sondePod
	side *adapted
	spec *v1.Pod

	syncing sync.Mutex // guards the fields below, and instances
	status  v1.PodStatus
}

func (p *adaptedPod) do(step Step) error {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	manager := p.side.manager
	switch step.Do {
	case Add, Sync:
		if err := manager.AddPod(p.spec); err != nil {
			return err
		}
		p.update()
	case Answer:
		return setPorts(p.play.script.Name, p.ports, step)
	case Terminate:
		manager.StopLivenessAndStartup(p.spec)
	case Remove:
		manager.RemovePod(p.spec)
		p.forget()
	case Cleanup:
		manager.CleanupPods(p.side.others(p))
		p.forget()
	case Succeed:
		p.status.Phase = v1.PodSucceeded
		p.update()
	default:
		c := p.play.script.container(step.Container)
		p.instances[c.Name] = p.instances[c.Name].after(step, p.play.script.follows(c, step.Exit))
		p.update()
	}
	return nil
}

// others returns all pods but one.
func (a *adapted) others(p *adaptedPod) map[types.UID]sets.Empty {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := map[types.UID]sets.Empty{}
	for _, pod := range a.pods {
		if pod != p {
			wanted[pod.spec.UID] = sets.Empty{}
		}
	}
	return wanted
}

func (p *adaptedPod) sync() {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	p.update()
}

// update computes the pod's status from its containers and the engine's results. The caller must hold syncing.
func (p *adaptedPod) update() {
	st := podStatus(p.play.script, p.instances, p.status)
	p.side.manager.UpdatePodStatus(p.spec, &st)
	p.status = st
}

// record records started and ready of the pod's containers, and the verdicts and counters
// of its probes.
func (p *adaptedPod) record(step Step) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	p.update()
	p.recordProbes(step)
	for _, c := range p.play.script.Containers {
		if s := statusOf(p.status, c.Name); s != nil {
			t, _ := p.side.sonde.engine.Target(targetOf(p.play.script.Name, c.Name))
			p.play.add(c.Name, flagsOf(s.Started != nil && *s.Started, s.Ready, t.Instance.Phase == probe.Gone && p.play.script.showsEnd(&c, p.instances[c.Name])))
		}
	}
}

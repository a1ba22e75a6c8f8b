package oracle

import (
	"context"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"

	"github.com/sonde-probe/sonde/probe"
)

// cache is the kubelet's results cache of one kind. It records each result before the
// kubelet can act on it.
type cache struct {
	results.Manager
	kubelet *kubelet
	kind    probe.Kind
}

func newCache(k *kubelet, kind probe.Kind) *cache { return &cache{results.NewManager(), k, kind} }

// Set records a changed result, and stores it in the cache.
func (c *cache) Set(id kubecontainer.ContainerID, r results.Result, pod *v1.Pod) {
	at, instance := c.probeKey(id)
	p := c.kubelet.pod(at.script)
	if old, ok := c.Get(id); !ok || old != r {
		p.play.publish(at, instance, verdictOf(r))
	}
	p.cache(at, true)
	c.Manager.Set(id, r, pod)
}

// Remove removes a container's result from the cache.
func (c *cache) Remove(id kubecontainer.ContainerID) {
	at, _ := c.probeKey(id)
	c.Manager.Remove(id)
	p := c.kubelet.pod(at.script)
	p.cache(at, false)
	p.unlook()
}

// unlook clears the calling worker's recorded look at the status: the worker may be about to stop.
func (p *kubePod) unlook() {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.looks, goroutine())
}

func (p *kubePod) cache(at probeKey, cached bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cached[at] = cached
}

// drain passes the updates to the loop. It never blocks, because workers block on it
// (K59).
func (c *cache) drain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-c.Updates():
			at, instance := c.probeKey(u.ContainerID)
			c.kubelet.updated <- update{at, instance, u.Result}
		}
	}
}

// update is a changed result.
type update struct {
	at       probeKey
	instance int
	result   results.Result
}

// loop handles updates like the kubelet's sync loop: it sets started of the container,
// and syncs the pod (K126 to K128).
func (k *kubelet) loop() {
	for {
		select {
		case <-k.ctx.Done():
			return
		case u := <-k.updated:
			p := k.pod(u.at.script)
			if u.at.kind == probe.Startup {
				p.setStarted(u.at.container, u.instance, u.result == results.Success)
			}
			k.sync(p)
		}
	}
}

// setStarted sets started like the status manager (K117).
func (p *kubePod) setStarted(container string, number int, started bool) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	l := p.instances[container]
	if l.number != number {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.status.DeepCopy()
	for _, c := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range c {
			if c[i].Name == container {
				c[i].Started = &started
			}
		}
	}
	p.status = *st
}

// probeKey parses a container ID of instance.id.
func (c *cache) probeKey(id kubecontainer.ContainerID) (at probeKey, instance int) {
	parts := strings.Split(id.ID, ".")
	instance, _ = strconv.Atoi(parts[2])
	return probeKey{parts[0], parts[1], c.kind}, instance
}

func verdictOf(r results.Result) probe.Verdict {
	switch r {
	case results.Success:
		return probe.Passing
	case results.Failure:
		return probe.Failing
	}
	return probe.Undecided
}

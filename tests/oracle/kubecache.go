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
	at, life := c.spot(id)
	p := c.kubelet.pod(at.script)
	if old, ok := c.Get(id); !ok || old != r {
		p.play.publish(at, life, verdictOf(r))
	}
	p.cache(at, true)
	c.Manager.Set(id, r, pod)
}

// Remove removes a container's result from the cache.
func (c *cache) Remove(id kubecontainer.ContainerID) {
	at, _ := c.spot(id)
	c.Manager.Remove(id)
	p := c.kubelet.pod(at.script)
	p.cache(at, false)
	p.unlook()
}

// unlook forgets that the calling worker has read the status: it may be about to end.
func (p *kubePod) unlook() {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.looks, goroutine())
}

func (p *kubePod) cache(at spot, cached bool) {
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
			at, life := c.spot(u.ContainerID)
			c.kubelet.updated <- update{at, life, u.Result}
		}
	}
}

// update is a changed result.
type update struct {
	at     spot
	life   int
	result results.Result
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
				p.setStarted(u.at.container, u.life, u.result == results.Success)
			}
			k.sync(p)
		}
	}
}

// setStarted sets started like the status manager (K117).
func (p *kubePod) setStarted(container string, number int, started bool) {
	p.syncing.Lock()
	defer p.syncing.Unlock()
	l := p.lives[container]
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

// spot parses a container ID of life.id.
func (c *cache) spot(id kubecontainer.ContainerID) (at spot, life int) {
	parts := strings.Split(id.ID, ".")
	life, _ = strconv.Atoi(parts[2])
	return spot{parts[0], parts[1], c.kind}, life
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

// Package times compares the times at which the kubelet's prober and Sonde make attempts, kill, and change readiness. Both run in a
// testing/synctest bubble, where nothing is late: equal rules must result in equal times. Probes are exec probes, whose commands
// are simulated.
package times

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
	"k8s.io/utils/exec"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/kube"
	"github.com/sonde-probe/sonde/probe"
)

// kubelet is the kubelet's prober manager with the parts of a kubelet that it needs.
type kubelet struct {
	status.Manager // only GetPodStatus is called
	prober         prober.Manager
	node           *node
	ctx            context.Context
	cancel         context.CancelFunc
	working        sync.WaitGroup
	ended          atomic.Bool // its results no longer matter
}

func newKubelet(t *testing.T, n *node) proberManager {
	k := &kubelet{node: n}
	k.ctx, k.cancel = context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	caches := map[probe.Kind]results.Manager{}
	for kind := probe.Startup; kind <= probe.Liveness; kind++ {
		caches[kind] = results.NewManager()
		k.working.Go(func() { k.follow(kind, caches[kind].Updates()) })
	}
	k.prober = prober.NewManager(k, caches[probe.Liveness], caches[probe.Readiness], caches[probe.Startup], k, &record.FakeRecorder{})
	return k
}

// follow handles results like the kubelet's sync loop (K126 to K128).
func (k *kubelet) follow(kind probe.Kind, updates <-chan results.Update) {
	for {
		select {
		case <-k.ctx.Done():
			return
		case u := <-updates:
			if k.ended.Load() {
				continue
			}
			p := k.node.pod(u.PodUID)
			if kind != probe.Readiness && u.Result == results.Failure {
				p.kill()
			}
			p.sync()
		}
	}
}

func (k *kubelet) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	p := k.node.pod(uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.status.DeepCopy(), true
}

// RunInContainer makes an attempt.
func (k *kubelet) RunInContainer(ctx context.Context, _ container.ContainerID, words []string, timeout time.Duration) ([]byte, error) {
	var kind probe.Kind
	if err := kind.UnmarshalText([]byte(words[1])); err != nil {
		return nil, err
	}
	switch ok, late := k.node.pod(types.UID(words[0])).attempt(context.WithoutCancel(ctx), kind, timeout); {
	case late:
		return nil, fmt.Errorf("%w: it took %v", remote.ErrCommandTimedOut, timeout)
	case !ok:
		return nil, exec.CodeExitError{Err: errors.New("exit status 1"), Code: 1}
	}
	return nil, nil
}

func (k *kubelet) AddPod(pod *v1.Pod) { k.prober.AddPod(k.ctx, pod) }

func (k *kubelet) StopLivenessAndStartup(pod *v1.Pod) { k.prober.StopLivenessAndStartup(pod) }
func (k *kubelet) RemovePod(pod *v1.Pod)              { k.prober.RemovePod(pod) }

func (k *kubelet) UpdatePodStatus(pod *v1.Pod, s *v1.PodStatus) {
	k.prober.UpdatePodStatus(k.ctx, pod, s)
}

// end stops the workers: each stops at its next tick (K9).
func (k *kubelet) end() {
	k.ended.Store(true)
	k.prober.CleanupPods(nil)
	time.Sleep(10 * time.Minute)
	k.cancel()
	k.working.Wait()
}

// sonde is an engine with a kube.Manager.
type sonde struct {
	*kube.Manager
	node   *node
	engine *engine.Engine
	cancel context.CancelFunc
	done   sync.WaitGroup
	t      *testing.T
}

// sondeWith returns Sonde's side with a compatibility.
func sondeWith(c probe.Compatibility) side {
	return func(t *testing.T, n *node) proberManager {
		s := &sonde{node: n, engine: engine.New(engine.Config{Compatibility: c}), t: t}
		s.Manager = kube.NewManager(s.engine, kube.Handlers{"exec": s.handler})
		ctx, cancel := context.WithCancel(t.Context())
		s.cancel = cancel
		s.done.Go(func() {
			if err := s.engine.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		s.done.Go(func() { s.follow(ctx) })
		return s
	}
}

// handler returns a handler that makes attempts.
func (s *sonde) handler(e kube.Action) (probe.Handler, error) {
	var kind probe.Kind
	if err := kind.UnmarshalText([]byte(e.Command[1])); err != nil {
		return nil, err
	}
	seconds, err := strconv.Atoi(e.Command[2])
	if err != nil {
		return nil, err
	}
	uid := types.UID(e.Command[0])
	return probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
		ok, late := s.node.pod(uid).attempt(ctx, kind, never)
		switch {
		case ctx.Err() != nil || late:
			return probe.Fail(probe.ReasonExecTimeout, "no answer within %d s", seconds)
		case !ok:
			return probe.Fail(probe.ReasonExecExit, "exit status 1")
		}
		return probe.Succeed("")
	}), nil
}

// follow syncs the pods whose probes have changed, and kills those that fail.
func (s *sonde) follow(ctx context.Context) {
	changes := s.engine.Subscribe()
	defer changes.Close()
	for {
		st, err := changes.Next(ctx)
		if err != nil {
			return
		}
		for _, p := range s.node.all() {
			if name, known := s.TargetName(p.spec, containerName); !known || name != st.ID.Target {
				continue
			}
			if st.ID.Kind != probe.Readiness && st.Verdict == probe.Failing {
				p.kill()
			}
			p.sync()
		}
	}
}

func (n *node) all() []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*pod
	for _, p := range n.pods {
		all = append(all, p)
	}
	return all
}

func (s *sonde) AddPod(pod *v1.Pod) {
	if err := s.Manager.AddPod(pod); err != nil {
		s.t.Error(err)
	}
}

func (s *sonde) end() {
	s.cancel()
	s.done.Wait()
}

// sides are the sides that are compared with the kubelet.
var sides = map[string]side{"sonde": sondeWith(probe.Mended), "sonde with compatibility": sondeWith(probe.Kubelet)}

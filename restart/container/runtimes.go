package container

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
)

// Runtimes holds the container runtimes of this machine, shared by drivers and handlers: one client, one event stream
// and one container list per socket, regardless of the number of containers. The zero value is ready for use, and safe
// for concurrent use.
type Runtimes struct {
	mu    sync.Mutex // guards known, and the fields of its values
	known map[string]*runtime
}

// runtime is the shared state of one socket.
type runtime struct {
	*docker.Client
	watch   *docker.Watch
	users   int // number of running drivers
	stop    context.CancelFunc
	stopped chan struct{}
}

// get returns the runtime at a socket.
func (r *Runtimes) get(socket string) *runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]*runtime{}
	}
	rt := r.known[socket]
	if rt == nil {
		c := docker.New(socket)
		rt = &runtime{Client: c, watch: docker.NewWatch(c)}
		r.known[socket] = rt
	}
	return rt
}

// use returns the runtime at a socket, which is watched until release is called.
func (r *Runtimes) use(socket string) (rt *runtime, release func()) {
	rt = r.get(socket)
	r.mu.Lock()
	defer r.mu.Unlock()
	if rt.users++; rt.users == 1 {
		rt.begin()
	}
	return rt, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if rt.users--; rt.users == 0 {
			rt.stop()
			<-rt.stopped // no deadlock: the watch waits for no driver, and its calls end with its context
			rt.Close()
		}
	}
}

// RuntimeStatus is the status of one container runtime.
type RuntimeStatus struct {
	Socket string
	Lost   error     // why it is unreachable; nil if it is reachable
	Since  time.Time // when it became unreachable or reachable
}

// Statuses returns the status of each runtime that drivers use, sorted by socket.
func (r *Runtimes) Statuses() (all []RuntimeStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, socket := range slices.Sorted(maps.Keys(r.known)) {
		if rt := r.known[socket]; rt.users > 0 {
			s := RuntimeStatus{Socket: socket}
			s.Since, s.Lost = rt.watch.Lost()
			all = append(all, s)
		}
	}
	return all
}

// begin starts to watch the runtime. It needs the lock of Runtimes.
func (rt *runtime) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	rt.stop, rt.stopped = cancel, make(chan struct{})
	go func() {
		defer close(rt.stopped)
		_ = rt.watch.Run(ctx) // returns only when ctx is done
	}()
}

// reasonOf returns the probe.Reason for an error of a runtime.
func reasonOf(err error) probe.Reason {
	switch {
	case errors.Is(err, docker.ErrUnavailable):
		return probe.ReasonRuntimeUnavailable
	case errors.Is(err, docker.ErrTimeout):
		return probe.ReasonRuntimeTimeout
	case errors.Is(err, docker.ErrPermission):
		return probe.ReasonRuntimePermission
	case errors.Is(err, docker.ErrNotFound):
		return probe.ReasonRuntimeNoContainer
	}
	return probe.ReasonRuntimeFailed
}

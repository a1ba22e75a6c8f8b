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

// Runtimes are the container runtimes of this machine that drivers and handlers share: one client, one stream of events
// and one list for each socket, whatever the number of containers. The zero value is ready for use, by multiple goroutines.
type Runtimes struct {
	mu    sync.Mutex // guards known, and the fields of its values
	known map[string]*runtime
}

// runtime is what is known of one socket.
type runtime struct {
	*docker.Client
	watch   *docker.Watch
	users   int // drivers that run
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
			<-rt.stopped // it waits for no driver, and its calls have ended with its context
			rt.Close()
		}
	}
}

// RuntimeStatus is what is known of one container runtime.
type RuntimeStatus struct {
	Socket string
	Lost   error     // why it cannot be seen now; nil if it is
	Since  time.Time // when that began
}

// Statuses returns what is known of the runtimes that drivers use, sorted by socket.
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

// begin begins to watch the runtime. It needs the lock of Runtimes.
func (rt *runtime) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	rt.stop, rt.stopped = cancel, make(chan struct{})
	go func() {
		defer close(rt.stopped)
		_ = rt.watch.Run(ctx) // ends with the context only
	}()
}

// reasonOf returns the reason of an error of a runtime.
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

package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/container"
)

// sockets are the sockets of the runtimes at which this engine or the previous one created containers. The zero value is empty.
// It is safe for concurrent use by multiple goroutines.
type sockets struct {
	mu     sync.Mutex      // guards the fields below
	used   map[string]bool // by the configuration that was planned last
	before map[string]bool // by the previous engine, until its unused containers there are removed
}

// use records the sockets at which units create containers, and reports whether they have changed.
func (s *sockets) use(units map[string]restart.Unit) (changed bool) {
	used := map[string]bool{}
	for _, u := range units {
		if socket, makes := container.MadeAt(u.Driver); makes {
			used[socket] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !maps.Equal(s.used, used)
	s.used = used
	return changed
}

// forget records that nothing of the previous engine is left at a socket.
func (s *sockets) forget(socket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.before, socket)
}

// all returns the sockets, sorted.
func (s *sockets) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]bool{}
	maps.Copy(all, s.before)
	maps.Copy(all, s.used)
	return slices.Sorted(maps.Keys(all))
}

// subject stores the sockets in the state file, since the next configuration may no longer name them.
func (s *sockets) subject() store.Subject {
	return store.Subject{
		Prefix: keySockets, Lasting: true,
		Value: func(string) (any, bool) { all := s.all(); return all, len(all) > 0 },
		Restore: store.RestoreAll(func(all map[string][]string, _ time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.before = map[string]bool{}
			for _, socket := range all[""] {
				s.before[socket] = true
			}
		}),
	}
}

// runtimeStatuses returns the container runtimes for the API.
func (p *processes) runtimeStatuses() (all []api.Runtime) {
	for _, s := range p.runtimes.Statuses() {
		r := api.Runtime{Name: s.Socket, Since: s.Since}
		if s.Lost != nil {
			r.Error = s.Lost.Error()
		}
		all = append(all, r)
	}
	return all
}

// endContainers removes the containers that the previous engine created for targets that are no longer containers of this
// engine, according to the current drivers. It returns when they are removed or ctx is done.
func (p *processes) endContainers(ctx context.Context, driverOf func(target string) restart.Driver) {
	var ending sync.WaitGroup
	for _, socket := range p.sockets.all() {
		ending.Go(func() {
			p.endContainersAt(ctx, socket, func(target string) bool {
				at, owns := container.MadeAt(driverOf(target))
				return owns && at == socket
			})
		})
	}
	ending.Wait()
}

func (p *processes) endContainersAt(ctx context.Context, socket string, has func(target string) bool) {
	logged := ""
	repeat(ctx, func(pause time.Duration) (isDone bool) {
		removed, err := p.runtimes.RemoveOthers(ctx, socket, engineOf(p.state), has)
		for _, target := range removed {
			p.log.Info("container of a removed target ended", "target", target)
		}
		if err == nil {
			p.sockets.forget(socket)
			p.saved.mark(keySockets, false)
		}
		if err == nil || ctx.Err() != nil {
			return true
		}
		if text := err.Error(); text != logged { // a runtime may be unreachable for a long time, or forever
			p.log.Warn("cannot remove containers of removed targets, retrying", "socket", socket, "error", err, "retry_in", pause)
			logged = text
		}
		return false
	})
}

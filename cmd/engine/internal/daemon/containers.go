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

// sockets are those of the runtimes at which this engine, or the one before, has made containers. The zero value has none. It
// is safe for concurrent use by multiple goroutines.
type sockets struct {
	mu     sync.Mutex      // guards the fields below
	used   map[string]bool // by the configuration that was planned last
	before map[string]bool // by the engine before, until it has no containers there that nobody wants
}

// use notes the sockets at which units make containers, and reports whether they are others than before.
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

// forget notes that the engine before has left nothing at a socket.
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

// subject is the sockets in the state file: the next configuration may not name them any more.
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

// runtimeStatuses returns what the API shows of container runtimes.
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

// endContainers ends the containers that the engine before has made for targets which are no longer containers of this engine, by the
// present drivers. It returns when they have ended, or ctx is done.
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
		if text := err.Error(); text != logged { // a runtime may be away for long, or for good
			p.log.Warn("containers of removed targets not ended, retrying", "socket", socket, "error", err, "retry_in", pause)
			logged = text
		}
		return false
	})
}

package sandbox

import (
	"maps"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// State is the data that a plugin keeps between attempts of a probe: a text, and held connections.
// It is safe for concurrent use by multiple goroutines.
type State struct {
	tenant *Tenant

	mu       sync.Mutex   // guards the fields below
	target   probe.Target // the target that the state belongs to
	text     string
	conns    map[string]*socket // by key
	lastWake time.Time
	closed   bool
}

// NewState returns the empty state of a probe before its first attempt.
func (t *Tenant) NewState() *State { return &State{tenant: t} }

// Close closes the held connections. Running attempts continue, but can no longer hold a
// connection.
func (s *State) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closeConns()
}

// minWakeGap is the minimum time between two wakes of one probe. Otherwise a server that closes
// each connection and a plugin that reconnects would keep each other busy.
const minWakeGap = time.Second

// limitWakes returns a function that calls wake, at most once within minWakeGap. It returns nil if
// wake is nil.
func (s *State) limitWakes(wake func()) func() {
	if wake == nil {
		return nil
	}
	return func() {
		now := time.Now()
		s.mu.Lock()
		tooSoon := now.Sub(s.lastWake) < minWakeGap
		if !tooSoon {
			s.lastWake = now
		}
		s.mu.Unlock()
		if !tooSoon {
			wake()
		}
	}
}

// bind clears the state if the name, address or ports of the target have changed.
func (s *State) bind(t probe.Target) {
	s.mu.Lock()
	var old map[string]*socket
	if s.target.Name != t.Name || s.target.Address != t.Address || !maps.Equal(s.target.Ports, t.Ports) {
		s.target, s.text = probe.Target{Name: t.Name, Address: t.Address, Ports: maps.Clone(t.Ports)}, ""
		old, s.conns = s.conns, nil
	}
	s.mu.Unlock()
	s.closeAll(old)
}

// hold keeps conn under a key, and closes any connection that was already held under the key. If
// the state is closed, it closes conn instead. EMFILE means that the probe already holds
// Limits.Connections connections, or the tenant Limits.Held.
func (s *State) hold(key string, conn *socket) abi.Errno {
	s.mu.Lock()
	before := s.conns[key]
	switch {
	case s.closed:
		s.mu.Unlock()
		conn.close()
		return abi.OK
	case before == nil && (len(s.conns) >= s.tenant.sandbox.config.Limits.Connections || !s.tenant.countHeld()):
		s.mu.Unlock()
		return abi.EMFILE
	}
	if s.conns == nil {
		s.conns = make(map[string]*socket)
	}
	s.conns[key] = conn
	s.mu.Unlock()
	conn.markShared(1)
	if before != nil {
		before.markShared(-1)
		before.close()
	}
	return abi.OK
}

// popConn removes and returns a held connection.
func (s *State) popConn(key string) (*socket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, ok := s.conns[key]
	if ok {
		delete(s.conns, key)
		conn.markShared(-1)
		s.tenant.held.Add(-1)
	}
	return conn, ok
}

func (s *State) closeConns() {
	s.mu.Lock()
	all := s.conns
	s.conns = nil
	s.mu.Unlock()
	s.closeAll(all)
}

// closeAll closes connections that were removed from the held ones.
func (s *State) closeAll(conns map[string]*socket) {
	for _, conn := range conns {
		conn.markShared(-1)
		conn.close()
		s.tenant.held.Add(-1)
	}
}

// countHeld counts one more held connection. It returns false if the limit is reached.
func (t *Tenant) countHeld() bool {
	if t.held.Add(1) > int64(t.sandbox.config.Limits.Held) {
		t.held.Add(-1)
		return false
	}
	return true
}

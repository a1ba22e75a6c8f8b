package engine

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
)

// machine is what names this machine. Its own answers say nothing about the network.
type machine struct {
	name      string
	addresses map[netip.Addr]bool
}

// machinePeriod is how often the engine reads the addresses of its machine.
const machinePeriod = 10 * time.Minute

// readMachine returns what names this machine now. What cannot be read is left out.
func readMachine() machine {
	m := machine{addresses: map[netip.Addr]bool{}}
	m.name, _ = os.Hostname()
	m.name = strings.ToLower(m.name)
	all, _ := net.InterfaceAddrs()
	for _, address := range all {
		if p, err := netip.ParsePrefix(address.String()); err == nil {
			m.addresses[p.Addr().Unmap()] = true
		}
	}
	return m
}

// peerOf returns the Peer with an address; 0 for this machine, and without an address.
func (m machine) peerOf(address string) health.Peer {
	if ip, err := netip.ParseAddr(address); err == nil {
		if ip = ip.Unmap().WithZone(""); ip.IsLoopback() || ip.IsUnspecified() || m.addresses[ip] {
			return 0
		}
		return health.PeerOf(address)
	}
	switch name := strings.ToLower(strings.TrimSuffix(address, ".")); {
	case name == m.name, name == "", name == "localhost", name == "ip6-localhost", name == "ip6-loopback", strings.HasSuffix(name, ".localhost"):
		return 0
	}
	return health.PeerOf(address)
}

// IsLocal reports whether an address of a target is this machine's, or there is none:
// Health.Isolated says nothing about such a target.
func (e *Engine) IsLocal(address string) bool {
	sc := e.scheduler
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.machine.peerOf(address) == 0
}

// followMachine keeps what names this machine up to date until ctx is done. It locks mu.
func (sc *scheduler) followMachine(ctx context.Context) {
	ticker := time.NewTicker(machinePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			sc.setMachine(readMachine())
		}
	}
}

// setMachine replaces what names this machine. It locks mu.
func (sc *scheduler) setMachine(m machine) {
	sc.mu.Lock()
	changed := m.name != sc.machine.name || !maps.Equal(m.addresses, sc.machine.addresses)
	sc.machine = m
	sc.mu.Unlock()
	for begin, more := 0, changed; more; begin += applyChunk {
		more = sc.setPeers(begin)
	}
}

// setPeers sets the peers of some probes again, and reports whether there are more. It
// locks mu.
func (sc *scheduler) setPeers(begin int) (more bool) {
	sc.mu.Lock()
	defer sc.unlock()
	end := min(begin+applyChunk, len(sc.slots))
	for _, s := range sc.slots[min(begin, end):end] {
		if s != nil {
			sc.setPeer(s, s.currentAddress())
		}
	}
	return end < len(sc.slots)
}

// setPeer sets the peer of a probe by the address of its target.
func (sc *scheduler) setPeer(s *slot, address string) {
	peer := sc.machine.peerOf(address)
	if sc.noIsolationCheck {
		peer = 0
	}
	if peer != s.peer {
		sc.isolation.setAnswered(s, 0)
		s.peer = peer
	}
}

package engine

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// machine has the names and addresses of this machine. Responses of this machine itself are no evidence about the network.
type machine struct {
	name      string
	addresses map[netip.Addr]bool
}

// The interval at which the engine reads the addresses of its machine, and the interval after an error.
const (
	machinePeriod = 10 * time.Minute
	machineRetry  = time.Minute
)

// readMachine returns the current name and addresses of this machine. If one of them cannot be read, for lack of a descriptor for
// example, it is copied from before.
func readMachine(before machine) (m machine, err error) {
	m = before
	name, nameErr := os.Hostname()
	if nameErr == nil {
		m.name = strings.ToLower(name)
	}
	all, err := net.InterfaceAddrs()
	if err == nil {
		m.addresses = map[netip.Addr]bool{}
	}
	for _, address := range all {
		if p, err := netip.ParsePrefix(address.String()); err == nil {
			m.addresses[p.Addr().Unmap()] = true
		}
	}
	return m, errors.Join(nameErr, err)
}

// has reports whether an address belongs to this machine.
func (m machine) has(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return ip.IsLoopback() || ip.IsUnspecified() || m.addresses[ip]
}

// differs reports whether the name or the addresses differ, ignoring link-local IPv6 addresses, which change whenever a container
// starts or ends.
func (m machine) differs(o machine) bool {
	lasting := func(all map[netip.Addr]bool) map[netip.Addr]bool {
		all = maps.Clone(all)
		maps.DeleteFunc(all, func(ip netip.Addr, _ bool) bool { return ip.Is6() && ip.IsLinkLocalUnicast() })
		return all
	}
	return m.name != o.name || !maps.Equal(lasting(m.addresses), lasting(o.addresses))
}

// peerOf returns the Peer of a host, or 0 for this machine or an empty host.
func (m machine) peerOf(host string) health.Peer {
	if ip, err := netip.ParseAddr(host); err == nil {
		if m.has(ip) {
			return 0
		}
		return health.PeerOf(host)
	}
	switch name := strings.ToLower(strings.TrimSuffix(host, ".")); {
	case name == m.name, strings.HasPrefix(m.name, name+"."), name == "",
		name == "localhost", name == "ip6-localhost", name == "ip6-loopback", strings.HasSuffix(name, ".localhost"):
		return 0
	}
	return health.PeerOf(host)
}

// hostOf returns the host that a handler connects to for a target, or "" for a unix socket, or if the target lacks the address or
// port. It calls the handler.
func hostOf(h probe.Handler, t probe.Target) string {
	e, knows := h.(probe.EndpointHandler)
	if !knows {
		return t.Address
	}
	host, _, err := net.SplitHostPort(e.Endpoint(t))
	switch {
	case err != nil, strings.ContainsAny(host, "/@"): // the path of a unix socket
		return ""
	case host == t.Address:
		return t.Address // shares one string
	}
	return host
}

// followMachine keeps the name and addresses of this machine up to date until ctx is done. It locks mu.
func (sc *scheduler) followMachine(ctx context.Context) {
	for {
		m, err := readMachine(sc.peers.machine)
		sc.setMachine(m)
		wait := machinePeriod
		if err != nil {
			wait = machineRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// setMachine replaces the name and addresses of this machine, and updates the peers of all probes if they differ. It locks mu.
func (sc *scheduler) setMachine(m machine) {
	sc.mu.Lock()
	changed := m.differs(sc.peers.machine)
	sc.peers.machine = m
	sc.mu.Unlock()
	for begin, more := 0, changed; more; begin += applyChunk {
		more = sc.setPeers(begin)
	}
}

// setPeers updates the peers of up to applyChunk probes from the index begin, and reports whether there are more. It locks mu.
func (sc *scheduler) setPeers(begin int) (more bool) {
	sc.mu.Lock()
	defer sc.unlock()
	end := min(begin+applyChunk, len(sc.slots))
	for _, s := range sc.slots[min(begin, end):end] {
		if s != nil {
			sc.peers.setPeer(s, sc.peers.hostOf(s))
		}
	}
	return end < len(sc.slots)
}

// peers has the hosts that probes connect to. scheduler.mu guards it.
type peers struct {
	machine   machine
	elsewhere map[*slot]string // hosts that differ from the addresses of the targets
	unchecked bool             // see Config.NoIsolationCheck: there are no peers
	isolation *isolation
}

// setHost sets the host that a probe's new handler connects to.
func (p *peers) setHost(s *slot, host string) {
	if delete(p.elsewhere, s); host != s.currentAddress() {
		p.elsewhere[s] = host
	}
	s.missing = theTarget
	p.setPeer(s, host)
}

// remove removes a probe.
func (p *peers) remove(s *slot) {
	p.isolation.forget(s)
	delete(p.elsewhere, s)
}

// hostOf returns the host that a probe connects to.
func (p *peers) hostOf(s *slot) string {
	if host, ok := p.elsewhere[s]; ok {
		return host
	}
	return s.currentAddress()
}

// setPeer sets the peer of a probe according to the host that it connects to.
func (p *peers) setPeer(s *slot, host string) {
	peer := p.machine.peerOf(host)
	if p.unchecked {
		peer = 0
	}
	if peer != s.peer {
		if s.peer != 0 {
			p.isolation.forget(s)
		}
		s.peer = peer
	}
}

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

// machine is what names this machine. Its own answers say nothing about the network.
type machine struct {
	name      string
	addresses map[netip.Addr]bool
}

// How often the engine reads the addresses of its machine, and how soon again after it
// could not.
const (
	machinePeriod = 10 * time.Minute
	machineRetry  = time.Minute
)

// readMachine returns what names this machine now. What cannot be read, for want of a
// descriptor for example, is as before.
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

// has reports whether an address is one of this machine.
func (m machine) has(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return ip.IsLoopback() || ip.IsUnspecified() || m.addresses[ip]
}

// differs reports whether another machine has another name or other addresses, apart from
// link-local ones of IPv6: each container that starts or ends changes these.
func (m machine) differs(o machine) bool {
	lasting := func(all map[netip.Addr]bool) map[netip.Addr]bool {
		all = maps.Clone(all)
		maps.DeleteFunc(all, func(ip netip.Addr, _ bool) bool { return ip.Is6() && ip.IsLinkLocalUnicast() })
		return all
	}
	return m.name != o.name || !maps.Equal(lasting(m.addresses), lasting(o.addresses))
}

// peerOf returns the Peer of a host; 0 for this machine, and without a host.
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

// hostOf returns the host that a handler connects to for a target; "" for a unix socket,
// or if the target lacks its address or port. It calls the handler.
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
		return t.Address // one string for both
	}
	return host
}

// followMachine keeps what names this machine up to date until ctx is done. It locks mu.
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

// setMachine replaces what names this machine. It locks mu.
func (sc *scheduler) setMachine(m machine) {
	sc.mu.Lock()
	changed := m.differs(sc.peers.machine)
	sc.peers.machine = m
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
			sc.peers.setPeer(s, sc.peers.hostOf(s))
		}
	}
	return end < len(sc.slots)
}

// peers are the hosts that probes connect to. scheduler.mu guards them.
type peers struct {
	machine   machine
	elsewhere map[*slot]string // hosts other than the addresses of the targets
	unchecked bool             // see Config.NoIsolationCheck: nobody is a peer
	isolation *isolation
}

// setHost sets the host that a new handler of a probe connects to.
func (p *peers) setHost(s *slot, host string) {
	if delete(p.elsewhere, s); host != s.currentAddress() {
		p.elsewhere[s] = host
	}
	s.missing = theTarget
	p.setPeer(s, host)
}

// remove forgets a probe.
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

// setPeer sets the peer of a probe by the host that it connects to.
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

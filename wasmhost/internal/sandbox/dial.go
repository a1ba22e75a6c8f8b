package sandbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

// network lets an attempt connect, look up names and hold connections, within grants and limits.
type network struct {
	access
	config *Config
	shared *sharedNetwork
	tenant *Tenant
	input  *Attempt

	used    bool          // the guest has requested a connection (new or held) or a lookup
	dials   int           // including lookups and handshakes
	refused string        // the latest destination that was denied
	timings probe.Timings // without FirstByte
	expiry  int64         // certificate expiry in the latest TLS handshake: see probe.Result
}

// sharedNetwork is the part of network that all attempts of a plugin share.
type sharedNetwork struct {
	dialer  dial.Dialer
	watcher nonblock.Watcher // of held connections
}

// dial connects to a destination.
func (n *network) dial(a args) int64 {
	n.used = true
	network, errno := n.memory.text(a, 0, 8)
	if errno != abi.OK {
		return i32(0, abi.EPROTONOSUPPORT)
	}
	address, errno := n.memory.text(a, 2, abi.MaxAddress)
	if errno != abi.OK {
		return i32(0, errno)
	}
	options, errno := n.memory.text(a, 4, abi.MaxOptions)
	if errno != abi.OK {
		return i32(0, errno)
	}
	d, errno := n.dest(network, address)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if errno := n.mayDial(d.Network); errno != abi.OK {
		return i32(0, errno)
	}
	ctx, cancel := n.timeout(time.Duration(a.u32(7)) * time.Millisecond)
	defer cancel()
	s, errno := n.connect(ctx, d, options)
	if errno != abi.OK {
		return i32(0, errno)
	}
	s.nonblock = a.u32(6)&abi.FlagNonblock != 0
	return i32(n.open.add(s), abi.OK)
}

// dest parses the address to which a guest wants to connect.
func (n *network) dest(network, address string) (grant.Dest, abi.Errno) {
	if strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return grant.Dest{}, n.failf(abi.EINVAL, "address %q contains white space or control characters", address)
	}
	switch network {
	case "unix":
		if strings.HasPrefix(address, "/") && path.Clean(address) != address {
			return grant.Dest{}, n.failf(abi.EINVAL, "path %q is not canonical: write %s", address, path.Clean(address))
		}
		return grant.Dest{Network: network, Host: address}, abi.OK
	case "tcp", "tls", "udp":
	default:
		return grant.Dest{}, n.failf(abi.EPROTONOSUPPORT, "network %q is unknown: use tcp, tls, udp or unix", network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return grant.Dest{}, n.failf(abi.EINVAL, "address %q is not of the form host:port", address)
	}
	host = dial.CanonicalHost(cmp.Or(host, n.input.Target.Address))
	if _, err := netip.ParseAddr(host); err != nil && !dial.IsHostName(host) {
		return grant.Dest{}, n.fail(HostError{
			Errno: abi.EINVAL, Reason: probe.ReasonNoAddr, Detail: fmt.Sprintf("host %q is neither an IP address nor a host name", host),
		})
	}
	number, err := n.input.Target.Port(port)
	if err != nil {
		return grant.Dest{}, n.fail(HostError{Errno: abi.EINVAL, Reason: probe.ReasonNoPort, Detail: err.Error()})
	}
	var ownPort uint16 // in the handler's settings
	if n.input.Settings != nil {
		ownPort = n.input.Settings.Port
	}
	return grant.Dest{Network: network, Host: host, Port: number, Target: grant.IsTarget(n.input.Target, ownPort, host, number)}, abi.OK
}

// mayDial counts a dial or a lookup, and returns an error if it is not allowed.
func (n *network) mayDial(kind string) abi.Errno {
	switch {
	case n.input.State == nil:
		return n.failf(abi.ENOTCAPABLE, "connections and lookups are allowed in an attempt only")
	case len(n.open.sockets) >= n.config.Limits.Connections:
		return n.reachLimit("connections", abi.EMFILE)
	}
	return n.countDial(kind)
}

// countDial counts a dial, a lookup or a TLS handshake. kind is the network, "dns" or "tls".
func (n *network) countDial(kind string) abi.Errno {
	switch {
	case n.life.isOver():
		return n.failOver(kind, n.life.overError())
	case n.dials >= n.config.Limits.Dials:
		return n.reachLimit("dials", abi.EMFILE)
	}
	n.dials++
	return abi.OK
}

// timeout returns the attempt's context with a timeout; 0 means no timeout.
func (n *network) timeout(d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return n.life.ctx, func() {}
	}
	return context.WithTimeout(n.life.ctx, d)
}

// connect makes a connection. All steps that may end the call by a panic come before the connection
// exists, because nothing would close it then.
func (n *network) connect(ctx context.Context, d grant.Dest, options string) (*socket, abi.Errno) {
	var config *tls.Config
	var errno abi.Errno
	if d.Network == "tls" {
		if config, errno = n.readTLSOptions(options, d); errno != abi.OK {
			return nil, errno
		}
	}
	s, ok := n.open.newSocket(d)
	if !ok {
		return nil, n.failMemory()
	}
	if s.conn, errno = n.connectPlain(ctx, d); errno != abi.OK {
		s.release()
		return nil, errno
	}
	if config == nil {
		return s, abi.OK
	}
	if errno := n.secure(ctx, s, config, len(options)); errno != abi.OK {
		s.close()
		return nil, errno
	}
	return s, abi.OK
}

// connectPlain makes a connection, without TLS.
func (n *network) connectPlain(ctx context.Context, d grant.Dest) (net.Conn, abi.Errno) {
	n.cpu.releaseSlot()
	var conn net.Conn
	var err error
	switch d.Network {
	case "unix":
		real, ok := n.config.Grants.AllowsPath(d.Host)
		if !ok {
			return nil, n.refuse(d)
		}
		conn, err = n.shared.dialer.ConnectUnix(ctx, real, &n.timings)
	default:
		addresses, errno := n.addresses(ctx, d)
		if errno != abi.OK {
			return nil, errno
		}
		network := "tcp"
		if d.Network == "udp" {
			network = "udp"
		}
		conn, err = n.shared.dialer.Connect(ctx, network, addresses, d.Port, &n.timings)
	}
	if err != nil {
		return nil, n.failOver(d.Network, networkError(err))
	}
	return conn, abi.OK
}

// addresses resolves a destination and returns the granted addresses.
func (n *network) addresses(ctx context.Context, d grant.Dest) ([]netip.Addr, abi.Errno) {
	if _, err := netip.ParseAddr(d.Host); err != nil && !n.config.Grants.AllowsLookup(d) {
		return nil, n.refuse(d)
	}
	all, err := n.shared.dialer.Resolve(ctx, d.Host, &n.timings)
	if err != nil {
		return nil, n.fail(networkError(err))
	}
	var granted []netip.Addr
	for _, ip := range all {
		if len(granted) < dial.MaxAddresses && n.config.Grants.AllowsAddr(d, ip) {
			granted = append(granted, ip)
		}
	}
	if len(granted) == 0 {
		return nil, n.refuse(d)
	}
	if granted, err = dial.Allowed(ctx, d.Host, granted, d.Port); err != nil {
		return nil, n.fail(networkError(err))
	}
	return granted, abi.OK
}

// resolve looks a name up.
func (n *network) resolve(a args) int64 {
	n.used = true
	name, errno := n.memory.text(a, 0, abi.MaxAddress)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if name = dial.CanonicalHost(name); !dial.IsHostName(name) {
		return i32(0, n.failf(abi.EINVAL, "%q is not a host name", name))
	}
	if errno := n.mayDial("dns"); errno != abi.OK {
		return i32(0, errno)
	}
	if !n.config.Grants.AllowsResolve(name) {
		return i32(0, n.refuse(grant.Dest{Network: "dns", Host: name}))
	}
	n.cpu.releaseSlot()
	all, err := n.shared.dialer.Resolve(n.life.ctx, name, &n.timings)
	if err != nil {
		return i32(0, n.fail(networkError(err)))
	}
	var b strings.Builder
	for _, ip := range all[:min(len(all), 64)] {
		b.WriteString(ip.String() + "\n")
	}
	return n.memory.give(b.String(), a.u32(2), a.u32(3))
}

// refuse records that a destination was denied, and logs the first denial of the tenant.
func (n *network) refuse(d grant.Dest) abi.Errno {
	n.refused = d.String()
	if s := n.input.Settings; s != nil && s.PortName == strconv.Itoa(int(d.Port)) && grant.IsTarget(n.input.Target, d.Port, d.Host, d.Port) {
		n.refused += fmt.Sprintf(" (the plugin's default port: set port = %q, or add it to the target's ports)", s.PortName)
	}
	n.tenant.denied.Add(1)
	if !n.tenant.loggedDenial.Swap(true) {
		n.cpu.releaseSlot()
		n.tenant.logger.Warn("plugin connection denied: destination is not granted; further denials are counted in metrics only",
			"target", n.input.Target.Name, "destination", n.refused)
	}
	return n.failf(abi.ENOTCAPABLE, "%s is not granted", n.refused)
}

package sandbox

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

func dialPlace(c *call, a args) int64 {
	network, errno := c.text(a, 0, 8)
	if errno != abi.OK {
		return i32(0, abi.EPROTONOSUPPORT)
	}
	address, errno := c.text(a, 2, abi.MaxAddress)
	if errno != abi.OK {
		return i32(0, errno)
	}
	options, errno := c.text(a, 4, abi.MaxOptions)
	if errno != abi.OK {
		return i32(0, errno)
	}
	d, errno := c.dest(network, address)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if errno := c.mayDial(); errno != abi.OK {
		return i32(0, errno)
	}
	ctx, cancel := c.timeout(time.Duration(a.u32(7)) * time.Millisecond)
	defer cancel()
	s, errno := c.dial(ctx, d, options)
	if errno != abi.OK {
		return i32(0, errno)
	}
	s.nonblock = a.u32(6)&abi.FlagNonblock != 0
	return i32(c.add(s), abi.OK)
}

// dest reads the address that a guest wants to connect to.
func (c *call) dest(network, address string) (grant.Dest, abi.Errno) {
	if strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return grant.Dest{}, c.failf(abi.EINVAL, "address %q contains white space or control characters", address)
	}
	switch network {
	case "unix":
		if strings.HasPrefix(address, "/") && path.Clean(address) != address {
			return grant.Dest{}, c.failf(abi.EINVAL, "path %q is not canonical, write %s", address, path.Clean(address))
		}
		return grant.Dest{Network: network, Host: address}, abi.OK
	case "tcp", "tls", "udp":
	default:
		return grant.Dest{}, c.failf(abi.EPROTONOSUPPORT, "network %q is unknown: use tcp, tls, udp or unix", network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return grant.Dest{}, c.failf(abi.EINVAL, "address %q is not of the form host:port", address)
	}
	if host == "" {
		host = c.target.Address
	}
	if _, err := netip.ParseAddr(host); err != nil && !dial.IsHostName(host) {
		return grant.Dest{}, c.fail(HostError{
			Errno: abi.EINVAL, Reason: probe.ReasonNoAddr, Detail: fmt.Sprintf("host %q is neither an IP address nor a host name", host),
		})
	}
	number, err := c.target.Port(port)
	if err != nil {
		return grant.Dest{}, c.fail(HostError{Errno: abi.EINVAL, Reason: probe.ReasonNoPort, Detail: err.Error()})
	}
	var ownPort uint16 // in the handler's settings
	if c.settings != nil {
		ownPort = c.settings.Port
	}
	return grant.Dest{Network: network, Host: host, Port: number, Target: grant.IsTarget(c.target, ownPort, host, number)}, abi.OK
}

// mayDial counts a dial or a lookup.
func (c *call) mayDial() abi.Errno {
	switch {
	case c.state == nil:
		return c.failf(abi.ENOTCAPABLE, "connections and lookups are allowed in an attempt only")
	case len(c.sockets) >= c.sandbox.config.Limits.Connections:
		return c.reachLimit("connections", abi.EMFILE)
	}
	return c.countDial()
}

// countDial counts a dial, a lookup, or a TLS handshake.
func (c *call) countDial() abi.Errno {
	switch {
	case c.isOver():
		return c.fail(c.overError())
	case c.dials >= c.sandbox.config.Limits.Dials:
		return c.reachLimit("dials", abi.EMFILE)
	}
	c.dials++
	return abi.OK
}

// timeout returns the attempt's context with a timeout; 0 means none.
func (c *call) timeout(d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return c.ctx, func() {}
	}
	return context.WithTimeout(c.ctx, d)
}

// dial makes a connection. What may end the call comes before it has one, since nothing else closes
// it then.
func (c *call) dial(ctx context.Context, d grant.Dest, options string) (*socket, abi.Errno) {
	var config *tls.Config
	var errno abi.Errno
	if d.Network == "tls" {
		if config, errno = c.readTLSOptions(options, d); errno != abi.OK {
			return nil, errno
		}
	}
	s, ok := c.newSocket(d)
	if !ok {
		return nil, c.failMemory()
	}
	if s.conn, errno = c.connect(ctx, d); errno != abi.OK {
		c.discard(s)
		return nil, errno
	}
	if config == nil {
		return s, abi.OK
	}
	if errno := c.secure(ctx, s, config, len(options)); errno != abi.OK {
		s.close()
		c.discard(s)
		return nil, errno
	}
	return s, abi.OK
}

func (c *call) connect(ctx context.Context, d grant.Dest) (net.Conn, abi.Errno) {
	c.releaseSlot()
	var conn net.Conn
	var err error
	switch d.Network {
	case "unix":
		if !c.sandbox.config.Grants.AllowsPath(d.Host) {
			return nil, c.refuse(d)
		}
		conn, err = c.sandbox.dialer.ConnectUnix(ctx, d.Host, &c.timings)
	default:
		addresses, errno := c.addresses(ctx, d)
		if errno != abi.OK {
			return nil, errno
		}
		network := "tcp"
		if d.Network == "udp" {
			network = "udp"
		}
		conn, err = c.sandbox.dialer.Connect(ctx, network, addresses, d.Port, &c.timings)
	}
	if err != nil {
		return nil, c.fail(networkError(err))
	}
	return conn, abi.OK
}

// addresses returns the addresses of a destination that are granted.
func (c *call) addresses(ctx context.Context, d grant.Dest) ([]netip.Addr, abi.Errno) {
	if _, err := netip.ParseAddr(d.Host); err != nil && !c.sandbox.config.Grants.AllowsLookup(d) {
		return nil, c.refuse(d)
	}
	all, err := c.sandbox.dialer.Resolve(ctx, d.Host, &c.timings)
	if err != nil {
		return nil, c.fail(networkError(err))
	}
	var granted []netip.Addr
	for _, ip := range all {
		if len(granted) < dial.MaxAddresses && c.sandbox.config.Grants.AllowsAddr(d, ip) {
			granted = append(granted, ip)
		}
	}
	if len(granted) == 0 {
		return nil, c.refuse(d)
	}
	if granted, err = dial.Allowed(ctx, d.Host, granted, d.Port); err != nil {
		return nil, c.fail(networkError(err))
	}
	return granted, abi.OK
}

func resolveName(c *call, a args) int64 {
	name, errno := c.text(a, 0, abi.MaxAddress)
	if errno != abi.OK {
		return i32(0, errno)
	}
	if !dial.IsHostName(name) {
		return i32(0, c.failf(abi.EINVAL, "%q is not a host name", name))
	}
	if errno := c.mayDial(); errno != abi.OK {
		return i32(0, errno)
	}
	if !c.sandbox.config.Grants.AllowsResolve(name) {
		return i32(0, c.refuse(grant.Dest{Network: "dns", Host: name}))
	}
	c.releaseSlot()
	all, err := c.sandbox.dialer.Resolve(c.ctx, name, &c.timings)
	if err != nil {
		return i32(0, c.fail(networkError(err)))
	}
	var b strings.Builder
	for _, ip := range all[:min(len(all), 64)] {
		b.WriteString(ip.String() + "\n")
	}
	return c.give(b.String(), a.u32(2), a.u32(3))
}

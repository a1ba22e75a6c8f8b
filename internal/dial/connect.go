package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// MaxAddresses is the maximum number of addresses of a name that are tried. They share the remaining time, so with more of them
// none would get enough.
const MaxAddresses = 8

// Open connects to host and port, or to the configured unix socket, and adds the time it took to took. It returns soon after ctx is
// done. Every error is an *Error.
func (d *Dialer) Open(ctx context.Context, host string, port uint16, took *probe.Timings) (net.Conn, error) {
	if d.config.UnixSocket != "" {
		return d.ConnectUnix(ctx, d.config.UnixSocket, took)
	}
	if host == "" {
		return nil, unknown(probe.ReasonNoAddr, errors.New("there is no host to connect to"))
	}
	ips, err := d.Addresses(ctx, host, port, took)
	if err != nil {
		return nil, err
	}
	ips = ips[:min(len(ips), MaxAddresses)]
	return d.Connect(ctx, "tcp", ips, port, took)
}

// ConnectUnix connects to the unix socket at path, and adds the time it took to took, unless it fails. Every error is an *Error.
func (d *Dialer) ConnectUnix(ctx context.Context, path string, took *probe.Timings) (net.Conn, error) {
	if IsRestricted(ctx) {
		return nil, failure(probe.ReasonNotAllowed, errUnixRestricted)
	}
	began := time.Now()
	dialer := net.Dialer{}
	if n := NetworkOf(ctx); n != nil && n.Namespace != "" && strings.HasPrefix(path, "@") { // each namespace has its own names
		dialer.Control = Config{}.prepare(&probe.Network{Namespace: n.Namespace})
	}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, Classify(ctx, ConnectingUnix, err)
	}
	since(began, &took.Connect)
	took.Connected = true
	return conn, nil
}

// Connect connects over tcp or udp to the first of the addresses that accepts, and adds the time it took to took, unless a host
// refused the connection. The addresses are tried in order, each with an even share of the remaining time.
//
// Every error is an *Error: see FirstOf.
func (d *Dialer) Connect(ctx context.Context, network string, ips []netip.Addr, port uint16, took *probe.Timings) (net.Conn, error) {
	began := time.Now()
	conn, err := FirstOf(ctx, Connecting, ips, func(ctx context.Context, ip netip.Addr) (net.Conn, error) {
		return d.connectOne(ctx, network, netip.AddrPortFrom(ip, port))
	})
	if err != nil {
		traceFailure(ctx, ips)
	} else {
		Trace(ctx, conn)
	}
	if err == nil || err.Reason.Evidence() != probe.Answered {
		since(began, &took.Connect)
	}
	if err != nil {
		return nil, err
	}
	took.Connected = took.Connected || network == "tcp" // UDP has no handshake
	return conn, nil
}

// FirstOf calls try with the addresses in order, each with an even share of the remaining time, until one succeeds. An error that
// is not an *Error is classified for the stage. FirstOf returns the error of the first address, as in package net, or that of the
// first address whose outcome is Failure, since an Unknown error says nothing about the target. If ctx is done, it returns the
// error of the address tried last.
func FirstOf[T any](ctx context.Context, s Stage, ips []netip.Addr, try func(context.Context, netip.Addr) (T, error)) (T, *Error) {
	var first *Error
	var none T
	for i, ip := range ips {
		some, cancel := WithShare(ctx, len(ips)-i)
		found, err := try(some, ip)
		cancel()
		if err == nil {
			return found, nil
		}
		known, ok := errors.AsType[*Error](err)
		if !ok {
			known = Classify(ctx, s, err)
		}
		if ctx.Err() != nil {
			return none, known
		}
		if first == nil || first.Outcome == probe.Unknown && known.Outcome == probe.Failure {
			first = known
		}
	}
	return none, first
}

// connectOne connects to one address.
func (d *Dialer) connectOne(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	n := NetworkOf(ctx)
	dialer := net.Dialer{KeepAlive: -1, KeepAliveConfig: d.config.KeepAlive.Config(), Control: d.config.prepare(n)}
	source := d.SourceIn(n)
	switch {
	case !source.IsValid():
	case source.Is4() != to.Addr().Unmap().Is4():
		return nil, unknown(probe.ReasonTCPSource, fmt.Errorf("the source address is %s, from which %s cannot be reached: one is IPv4, the other IPv6", source, to.Addr()))
	case network == "udp":
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	default:
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	return dialer.DialContext(ctx, network, to.String())
}

// since adds the time since start to a timing.
func since(start time.Time, timing *time.Duration) { *timing += time.Since(start) }

// Bind makes reads and writes of conn, a net.Conn or a socket as an *os.File, fail as soon as ctx is
// done, until stop is called.
func Bind(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// The only possible error is that conn is already closed.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
}

// peerOf returns the IP address of the peer of a connection, without a zone; the zero Addr for a unix socket.
func peerOf(conn net.Conn) netip.Addr {
	to, ok := conn.RemoteAddr().(interface{ AddrPort() netip.AddrPort }) // of TCP or UDP
	if !ok {
		return netip.Addr{}
	}
	return to.AddrPort().Addr().Unmap().WithZone("")
}

// Facts returns the facts about the peer of a connection to a host. It omits the peer's address if that is the configured host:
// many attempts can then share the facts.
func Facts(conn net.Conn, host string) probe.Facts {
	facts := probe.Facts{Peer: peerOf(conn), TLS: tlsVersion(conn)}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().WithZone("") == facts.Peer {
		facts.Peer = netip.Addr{}
	}
	return facts
}

package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// MaxAddresses is how many addresses of one name are tried. They share the time
// that is left, so with more of them none would get enough.
const MaxAddresses = 8

// Open connects to host and port, or to the unix socket, and adds the time it
// took to took. It returns when the connection stands, when no address has
// taken it, or soon after ctx is done. Every error is an *Error.
//
// An IP address is never looked up. The addresses of a name are tried in the
// resolver's order, each with an even share of the time that is left.
func (d *Dialer) Open(ctx context.Context, host string, port uint16, took *probe.Timings) (net.Conn, error) {
	if d.config.UnixSocket != "" {
		return d.openUnix(ctx, took)
	}
	if host == "" {
		return nil, unknown(probe.ReasonNoAddr, errors.New("there is no host to connect to"))
	}
	ips, err := d.resolve(ctx, host, took)
	if err != nil {
		return nil, err
	}
	return d.connectAny(ctx, ips, port, took)
}

func (d *Dialer) openUnix(ctx context.Context, took *probe.Timings) (net.Conn, error) {
	defer since(time.Now(), &took.Connect)
	conn, err := new(net.Dialer).DialContext(ctx, "unix", d.config.UnixSocket)
	if err != nil {
		return nil, classify(ctx, unixStep, err)
	}
	return conn, nil
}

func (d *Dialer) resolve(ctx context.Context, host string, took *probe.Timings) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return d.usable(host, []netip.Addr{ip})
	}
	defer since(time.Now(), &took.Resolve)
	ips, err := d.lookup(ctx, "ip", host)
	if err != nil {
		return nil, classify(ctx, resolveStep, err)
	}
	return d.usable(host, ips)
}

// usable drops the addresses that cannot be dialled: 0.0.0.0 and ::, which would
// be this machine, and those of another family than the source address.
func (d *Dialer) usable(host string, ips []netip.Addr) ([]netip.Addr, error) {
	var usable []netip.Addr
	otherFamily := false
	for _, ip := range ips {
		ip = ip.Unmap()
		switch {
		case ip.IsUnspecified():
		case d.source.IsValid() && d.source.Is4() != ip.Is4():
			otherFamily = true
		case len(usable) < MaxAddresses:
			usable = append(usable, ip)
		}
	}
	switch {
	case len(usable) > 0:
		return usable, nil
	case otherFamily:
		return nil, unknown(probe.ReasonTCPSource, errors.New(host+" has no address of the source address's family"))
	}
	return nil, failure(probe.ReasonDNSFailed, errors.New(host+" has no address to connect to"))
}

func (d *Dialer) connectAny(ctx context.Context, ips []netip.Addr, port uint16, took *probe.Timings) (net.Conn, error) {
	defer since(time.Now(), &took.Connect)
	var first *Error
	for i, ip := range ips {
		conn, err := d.connect(ctx, netip.AddrPortFrom(ip, port), len(ips)-i)
		if err == nil {
			return conn, nil
		}
		why := classify(ctx, connectStep, err)
		if first == nil || first.Outcome == probe.Unknown {
			first = why
		}
		if ctx.Err() != nil {
			return nil, why
		}
	}
	return nil, first
}

// connect tries one address with one of n even shares of the time that is left.
func (d *Dialer) connect(ctx context.Context, to netip.AddrPort, n int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok && n > 1 {
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
		defer cancel()
		ctx = share
	}
	dialer := net.Dialer{KeepAlive: -1, Control: d.config.prepare()}
	if d.source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.source, 0))
	}
	return dialer.DialContext(ctx, "tcp", to.String())
}

// since adds the time since start to a timing.
func since(start time.Time, timing *time.Duration) { *timing += time.Since(start) }

// Bind makes reads and writes of conn fail as soon as ctx is done, until stop is
// called.
func Bind(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// The one error there is says that conn is closed already.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
}

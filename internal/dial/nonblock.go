package dial

import (
	"net/netip"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// FaultResult returns the result of a non-blocking attempt that ended with a fault. It equals the result for the same error from
// Open, or from a connection that Open returned.
func FaultResult(f nonblock.Fault) probe.Result {
	stage, op := Transferring, "read"
	switch f.Phase {
	case nonblock.Connecting:
		stage, op = Connecting, "dial"
	case nonblock.Sending:
		op = "write"
	}
	outcome, why := probe.Failure, reasons[stage].timeout
	if !f.Timeout() {
		if outcome, why = classifyErrno(stage, f.Errno, f.Call == "bind"); why == "" && f.Errno.Timeout() {
			why = reasons[stage].timeout
		} else if why == "" {
			why = reasons[stage].other
		}
	}
	return probe.Result{Outcome: outcome, Reason: why, Detail: faultText(op, f)}
}

// faultText returns the text of package net's error for a fault. Thousands of attempts may time out each second, so it allocates
// only that text.
func faultText(op string, f nonblock.Fault) string {
	text := append(append(make([]byte, 0, 160), op...), " tcp "...)
	if f.Local.IsValid() {
		text = append(f.Local.AppendTo(text), "->"...)
	}
	text = append(f.Remote.AppendTo(text), ": "...)
	if f.Timeout() {
		return string(append(text, "i/o timeout"...))
	}
	return string(append(append(append(text, f.Call...), ": "...), f.Errno.Error()...))
}

// SocketOptions returns the options of this dialer's sockets for non-blocking attempts.
func (d *Dialer) SocketOptions() nonblock.SocketOptions {
	return nonblock.SocketOptions{Source: d.source, HalfOpen: d.config.HalfOpen, ClientFirst: d.config.ClientFirst, KeepAlive: d.config.KeepAlive.Config()}
}

// LiteralAddr returns the host of a target and its address, if the attempt only needs a connection to one address. It returns false
// if a name must be looked up, or if HostPort or Open would return an error.
func (d *Dialer) LiteralAddr(t *probe.Target) (host string, addr netip.AddrPort, ok bool) {
	if host = d.config.Host; host == "" {
		host = t.Address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" || d.config.UnixSocket != "" || !d.family().has(ip) {
		return "", netip.AddrPort{}, false
	}
	var port uint16
	if !d.config.NoPort {
		if port, err = t.Port(d.config.Port); err != nil {
			return "", netip.AddrPort{}, false
		}
	}
	ip = ip.Unmap()
	if ip.IsUnspecified() || !d.reaches(ip) {
		return "", netip.AddrPort{}, false
	}
	return host, netip.AddrPortFrom(ip, port), true
}

package dial

import (
	"net/netip"

	"github.com/sonde-probe/sonde/probe"
)

// Turn is what an attempt in steps has come to.
type Turn uint8

// The turns.
const (
	Waits  Turn = iota // the system would block: wait for the attempt's FD
	Stands             // the connection stands, and everything is sent
	Heard              // more of the answer has come into the attempt's Buffer
	Ended              // the peer has ended the connection; the Buffer holds all it said
	Broken             // the connection could not be made, or broke; the Fault says how
	Odd                // this cannot be told in steps
)

// Spot returns the host and the address to connect to for a target, and false
// where that takes more than a connection to one address: a name has to be looked
// up, or HostPort or Open has an error to tell.
func (d *Dialer) Spot(t *probe.Target) (host string, at netip.AddrPort, ok bool) {
	if d.config.UnixSocket != "" {
		return "", netip.AddrPort{}, false
	}
	host, port, err := d.HostPort(*t)
	if err != nil {
		return "", netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" {
		return "", netip.AddrPort{}, false
	}
	ip = ip.Unmap()
	if ip.IsUnspecified() || d.source.IsValid() && d.source.Is4() != ip.Is4() {
		return "", netip.AddrPort{}, false
	}
	return host, netip.AddrPortFrom(ip, port), true
}

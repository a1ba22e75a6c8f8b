package dial

import (
	"net/netip"

	"github.com/sonde-probe/sonde/probe"
)

// Spot returns the host and the address to connect to for a target, and false
// where that takes more than a connection to one address: a name has to be looked
// up, or Place or Open has an error to tell.
func (d *Dialer) Spot(t probe.Target) (host string, at netip.AddrPort, ok bool) {
	if d.config.UnixSocket != "" {
		return "", netip.AddrPort{}, false
	}
	host, port, err := d.Place(t)
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


package dial

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Resolve returns the IP addresses of a host in the resolver's order, and adds the time it took to took if a name server was
// queried. An IP address is returned without a lookup. Every error is an *Error.
//
// Names are looked up by Go's own resolver: the system's resolver occupies a thread during each lookup, and does not stop at the
// deadline.
func (d *Dialer) Resolve(ctx context.Context, host string, took *probe.Timings) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	lookup := d.lookup
	if lookup == nil {
		lookup = lookupIP
	}
	start := time.Now()
	ips, asked, err := lookup(ctx, host)
	if asked {
		since(start, &took.Resolve)
	}
	if err != nil {
		return nil, Classify(ctx, Resolving, err)
	}
	for i, ip := range ips {
		ips[i] = ip.Unmap()
	}
	return ips, nil
}

// usable filters and sorts the addresses of a host, in place. It removes 0.0.0.0 and ::, which would be this machine, and addresses
// of another family than the source address or IPFamily.
func (d *Dialer) usable(host string, ips []netip.Addr) ([]netip.Addr, error) {
	usable := ips[:0]
	otherFamily, unwanted := false, false
	for _, ip := range ips {
		switch {
		case ip.IsUnspecified():
		case !d.reaches(ip):
			otherFamily = true
		case !d.family().has(ip):
			unwanted = true
		default:
			usable = append(usable, ip)
		}
	}
	switch {
	case len(usable) > 0:
		d.family().sort(usable)
		return usable, nil
	case otherFamily:
		return nil, unknown(probe.ReasonTCPSource, errors.New(host+" has no address of the source address's family"))
	}
	problem := " has no address to connect to"
	if unwanted {
		problem = " has no IPv" + d.config.IPFamily + " address"
	}
	return nil, failure(probe.ReasonDNSFailed, errors.New(host+problem))
}

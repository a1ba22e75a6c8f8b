package wasmhost

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// grants are a Grant made ready to decide with.
type grants struct {
	target bool // the probe's own target
	rules  []rule
	names  []string // patterns of host names that may be looked up
}

// rule is one entry of Grant.Dial that is a URL.
type rule struct {
	scheme      string
	prefix      netip.Prefix // not valid: name counts
	name        string       // a host name or a pattern; for unix, a path or a pattern
	first, last uint16       // ports
}

// parseGrants reads a Grant. An error is a *probe.FieldError.
func parseGrants(g Grant) (grants, error) {
	if g.Dial == nil {
		g.Dial = []string{"target"}
	}
	var out grants
	for _, entry := range g.Dial {
		if entry == "target" {
			out.target = true
			continue
		}
		r, err := parseRule(entry)
		if err != nil {
			return grants{}, field("grant.dial", `has the entry %q, %v; write "target", or a URL such as "tcp://10.0.0.0/8:6379"`, entry, err)
		}
		out.rules = append(out.rules, r)
	}
	for _, name := range g.DNS {
		name = canonicalName(name)
		if err := checkPattern(name); err != nil {
			return grants{}, field("grant.dns", "has the entry %q, %v", name, err)
		}
		out.names = append(out.names, name)
	}
	return out, nil
}

func parseRule(entry string) (rule, error) {
	scheme, rest, ok := strings.Cut(entry, "://")
	if !ok {
		return rule{}, fmt.Errorf("which has no scheme")
	}
	r := rule{scheme: scheme}
	switch scheme {
	case "unix":
		r.name = rest
		return r, checkPath(rest)
	case "tcp", "tls", "udp":
	default:
		return rule{}, fmt.Errorf("whose scheme is not tcp, tls, udp or unix")
	}
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 || strings.HasSuffix(rest, "]") {
		return rule{}, fmt.Errorf("which has no port")
	}
	var err error
	if r.first, r.last, err = parsePorts(rest[colon+1:]); err != nil {
		return rule{}, err
	}
	return r, r.setHost(rest[:colon])
}

func checkPath(pattern string) error {
	if !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "@") {
		return fmt.Errorf("whose path does not begin with a slash")
	}
	if strings.HasPrefix(pattern, "/") && path.Clean(pattern) != pattern {
		return fmt.Errorf("whose path is %s in short", path.Clean(pattern))
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("whose pattern is wrong")
	}
	return nil
}

// parsePorts reads "80", "8000-8999" or "*".
func parsePorts(s string) (first, last uint16, err error) {
	if s == "*" {
		return 1, 65535, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	a, err1 := strconv.ParseUint(from, 10, 16)
	b, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || a == 0 || a > b {
		return 0, 0, fmt.Errorf("whose port is not a number from 1 to 65535, a range or *")
	}
	return uint16(a), uint16(b), nil
}

// setHost reads an address, a CIDR block (either with or without brackets), a
// host name or a pattern.
func (r *rule) setHost(host string) error {
	bare := strings.NewReplacer("[", "", "]", "").Replace(host)
	if ip, err := netip.ParseAddr(bare); err == nil {
		if ip.Zone() != "" {
			return fmt.Errorf("whose address has a zone, which no rule is about")
		}
		ip = ip.Unmap()
		r.prefix = netip.PrefixFrom(ip, ip.BitLen())
		return nil
	}
	if p, err := netip.ParsePrefix(bare); err == nil {
		if p.Masked() != p {
			return fmt.Errorf("whose block is %s in short", p.Masked())
		}
		if p.Addr().Is4In6() {
			return fmt.Errorf("whose block is one of IPv4, to be written like 10.0.0.0/8")
		}
		r.prefix = p
		return nil
	}
	r.name = canonicalName(host)
	return checkPattern(r.name)
}

// canonicalName writes a host name in one way: small letters, without the dot at
// its end.
func canonicalName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// maxHostName is how long a host name may be, in bytes (RFC 1035, section 2.3.4).
const maxHostName = 253

// checkPattern takes a host name, or one whose first label is a * that stands for one
// or more labels.
func checkPattern(s string) error {
	rest := strings.TrimPrefix(s, "*.")
	if !isHostName(rest) || rest == "*" {
		return fmt.Errorf("whose host is not an IP address, a CIDR block, a name or a pattern such as *.internal")
	}
	return nil
}

func isHostName(s string) bool {
	return s != "" && len(s) <= maxHostName && !strings.HasPrefix(s, ".") && !strings.Contains(s, "..") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// matchName reports whether a canonical name is a pattern's.
func matchName(pattern, name string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(name) > len(suffix) && strings.HasSuffix(name, suffix)
	}
	return pattern == name
}

// place is where a plugin wants to connect to.
type place struct {
	network string // tcp, tls, udp or unix; dns for a lookup
	host    string // address or name; for unix, the path
	port    uint16
	own     bool // it is the probe's own target
}

func (p place) String() string {
	if p.port == 0 { // a path, or a name to look up
		return p.network + "://" + p.host
	}
	if strings.Contains(p.host, ":") {
		return fmt.Sprintf("%s://[%s]:%d", p.network, p.host, p.port)
	}
	return fmt.Sprintf("%s://%s:%d", p.network, p.host, p.port)
}

// path reports whether a path is granted.
func (g grants) path(name string) bool {
	for _, r := range g.rules {
		if r.scheme != "unix" {
			continue
		}
		if ok, err := path.Match(r.name, name); ok && err == nil {
			return true
		}
	}
	return false
}

// lookup reports whether the name of a place may be looked up. Looking up any name
// would be a way to tell secrets to a name server.
func (g grants) lookup(p place) bool {
	return g.target && p.own || g.named(p, false) || g.resolve(p.host)
}

// resolve reports whether a name may be looked up whatever it is for.
func (g grants) resolve(name string) bool {
	name = canonicalName(name)
	for _, pattern := range g.names {
		if matchName(pattern, name) {
			return true
		}
	}
	return false
}

// named reports whether a rule has the place's name; where exact is set, as it
// stands and not by a pattern.
func (g grants) named(p place, exact bool) bool {
	name := canonicalName(p.host)
	for _, r := range g.rules {
		if !r.prefix.IsValid() && r.fits(p) && matchName(r.name, name) && !(exact && strings.HasPrefix(r.name, "*")) {
			return true
		}
	}
	return false
}

func (r rule) fits(p place) bool {
	return r.scheme == p.network && r.first <= p.port && p.port <= r.last
}

// address reports whether a place may be connected to at an address: its own, or one
// that its name has. It is asked for each address right before it is dialled, so that
// what a name server says cannot lead to where no rule goes.
func (g grants) address(p place, ip netip.Addr) bool {
	literal := sameHost(p.host, ip.String())
	ip = ip.Unmap().WithZone("")
	switch {
	case ip.IsUnspecified():
		return false // it would be this machine
	case g.literal(p, ip):
		return true
	case special(ip):
		return literal && g.target && p.own
	case g.target && p.own:
		return true
	case !literal && ip.IsLoopback():
		return g.named(p, true)
	}
	return g.block(p, ip) || !literal && g.named(p, false)
}

// literal reports whether a rule has this very address.
func (g grants) literal(p place, ip netip.Addr) bool {
	for _, r := range g.rules {
		if r.fits(p) && r.prefix.IsSingleIP() && r.prefix.Addr() == ip {
			return true
		}
	}
	return false
}

// block reports whether a rule has a block that an address is in. This machine's own
// services are in a block of loopback addresses only: who grants 0.0.0.0/0 thinks of
// others.
func (g grants) block(p place, ip netip.Addr) bool {
	for _, r := range g.rules {
		home := !ip.IsLoopback() || r.prefix.Addr().IsLoopback()
		if r.fits(p) && r.prefix.IsValid() && r.prefix.Contains(ip) && home {
			return true
		}
	}
	return false
}

// metadata are the addresses of the clouds' metadata services that are not
// link-local: AWS over IPv6, Alibaba, Azure.
func metadata(ip netip.Addr) bool {
	switch ip.String() {
	case "fd00:ec2::254", "100.100.100.200", "168.63.129.16":
		return true
	}
	return false
}

// special reports whether an address needs a rule of its own.
func special(ip netip.Addr) bool {
	if inside, ok := embedded(ip); ok {
		return special(inside) || inside.IsLoopback()
	}
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || metadata(ip)
}

// embedded returns the IPv4 address that an IPv6 address leads to where there is
// somebody who translates or unpacks it: NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056),
// and the old IPv4-compatible addresses (RFC 4291, section 2.5.5.1).
func embedded(ip netip.Addr) (netip.Addr, bool) {
	if !ip.Is6() {
		return ip, false
	}
	b := ip.As16()
	for _, form := range []struct {
		block string
		at    int // of the IPv4 address
	}{{"64:ff9b::/96", 12}, {"64:ff9b:1::/48", 12}, {"2002::/16", 2}, {"::/96", 12}} {
		if netip.MustParsePrefix(form.block).Contains(ip) {
			return netip.AddrFrom4([4]byte(b[form.at:])), true
		}
	}
	return ip, false
}

// own reports whether a place is the target's: its address as it stands, and one
// of its ports.
func own(t probe.Target, extra uint16, host string, port uint16) bool {
	if !sameHost(t.Address, host) {
		return false
	}
	if port == extra && port != 0 {
		return true
	}
	for _, p := range t.Ports {
		if p == port && port != 0 {
			return true
		}
	}
	return false
}

func sameHost(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	if err1 == nil && err2 == nil {
		return x.Unmap() == y.Unmap()
	}
	return a != "" && canonicalName(a) == canonicalName(b)
}

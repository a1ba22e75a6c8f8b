package blackbox

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// allowed is an element of Module.Allow: a network, or a host name.
type allowed struct {
	network netip.Prefix // invalid if name is used
	name    string       // in lower case, may contain * and ?
	port    uint16       // 0 for any
}

// CheckAllowed returns what is wrong with an element of Module.Allow, as the predicate of a sentence about it, or nil.
// An element is an IP address, a network such as 10.0.0.0/8, or a host name, in which * stands for any characters and ?
// for one. A port may follow after a colon. An IPv6 address with a port is in brackets.
func CheckAllowed(text string) error {
	_, err := parseAllowed(text)
	return err
}

func parseAllowed(text string) (a allowed, err error) {
	host := text
	if before, port, ok := cutPort(text); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return allowed{}, errors.New("the port must be a number from 1 to 65535")
		}
		host, a.port = before, uint16(n)
	}
	for label := range strings.SplitSeq(host, ".") {
		if probe.IsGlob(label) && strings.ContainsFunc(label, func(r rune) bool { return r > '~' }) {
			return allowed{}, fmt.Errorf("%s contains non-ASCII characters, which wildcards do not match in lookups: write this label without wildcards", label)
		}
	}
	host = dial.CanonicalHost(host)
	if network, err := netip.ParsePrefix(host); err == nil {
		if ip := network.Addr(); ip.Is4In6() { // all IPv4 addresses share the first 96 bits
			if network.Bits() < 96 {
				return allowed{}, errors.New("the network mixes IPv4 and IPv6 addresses: write one network for each")
			}
			network = netip.PrefixFrom(ip.Unmap(), network.Bits()-96)
		}
		a.network = network.Masked()
		return a, nil
	}
	bare, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		bare, bracketed = strings.CutSuffix(bare, "]")
	}
	if ip, err := netip.ParseAddr(bare); err == nil && bracketed == strings.HasPrefix(host, "[") {
		ip = ip.Unmap().WithZone("")
		a.network = netip.PrefixFrom(ip, ip.BitLen())
		return a, nil
	}
	a.name = normalName(host)
	plain := strings.NewReplacer("*", "x", "?", "x").Replace(a.name)
	switch {
	case probe.IsGlob(a.name) && strings.Trim(a.name, "0123456789.*?") == "" && strings.Trim(a.name, "*?.") != "":
		return allowed{}, errors.New("a part of an address matches names, too: write a network, such as 10.0.0.0/8")
	case dial.IsMistypedIPv4(host):
		return allowed{}, errors.New(dial.IPv4Hint)
	case !dial.IsHostName(plain):
		return allowed{}, errors.New("it must be a host name, an IP address or a network, without a scheme and a path")
	}
	return a, nil
}

// cutPort cuts the port from a host. Several colons without brackets belong to an IPv6 address.
func cutPort(text string) (host, port string, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.Count(text, ":") > 1 && text[i-1] != ']' {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// normalName returns the name of a host in the form for comparison.
func normalName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// mayConnect is for dial.WithAllow. It allows connections to the requested target of the engine, at one of its ports,
// and to the addresses that the module allows.
func (a *attempt) mayConnect(host string, to netip.AddrPort) error {
	if a.configured && normalName(host) == normalName(a.target.Address) {
		if a.module.PortName == "" {
			return nil
		}
		for _, port := range a.target.Ports {
			if port == to.Port() {
				return nil
			}
		}
	}
	for i := range a.module.allow {
		if a.module.allow[i].hasAddress(host, to) {
			return nil
		}
	}
	return fmt.Errorf("of %s is not allowed: it is not a port of a configured target, and not in allow of probe_module %q", host, a.name)
}

// hasAddress reports whether an address of a host is allowed. Name patterns other than * do not allow loopback and
// link-local addresses, except localhost for that name: whoever controls the DNS of a name is not the one who has
// allowed it.
func (a *allowed) hasAddress(host string, to netip.AddrPort) bool {
	ip := to.Addr().Unmap().WithZone("")
	switch {
	case a.has(ip.String(), to.Port()):
		return true
	case a.network.IsValid() || !a.has(host, to.Port()):
		return false
	case ip.IsLoopback():
		name := normalName(host)
		return name == "localhost" || strings.HasSuffix(name, ".localhost")
	}
	return !ip.IsUnspecified() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast()
}

// has reports whether a host with a port is allowed.
func (a *allowed) has(host string, port uint16) bool {
	if a.port != 0 && a.port != port {
		return false
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case a.network.IsValid():
		return err == nil && a.network.Contains(ip.Unmap().WithZone(""))
	case err == nil:
		return a.name == "*"
	}
	return probe.MatchesGlob(a.name, normalName(host))
}

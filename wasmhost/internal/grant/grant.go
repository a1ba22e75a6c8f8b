// Package grant decides which addresses a plugin may connect to and which names it may
// look up.
//
// # Files
//
//	grant.go    Rules: the decisions about one destination
//	parse.go    Parse: the entries that an operator writes
//	address.go  addresses that only an entry of their own grants
package grant

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// Rules are the grants of one plugin. The zero value grants nothing.
type Rules struct {
	target bool // the probe's own target
	dial   []rule
	lookup []string // patterns of host names
}

// rule is one URL of Grant.Dial.
type rule struct {
	scheme           string
	prefix           netip.Prefix // if it is not valid, name counts
	name             string       // a host name or a pattern; for unix, a path or a pattern
	minPort, maxPort uint16
}

// Dest is a destination that a plugin wants to reach.
type Dest struct {
	Network string // tcp, tls, udp or unix; dns for a lookup
	Host    string // address or name; for unix, the path
	Port    uint16
	Target  bool // it is the probe's own target: see IsTarget
}

// String returns the destination as a URL.
func (d Dest) String() string {
	if d.Port == 0 { // a path, or a name to look up
		return d.Network + "://" + d.Host
	}
	if strings.Contains(d.Host, ":") {
		return fmt.Sprintf("%s://[%s]:%d", d.Network, d.Host, d.Port)
	}
	return fmt.Sprintf("%s://%s:%d", d.Network, d.Host, d.Port)
}

// IsTarget reports whether a host and a port are the target's own: its address as it is
// written, and one of its ports or extraPort, unless that is 0.
func IsTarget(t probe.Target, extraPort uint16, host string, port uint16) bool {
	if port == 0 || !sameHost(t.Address, host) {
		return false
	}
	for _, p := range t.Ports {
		if p == port {
			return true
		}
	}
	return port == extraPort
}

func sameHost(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	if err1 == nil && err2 == nil {
		return x.Unmap() == y.Unmap()
	}
	return a != "" && canonicalName(a) == canonicalName(b)
}

// AllowsPath reports whether a Unix socket may be dialled, and returns its path without symbolic links, since one in a granted
// directory must not lead out of it. A path that is granted without a pattern may lead anywhere, and stays as it is. The system is
// asked about paths only that a rule names.
func (r Rules) AllowsPath(name string) (real string, ok bool) {
	var patterns []string
	for _, rule := range r.dial {
		if matches, err := path.Match(rule.name, name); rule.scheme != "unix" || err != nil || !matches {
			continue
		}
		if !strings.ContainsAny(rule.name, wildcards) || !path.IsAbs(name) { // what is not absolute is an abstract name
			return name, true
		}
		patterns = append(patterns, rule.name)
	}
	if len(patterns) == 0 {
		return name, false
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		if info, missing := os.Lstat(name); missing == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", false // it leads nowhere now, but may lead somewhere else soon
		}
		real = name
	}
	return real, slices.ContainsFunc(patterns, func(pattern string) bool { return staysIn(pattern, name, real) })
}

// wildcards begin what is no plain character of a pattern.
const wildcards = `*?[\`

// staysIn reports whether a path that a pattern matches is really where the pattern allows one.
func staysIn(pattern, name, real string) bool {
	if real == name {
		return true
	}
	wild := strings.IndexAny(pattern, wildcards)
	fixed := pattern[:strings.LastIndexByte(pattern[:wild], '/')+1] // the directory that is granted
	dir, err := filepath.EvalSymlinks(fixed)
	if err != nil {
		return false
	}
	matches, err := path.Match(path.Join(escaped.Replace(dir), pattern[len(fixed):]), real)
	return err == nil && matches
}

// escaped makes a path a pattern that matches it.
var escaped = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

// AllowsLookup reports whether the host of a destination may be looked up. Granting every
// lookup would let a plugin send secrets to a name server.
func (r Rules) AllowsLookup(d Dest) bool {
	return r.target && d.Target || r.namesHost(d, false) || r.AllowsResolve(d.Host)
}

// AllowsResolve reports whether a name may be looked up for any purpose.
func (r Rules) AllowsResolve(name string) bool {
	name = canonicalName(name)
	return slices.ContainsFunc(r.lookup, func(pattern string) bool { return matchName(pattern, name) })
}

// AllowsAddr reports whether a destination may be dialled at an address: its own, or one
// that its name resolves to. It is asked right before each address is dialled, so that a
// name server's answer cannot lead where no rule does.
func (r Rules) AllowsAddr(d Dest, ip netip.Addr) bool {
	isLiteral := sameHost(d.Host, ip.String())
	ip = ip.Unmap().WithZone("")
	switch {
	case ip.IsUnspecified():
		return false // it would be this machine
	case slices.ContainsFunc(r.dial, func(rule rule) bool { return rule.covers(d) && rule.prefix.IsSingleIP() && rule.prefix.Addr() == ip }):
		return true
	case needsOwnEntry(ip):
		return isLiteral && r.target && d.Target
	case r.target && d.Target:
		return true
	case !isLiteral && ip.IsLoopback():
		return r.namesHost(d, true)
	}
	inBlock := slices.ContainsFunc(r.dial, func(rule rule) bool {
		loopbackOK := !ip.IsLoopback() || rule.prefix.Addr().IsLoopback() // 0.0.0.0/0 is meant for others
		return rule.covers(d) && rule.prefix.IsValid() && rule.prefix.Contains(ip) && loopbackOK
	})
	return inBlock || !isLiteral && r.namesHost(d, false)
}

// namesHost reports whether a rule has the destination's host name; with exact, as a name
// and not by a pattern.
func (r Rules) namesHost(d Dest, exact bool) bool {
	name := canonicalName(d.Host)
	return slices.ContainsFunc(r.dial, func(rule rule) bool {
		isPattern := strings.HasPrefix(rule.name, "*")
		return !rule.prefix.IsValid() && rule.covers(d) && matchName(rule.name, name) && !(exact && isPattern)
	})
}

// covers reports whether the rule is for the destination's network and port.
func (r rule) covers(d Dest) bool {
	return r.scheme == d.Network && r.minPort <= d.Port && d.Port <= r.maxPort
}

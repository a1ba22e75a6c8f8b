// Package grant decides to which addresses a plugin may connect and which names it may look up.
//
// # Files
//
//	grant.go    Rules: the decisions about one destination
//	parse.go    Parse: the entries of the configuration
//	address.go  addresses that need an entry of their own
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
	prefix           netip.Prefix // if it is invalid, name applies
	name             string       // a host name or a pattern; for unix, a path or a pattern
	minPort, maxPort uint16
}

// Dest is a destination that a plugin wants to reach.
type Dest struct {
	Network string // tcp, tls, udp or unix; dns for a lookup
	Host    string // address or name; for unix, the path
	Port    uint16
	Target  bool // the destination is the probe's own target: see IsTarget
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

// IsTarget reports whether a host and a port belong to the target: the host must be its configured
// address, and the port one of its ports or extraPort. Port 0 never belongs to it.
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

// AllowsPath reports whether a Unix socket may be dialled. It returns the path with symbolic links resolved, since a
// link in a granted directory must not lead out of it. A path that is granted without wildcards may be a link to
// anywhere, and is returned unchanged. The file system is accessed only for paths that match a rule.
func (r Rules) AllowsPath(name string) (real string, ok bool) {
	var patterns []string
	for _, rule := range r.dial {
		if matches, err := path.Match(rule.name, name); rule.scheme != "unix" || err != nil || !matches {
			continue
		}
		if !strings.ContainsAny(rule.name, wildcards) || !path.IsAbs(name) { // a relative path is an abstract name
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
			return "", false // a broken link, which may soon lead elsewhere
		}
		real = name
	}
	return real, slices.ContainsFunc(patterns, func(pattern string) bool { return staysIn(pattern, name, real) })
}

// wildcards are the special characters of a pattern.
const wildcards = `*?[\`

// staysIn reports whether name, which matches pattern and resolves to real, resolves to a path that
// the pattern allows.
func staysIn(pattern, name, real string) bool {
	if real == name {
		return true
	}
	wild := strings.IndexAny(pattern, wildcards)
	fixed := pattern[:strings.LastIndexByte(pattern[:wild], '/')+1] // the granted directory
	dir, err := filepath.EvalSymlinks(fixed)
	if err != nil {
		return false
	}
	matches, err := path.Match(path.Join(escaped.Replace(dir), pattern[len(fixed):]), real)
	return err == nil && matches
}

// escaped converts a path to a pattern that matches only that path.
var escaped = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

// AllowsLookup reports whether the host of a destination may be looked up. With arbitrary lookups a
// plugin could send secrets to a name server.
func (r Rules) AllowsLookup(d Dest) bool {
	return r.target && d.Target || r.namesHost(d, false) || r.AllowsResolve(d.Host)
}

// AllowsResolve reports whether a name may be looked up for any purpose.
func (r Rules) AllowsResolve(name string) bool {
	name = canonicalName(name)
	return slices.ContainsFunc(r.lookup, func(pattern string) bool { return matchName(pattern, name) })
}

// AllowsAddr reports whether a destination may be dialled at ip, which is its own address or one to
// which its name resolves. It must be called right before an address is dialled, so that the
// response of a name server cannot lead to an address that no rule allows.
func (r Rules) AllowsAddr(d Dest, ip netip.Addr) bool {
	isLiteral := sameHost(d.Host, ip.String())
	ip = ip.Unmap().WithZone("")
	switch {
	case ip.IsUnspecified():
		return false // this would connect to this machine
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
		loopbackOK := !ip.IsLoopback() || rule.prefix.Addr().IsLoopback() // 0.0.0.0/0 does not include loopback
		return rule.covers(d) && rule.prefix.IsValid() && rule.prefix.Contains(ip) && loopbackOK
	})
	return inBlock || !isLiteral && r.namesHost(d, false)
}

// namesHost reports whether a rule matches the destination's host name. With exact, patterns do not
// count.
func (r Rules) namesHost(d Dest, exact bool) bool {
	name := canonicalName(d.Host)
	return slices.ContainsFunc(r.dial, func(rule rule) bool {
		isPattern := strings.HasPrefix(rule.name, "*")
		return !rule.prefix.IsValid() && rule.covers(d) && matchName(rule.name, name) && !(exact && isPattern)
	})
}

// covers reports whether the rule applies to the destination's network and port.
func (r rule) covers(d Dest) bool {
	return r.scheme == d.Network && r.minPort <= d.Port && d.Port <= r.maxPort
}

package grant

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Target is the entry that stands for the probed target's own address and ports. It is the default.
const Target = "target"

// Parse parses the entries of Dial and DNS of wasmhost.Grant, and validates those of Env. An error
// is a *probe.FieldError.
func Parse(dialEntries, dns, env []string) (Rules, error) {
	if dialEntries == nil {
		dialEntries = []string{Target}
	}
	var rules Rules
	for _, entry := range dialEntries {
		if entry == Target {
			rules.target = true
			continue
		}
		r, err := parseRule(entry)
		if err != nil {
			return Rules{}, probe.FieldErrorf("grant.dial", "has invalid entry %q: %v", entry, err)
		}
		rules.dial = append(rules.dial, r)
	}
	for _, name := range dns {
		name = canonicalName(name)
		if err := checkPattern(name); err != nil {
			return Rules{}, probe.FieldErrorf("grant.dns", "has invalid entry %q: %v", name, err)
		}
		rules.lookup = append(rules.lookup, name)
	}
	for _, name := range env {
		if name == "" || strings.ContainsAny(name, "*?=$ ") {
			return Rules{}, probe.FieldErrorf("grant.env", "has invalid entry %q: write the whole name of one variable, such as HOME", name)
		}
	}
	return rules, nil
}

func parseRule(entry string) (rule, error) {
	scheme, rest, ok := strings.Cut(entry, "://")
	if !ok {
		return rule{}, errors.New(`scheme is missing; write "target", or a URL such as "tcp://10.0.0.0/8:6379"`)
	}
	r := rule{scheme: scheme}
	switch scheme {
	case "unix":
		r.name = rest
		return r, checkPath(rest)
	case "tcp", "tls", "udp":
	default:
		return rule{}, errors.New("scheme must be tcp, tls, udp or unix")
	}
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 || strings.HasSuffix(rest, "]") {
		return rule{}, errors.New("port is missing; write a number, a range such as 8000-8999, or *")
	}
	var err error
	if r.minPort, r.maxPort, err = parsePorts(rest[colon+1:]); err != nil {
		return rule{}, err
	}
	return r, r.setHost(rest[:colon])
}

func checkPath(pattern string) error {
	if !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "@") {
		return errors.New("path must begin with a slash")
	}
	if clean := path.Clean(pattern); strings.HasPrefix(pattern, "/") && clean != pattern {
		return fmt.Errorf("path is not canonical: write %s", clean)
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return errors.New("path is not a valid pattern")
	}
	return nil
}

// parsePorts parses "80", "8000-8999" or "*".
func parsePorts(s string) (minPort, maxPort uint16, err error) {
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
		return 0, 0, errors.New("port must be a number from 1 to 65535, a range such as 8000-8999, or *")
	}
	return uint16(a), uint16(b), nil
}

// setHost parses an address or CIDR block (with or without brackets), a host name or a pattern.
func (r *rule) setHost(host string) error {
	literal := strings.NewReplacer("[", "", "]", "").Replace(host)
	if ip, err := netip.ParseAddr(literal); err == nil {
		if ip.Zone() != "" {
			return errors.New("address must not have a zone")
		}
		ip = ip.Unmap()
		r.prefix = netip.PrefixFrom(ip, ip.BitLen())
		return nil
	}
	if p, err := netip.ParsePrefix(literal); err == nil {
		if p.Masked() != p {
			return fmt.Errorf("CIDR block is not canonical: write %s", p.Masked())
		}
		if p.Addr().Is4In6() {
			return errors.New("IPv4 CIDR block is written as IPv6: write it as 10.0.0.0/8")
		}
		r.prefix = p
		return nil
	}
	r.name = canonicalName(host)
	return checkPattern(r.name)
}

// checkPattern returns an error unless s is a host name or a pattern whose first label is *, which
// stands for one or more labels.
func checkPattern(s string) error {
	rest := strings.TrimPrefix(s, "*.")
	if dial.IsMistypedIPv4(rest) {
		return errors.New(dial.IPv4Hint)
	}
	if !dial.IsHostName(rest) || rest == "*" {
		return errors.New("host must be an IP address, a CIDR block, a name or a pattern such as *.internal")
	}
	return nil
}

// canonicalName returns the canonical form of a host name: in ASCII and lower case, without a
// trailing dot.
func canonicalName(s string) string {
	return strings.ToLower(strings.TrimSuffix(dial.CanonicalHost(s), "."))
}

// matchName reports whether a canonical name matches a pattern.
func matchName(pattern, name string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(name) > len(suffix) && strings.HasSuffix(name, suffix)
	}
	return pattern == name
}

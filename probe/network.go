package probe

import (
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
)

// Network selects the network of this machine from which a target is probed. The tcp, http and icmp handlers and all plugins use
// it; exec does not. The zero value is the engine's own network. Names are always resolved in the engine's network.
//
// The hcl tags name the arguments of the network block of a target.
type Network struct {
	Namespace string `json:"namespace,omitempty" hcl:"namespace,optional" doc:"network namespace to connect from: a name as ip netns gives it (a file in /run/netns), or an absolute path such as /proc/42/ns/net. The engine needs CAP_SYS_ADMIN. Linux only" default:"that of the engine"`
	Mark      int64  `json:"mark,omitempty" hcl:"mark,optional" doc:"mark of the packets (SO_MARK), by which rules of the system route or filter them. The engine needs CAP_NET_ADMIN. Linux only" default:"0: none" min:"0" max:"4294967295"`
	Interface string `json:"interface,omitempty" hcl:"interface,optional" doc:"network interface or VRF of the namespace through which packets go (SO_BINDTODEVICE). Linux only" default:"the system chooses"`
	Source    string `json:"source,omitempty" hcl:"source,optional" doc:"IP address of the namespace to connect from. The source_address of a handler takes precedence" default:"the system chooses"`
}

// NamespaceDir is the directory in which ip netns keeps named network namespaces.
const NamespaceDir = "/run/netns"

const maxInterface = 15 // bytes: IFNAMSIZ of Linux, with a zero byte

// WithDefaults returns n, since the zero values are the defaults.
func (n Network) WithDefaults() Network { return n }

// Check returns FieldErrors for the fields, such as "namespace", that are invalid on every system, or on this one.
func (n Network) Check() error {
	var wrong FieldErrors
	isPath := strings.HasPrefix(n.Namespace, "/")
	switch {
	case strings.ContainsRune(n.Namespace, 0), !isPath && strings.Contains(n.Namespace, "/"), n.Namespace == ".", n.Namespace == "..":
		wrong.Add("namespace", `is %q; it must be a name such as "blue", or an absolute path`, n.Namespace)
	case n.Mark < 0 || n.Mark > 1<<32-1:
		wrong.Add("mark", "is %d; it must be from 0 to 4294967295", n.Mark)
	}
	if len(n.Interface) > maxInterface || strings.ContainsAny(n.Interface, "/ \t\n\x00") || n.Interface == "." || n.Interface == ".." {
		wrong.Add("interface", `is %q; it must be the name of a network interface, such as "eth0"`, n.Interface)
	}
	if _, err := netip.ParseAddr(n.Source); err != nil && n.Source != "" {
		wrong.Add("source", "is %q; it must be an IP address of this machine", n.Source)
	}
	if needs := (Network{Source: n.Source}); n != needs && runtime.GOOS != "linux" {
		wrong.Add("namespace", "requires Linux, as do mark and interface")
	}
	return wrong.Err()
}

// Path returns the path of the namespace, or "" for that of the engine.
func (n Network) Path() string {
	if n.Namespace == "" || filepath.IsAbs(n.Namespace) {
		return n.Namespace
	}
	return filepath.Join(NamespaceDir, n.Namespace)
}

// SourceAddr returns Source. It is invalid if the system chooses the address. n may be nil.
func (n *Network) SourceAddr() netip.Addr {
	if n == nil || n.Source == "" {
		return netip.Addr{}
	}
	ip, _ := netip.ParseAddr(n.Source)
	return ip.Unmap()
}

// SameNetwork reports whether two targets are probed from the same network.
func (t Target) SameNetwork(u Target) bool { return t.Network.value() == u.Network.value() }

// value returns *n, or the zero value if n is nil.
func (n *Network) value() Network {
	if n == nil {
		return Network{}
	}
	return *n
}

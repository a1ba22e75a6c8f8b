package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/sonde-probe/sonde/probe"
)

// Config defines where a handler connects to. The fields have the names and meanings of those in the handlers' own configurations,
// which validate IPFamily and Addresses.
type Config struct {
	Host string // IP address or host name; default: the target's address
	Port string // 1 to 65535, or the name of one of the target's ports; required without UnixSocket and NoPort

	// NoPort is set if the protocol has no ports. HostPort then returns port 0.
	NoPort bool

	// UnixSocket is the path of a socket to connect to instead of a host and a port. A path that begins with @ is in Linux's
	// abstract namespace.
	UnixSocket string

	// SourceAddress is the IP address of this machine to connect from. Default:
	// the system chooses.
	SourceAddress string

	// IPFamily selects the addresses of a name that are used. Default: all, in the resolver's order.
	IPFamily string

	// Addresses is AllAddresses or SomeAddresses if an attempt is made at each address of a name: see Attempt. Otherwise, or if it
	// is empty, the addresses are tried in order until one accepts.
	Addresses string

	// HalfOpen withholds the last packet of the handshake: a reset ends the connection before the server's Accept returns it. Linux
	// only.
	HalfOpen bool

	// ClientFirst is set if the client sends first. In non-blocking attempts, the last packet of the handshake then carries the
	// data.
	ClientFirst bool

	// KeepAlive has the settings of the keepalive packets of a kept connection. If it is nil, none are sent.
	KeepAlive *KeepAlive
}

// Dialer opens connections as its Config says. The zero value resolves any name and connects to any address. It is safe for
// concurrent use by multiple goroutines, and need not be closed.
type Dialer struct {
	config Config
	source netip.Addr                                                         // not valid: the system chooses
	lookup func(ctx context.Context, host string) ([]netip.Addr, bool, error) // nil: lookupIP
}

// New validates c. An error is a *probe.FieldError with the HCL name of the field.
func New(c Config) (*Dialer, error) {
	c.Host = CanonicalHost(c.Host)
	if err := c.check(); err != nil {
		return nil, err
	}
	d := &Dialer{config: c}
	if c.SourceAddress == "" {
		return d, nil
	}
	source, err := netip.ParseAddr(c.SourceAddress)
	if err != nil {
		return nil, probe.FieldErrorf("source_address", "is %q; it must be an IP address of this machine", c.SourceAddress)
	}
	if d.source = source.Unmap(); !d.family().has(d.source) {
		return nil, probe.FieldErrorf("source_address", "is %s, which is not of the family of ip_family = %q", c.SourceAddress, c.IPFamily)
	}
	return d, nil
}

// family returns the family of addresses that are used.
func (d *Dialer) family() family { return family(d.config.IPFamily) }

func (c Config) check() error {
	if ip, err := netip.ParseAddr(c.Host); err == nil && !family(c.IPFamily).has(ip) {
		return probe.FieldErrorf("ip_family", "is %q, but the host is %s", c.IPFamily, c.Host)
	}
	if problem := HostProblem(c.Host); c.Host != "" && problem != "" {
		return probe.FieldErrorf("host", "is %q%s", c.Host, problem)
	}
	if err := c.KeepAlive.Check(); err != nil {
		return err
	}
	switch {
	case c.HalfOpen && !halfOpenWorks:
		return probe.FieldErrorf("half_open", "works on Linux only")
	case c.UnixSocket != "":
		return c.checkUnix()
	case c.Port == "" && !c.NoPort:
		return &probe.FieldError{Field: "port", Problem: "must be set", Hint: "write a number, or the name of one of the target's ports"}
	}
	if n, err := strconv.Atoi(c.Port); err == nil && (n < 1 || n > 65535) {
		return probe.FieldErrorf("port", "is %d; it must be from 1 to 65535", n)
	}
	return nil
}

func (c Config) checkUnix() error {
	most := len(syscall.RawSockaddrUnix{}.Path) - 1
	switch {
	case c.HalfOpen:
		return probe.FieldErrorf("half_open", "cannot be combined with unix_socket")
	case c.IPFamily != "":
		return probe.FieldErrorf("ip_family", "cannot be combined with unix_socket")
	case IsEach(c.Addresses):
		return probe.FieldErrorf("addresses", "cannot be combined with unix_socket")
	case c.Port != "":
		return probe.FieldErrorf("port", "cannot be combined with unix_socket")
	case c.SourceAddress != "":
		return probe.FieldErrorf("source_address", "cannot be combined with unix_socket")
	case len(c.UnixSocket) > most:
		return probe.FieldErrorf("unix_socket", "is %d bytes long, at most %d are allowed", len(c.UnixSocket), most)
	case strings.ContainsRune(c.UnixSocket, 0):
		return probe.FieldErrorf("unix_socket", "must not contain a zero byte")
	}
	return nil
}

// SourceIn returns the address to connect from in a target's network, which may be nil. It is not valid if the system chooses it.
func (d *Dialer) SourceIn(n *probe.Network) netip.Addr {
	if d.source.IsValid() {
		return d.source
	}
	return n.SourceAddr()
}

// Check returns an error if a target lacks a setting that this dialer needs to reach it. An error is a *probe.FieldError for the
// field "host", "ip_family", "port" or "source_address".
func (d *Dialer) Check(t probe.Target) error {
	if t.Runtime != "" && t.Address == "" {
		t.Address = "container" // the driver sets it later
	}
	host, _, err := d.HostPort(t)
	if missing := (*Error)(nil); errors.As(err, &missing) {
		return missing.Err
	}
	return d.CheckHost(host)
}

// CheckHost returns a *probe.FieldError for the field "source_address" if host is an IP address of another family, otherwise nil.
func (d *Dialer) CheckHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil && !d.reaches(ip) {
		return &probe.FieldError{
			Field: "source_address", Problem: fmt.Sprintf("is %s, from which %s cannot be reached: one is IPv4, the other IPv6", d.source, host),
			Hint: "write an address of the same family, or leave it out",
		}
	}
	return nil
}

// reaches reports whether an address is of the family of the source address, or no source address is set.
func (d *Dialer) reaches(ip netip.Addr) bool {
	return !d.source.IsValid() || d.source.Is4() == ip.Unmap().Is4()
}

// HostPort returns the host and the port to connect to for a target. For a unix socket, it returns the configured host and no port.
// An error is an *Error with outcome Unknown. An empty host is an error: it would be this machine.
func (d *Dialer) HostPort(t probe.Target) (host string, port uint16, err error) {
	if d.config.UnixSocket != "" {
		return d.config.Host, 0, nil
	}
	host = d.config.Host
	if host == "" {
		t.Address = CanonicalHost(t.Address)
		host = t.Address
		if err := checkAddress(t); err != nil {
			return "", 0, unknown(probe.ReasonNoAddr, err)
		}
		if ip, err := netip.ParseAddr(host); err == nil && !d.family().has(ip) {
			return "", 0, unknown(probe.ReasonNoAddr, probe.FieldErrorf("ip_family", "is %q, but the address of target %s is %s", d.config.IPFamily, t.Name, host))
		}
	}
	if d.config.NoPort {
		if d.config.Host == "" && t.IsTranslated() {
			return "", 0, unknown(probe.ReasonNoAddr, probe.FieldErrorf("address", "of target %s is that of the machine that publishes its ports: probe a published port, for example by tcp", t.Name))
		}
		return host, 0, nil
	}
	if port, err = t.Port(d.config.Port); err != nil {
		return "", 0, unknown(probe.ReasonNoPort, err)
	}
	return host, port, nil
}

// Endpoint returns the host and port for a target, "host:80", or the path of the unix socket. The port is 0 if the protocol has
// none. Endpoint returns "" if HostPort returns an error.
func (d *Dialer) Endpoint(t probe.Target) string {
	host, port, err := d.HostPort(t)
	switch {
	case err != nil:
		return ""
	case d.config.UnixSocket != "":
		return d.config.UnixSocket
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func checkAddress(t probe.Target) error {
	if t.Address == "" {
		return probe.FieldErrorf("host", "must be set, since target %s has no address", t.Name)
	}
	if problem := HostProblem(t.Address); problem != "" {
		return probe.FieldErrorf("host", "must be set, since the address of target %s is %q%s", t.Name, t.Address, problem)
	}
	return nil
}

//go:build !wasip1

package guest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// localErrors are unrelated to the target: this machine could not dial.
var localErrors = []syscall.Errno{syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS}

// isApart returns false: outside WebAssembly, package net reaches the target.
func isApart(error) bool { return false }

// systemReason returns the reason of an error that occurs only outside WebAssembly, or "".
func systemReason(err error) string {
	var (
		dns     *net.DNSError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "dns.nxdomain"
	case errors.As(err, &dns):
		return "dns.failed"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "tls.expired"
	case errors.As(err, &name):
		return "tls.name"
	case errors.As(err, &cert):
		return "tls.untrusted"
	case errors.As(err, &record):
		return "tls.failed"
	}
	return ""
}

// host simulates a host for one probe. It must be used by one attempt at a time.
type host struct {
	endpoint
	open    []*Conn // of this attempt
	kept    map[string]net.Conn
	memory  []byte
	metrics map[string]float64
}

func (h *host) dial(ctx context.Context, network, address string, secure TLS) (*Conn, error) {
	op := "dial " + network + " " + address
	system, full, err := h.resolveAddress(network, address)
	if err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	var d net.Dialer
	raw, err := d.DialContext(ctx, system, full)
	if err != nil {
		return nil, connError(op, err)
	}
	c := &Conn{Conn: raw, host: full}
	if network == "tls" {
		if err := c.handshake(ctx, secure); err != nil {
			raw.Close()
			return nil, connError(op, err)
		}
	}
	h.open = append(h.open, c)
	return c, nil
}

// resolveAddress returns the network and the address for package net.
func (h *host) resolveAddress(network, address string) (system, full string, err error) {
	switch network {
	case "unix":
		return network, address, nil
	case "tcp", "tls", "udp":
	default:
		return "", "", fmt.Errorf("network %q is unknown: use tcp, tls, udp or unix", network)
	}
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", "", err
	}
	if name == "" {
		name = h.address
	}
	if number, ok := h.ports[port]; ok {
		port = strconv.Itoa(int(number))
	}
	if network == "tls" {
		network = "tcp"
	}
	return network, net.JoinHostPort(name, port), nil
}

// connError returns an *Error for a failure to connect to the target.
func connError(op string, err error) error {
	e := &Error{Op: op, Reason: reasonOf(err), Err: err}
	if e.Reason == "" && !notTarget(err) {
		e.Reason = "tcp.failed"
	}
	return e
}

func (h *host) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, connError("resolve "+name, err)
	}
	return found, nil
}

func (h *host) hold(key string, c *Conn) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("hold: key is %d bytes long, must be from 1 to %d", len(key), MaxKey)
	}
	if c.gone {
		return &Error{Op: "hold " + key, Err: net.ErrClosed}
	}
	if h.kept == nil {
		h.kept = make(map[string]net.Conn)
	}
	if before := h.kept[key]; before != nil {
		before.Close()
	}
	h.kept[key], c.gone = c.Conn, true
	return nil
}

func (h *host) held(key string) (*Conn, bool) {
	raw := h.kept[key]
	if raw == nil {
		return nil, false
	}
	delete(h.kept, key)
	c := &Conn{Conn: raw}
	h.open = append(h.open, c)
	return c, true
}

// end closes the connections that the attempt left open.
func (h *host) end() {
	for _, c := range h.open {
		c.Close()
	}
	h.open = nil
}

func (h *host) state() []byte { return append([]byte{}, h.memory...) }

func (h *host) setState(b []byte) error {
	if len(b) > MaxState {
		return fmt.Errorf("state: %d bytes, at most %d are allowed", len(b), MaxState)
	}
	h.memory = append(h.memory[:0], b...)
	return nil
}

func (h *host) log(_ Level, text string) { log.Print(text) }

func (h *host) metric(kind int32, name string, value float64) {
	if h.metrics == nil {
		h.metrics = make(map[string]float64)
	}
	if kind == counter {
		value += h.metrics[name]
	}
	h.metrics[name] = value
}

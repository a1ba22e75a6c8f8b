// Package icmpprobe is the icmp handler: an attempt succeeds when the target replies to an
// ICMP echo request, like the one that ping sends.
//
// A reply shows that the host is up, not that any program on it works.
//
// Each attempt opens a socket and closes it at once. It uses a ping socket, which needs no
// privileges if net.ipv4.ping_group_range includes a group of the process, or else a raw
// socket, which needs CAP_NET_RAW. An attempt that may open neither is unknown. The handler
// works on Linux only.
//
// # Files
//
//	icmp.go          Config, New and handler
//	echo.go          requests, replies and errors in wire format
//	socket_linux.go  sockets: sending, receiving, and errors that the kernel reports
package icmpprobe

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/probe"
)

// The payload of a request, in bytes.
const (
	defaultPayload = 56 // as ping sends
	MinPayload     = 16 // identifies the reply: random bytes
	MaxPayload     = 65_507
)

// Config is an icmp block. The zero value of a field means its default.
type Config struct {
	Host          string `hcl:"host,optional" doc:"IP address or host name to send the request to" default:"the address of the target"`
	SourceAddress string `hcl:"source_address,optional" doc:"IP address of this machine to send from" default:"the system chooses"`
	IPFamily      string `hcl:"ip_family,optional" oneof:"any 4 6 prefer_4 prefer_6" doc:"which IP addresses of a name are used: only IPv4 or only IPv6, or those first; without another address the attempt fails" default:"any"`
	Addresses     string `hcl:"addresses,optional" oneof:"any some all" doc:"what a name with several addresses takes: any of them, tried in order until one replies, or an attempt at all of them, at most eight, which share nine tenths of the timeout. With all the worst one decides. With some the target passes if one does, and an address that fails is a warning. The detail shows each" default:"any"`
	Count         int    `hcl:"count,optional,nonzero" doc:"how many requests an attempt sends, one after the other; they share nine tenths of the timeout. It fails if none is replied to, and is a warning (icmp.loss) if some are not" default:"1" min:"1" max:"20"`
	PayloadSize   int    `hcl:"payload_size,optional,nonzero" doc:"bytes of the request behind its header of 8 bytes; the reply must have the same" default:"56" min:"16" max:"65507"`
	TTL           int    `hcl:"ttl,optional,nonzero" doc:"how many routers may pass the request on, plus one: its time to live, or hop limit over IPv6" default:"that of the system, often 64" min:"1" max:"255"`
	DontFragment  bool   `hcl:"dont_fragment,optional" doc:"the attempt fails if the request does not fit through a network on the way as a whole" default:"false"`
}

// handler makes ICMP attempts, each with its own socket. It is safe for concurrent use by multiple goroutines.
type handler struct {
	dialer       *dial.Dialer
	count        int
	payloadSize  int
	ttl          int // 0: the default of the system
	dontFragment bool
	onlyRaw      bool // for tests: do not try a ping socket
}

// KernelAnswers returns true: the kernel of the target replies, whatever its programs do.
func (h *handler) KernelAnswers() bool { return true }

// New creates a handler. An error is a *probe.FieldError with the HCL name of the field.
func New(c Config) (probe.Handler, error) {
	if err := cmp.Or(limits.Check(c, "").Err(), checkUnicast("is", c.Host)); err != nil {
		return nil, err
	}
	dialer, err := dial.New(dial.Config{Host: c.Host, NoPort: true, SourceAddress: c.SourceAddress, IPFamily: c.IPFamily, Addresses: c.Addresses})
	if err != nil {
		return nil, err
	}
	return &handler{dialer: dialer, count: cmp.Or(c.Count, 1), payloadSize: cmp.Or(c.PayloadSize, defaultPayload), ttl: c.TTL, dontFragment: c.DontFragment}, nil
}

// Check returns an error if a target lacks a setting that this handler needs. An error is a *probe.FieldError for the field "host"
// or "ip_family".
func (h *handler) Check(t probe.Target) error {
	if err := h.dialer.Check(t); err != nil {
		return err
	}
	host, _, err := h.dialer.HostPort(t)
	if err != nil {
		return err
	}
	return checkUnicast("must be set, since the address of target "+t.Name+" is", host)
}

// Endpoint returns the host that attempts send to, with port 0: "10.0.0.7:0".
func (h *handler) Endpoint(t probe.Target) string { return h.dialer.Endpoint(t) }

// checkUnicast returns an error if host is the address of a group of hosts. The error begins with problem.
func checkUnicast(problem, host string) error {
	if ip, err := netip.ParseAddr(host); err == nil && isGroup(ip) {
		return probe.FieldErrorf("host", "%s %s, to which many hosts reply; write the address of one host", problem, host)
	}
	return nil
}

// isGroup reports whether an address is that of many hosts. Only the system knows the broadcast addresses of networks, and it
// refuses to send to them.
func isGroup(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// Probe makes one attempt. In the result, Timings.Connect is the time to open the socket, and Timings.FirstByte the round-trip
// time.
func (h *handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	host, _, err := h.dialer.HostPort(t)
	if err != nil {
		return dial.Result(err)
	}
	return h.dialer.Attempt(dial.InNetwork(ctx, &t), host, 0, func(ctx context.Context) probe.Result {
		var took probe.Timings
		result := h.ping(ctx, host, &took)
		result.Timings = took
		return result
	})
}

// ping sends a request to the addresses of a host in order until one replies.
func (h *handler) ping(ctx context.Context, host string, took *probe.Timings) probe.Result {
	ips, err := h.dialer.Addresses(ctx, host, 0, took)
	if err != nil {
		return dial.Result(err)
	}
	ips = ips[:min(len(ips), dial.MaxAddresses)]
	peer, lost := ips[0], 0
	hops, failed := dial.FirstOf(ctx, dial.Pinging, ips, func(ctx context.Context, ip netip.Addr) (hopLimit uint8, err error) {
		if isGroup(ip) {
			return 0, &dial.Error{Outcome: probe.Unknown, Reason: probe.ReasonNoAddr, Err: errors.New(ip.String() + " is not the address of one host")}
		}
		hopLimit, lost, err = h.exchanges(ctx, ip, took)
		if err == nil {
			peer = ip
		}
		return hopLimit, err
	})
	peer = peer.WithZone("")
	probe.RecordTrace(ctx, func(t *probe.Trace) { t.Peer, t.HopLimit = peer, hops })
	if failed != nil {
		result := dial.Result(failed)
		result.NoRetry = failed.Reason == probe.ReasonPermission
		return result
	}
	result := probe.Succeed("")
	if lost > 0 {
		result = probe.Warn(reasonLoss, "%d of %d requests were not replied to in time", lost, h.count)
	}
	if ip, err := netip.ParseAddr(host); err != nil || ip.Unmap().WithZone("") != peer {
		result.SetFacts(probe.Facts{Peer: peer})
	}
	return result
}

// reasonLoss is the reason of a warning: some requests of several got no reply.
const reasonLoss probe.Reason = "icmp.loss"

// exchanges sends the requests of an attempt to an address, and returns the number of requests that got no reply in time. It
// returns an error if all timed out, or if any failed otherwise.
func (h *handler) exchanges(ctx context.Context, to netip.Addr, took *probe.Timings) (hopLimit uint8, lost int, err error) {
	if h.count > 1 {
		var cancel context.CancelFunc
		ctx, cancel = dial.WithReserve(ctx)
		defer cancel()
	}
	for i := range h.count {
		share, cancel := dial.WithShare(ctx, h.count-i)
		hops, failed := h.exchange(share, to, took)
		known, isKnown := errors.AsType[*dial.Error](failed)
		if failed != nil && !isKnown {
			known = dial.Classify(share, dial.Pinging, failed)
		}
		cancel()
		switch {
		case known == nil:
			hopLimit = hops
		case known.Reason != probe.ReasonICMPTimeout:
			return 0, 0, known
		default:
			lost, err = lost+1, known
		}
	}
	if lost < h.count {
		err = nil
	}
	return hopLimit, lost, err
}

// Permission returns an error if this process may not send echo requests. Its text says how to permit it.
func Permission() error { return permission() }

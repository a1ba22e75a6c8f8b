package dial

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Values of Config.Addresses for which an attempt is made at each address of a name.
const (
	AllAddresses  = "all"  // the worst result decides
	SomeAddresses = "some" // the attempt passes if one address passes; failures at others make it a warning
)

// IsEach reports whether a value of Config.Addresses is AllAddresses or SomeAddresses.
func IsEach(addresses string) bool { return addresses == AllAddresses || addresses == SomeAddresses }

// pinKey is the context key of the pin, the address that Open connects to for a host: see Attempt.
type pinKey struct{}

type pin struct {
	host string
	ip   netip.Addr
}

// Attempt makes an attempt by calling once. With AllAddresses or SomeAddresses and a name as the host, it calls once for each
// address of the name, one after the other; they share the remaining time. Once must connect by Open, which then connects only to
// that address. Other hosts, such as those of redirects, are not affected.
//
// The result is the worst one: a failure, or else an unknown, a warning or a success. With SomeAddresses it is the best one if that
// passes, as a warning with the reason of the worst result if any address failed. Its detail has the outcome at each address. The
// result for a name with more than MaxAddresses addresses is Unknown.
func (d *Dialer) Attempt(ctx context.Context, host string, port uint16, once func(context.Context) probe.Result) probe.Result {
	_, err := netip.ParseAddr(host)
	if isLiteral := err == nil; !IsEach(d.config.Addresses) || isLiteral || d.config.UnixSocket != "" {
		return once(ctx)
	}
	var took probe.Timings
	ips, err := d.Addresses(ctx, host, port, &took)
	if err != nil {
		r := Result(err)
		r.Timings.Resolve = took.Resolve
		return r
	}
	if len(ips) > MaxAddresses {
		return Result(unknown(probe.ReasonNoAddr, fmt.Errorf("%s has %d addresses, at most %d can be checked: use addresses = \"any\"", host, len(ips), MaxAddresses)))
	}
	limited, cancel := WithReserve(ctx)
	defer cancel()
	results := make([]probe.Result, 0, len(ips))
	for i, ip := range ips {
		some, cancel := WithShare(context.WithValue(limited, pinKey{}, pin{host, ip}), len(ips)-i)
		results = append(results, once(some))
		cancel()
		if errors.Is(ctx.Err(), context.Canceled) {
			return Result(Cancelled())
		}
	}
	r := joint(ips, results, d.config.Addresses == SomeAddresses)
	r.Timings.Resolve += took.Resolve
	return r
}

// WithShare returns a context that expires after one of n even shares of the remaining time.
func WithShare(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || n == 1 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
}

// WithReserve returns a context that expires after nine tenths of the remaining time: an attempt that passes although a part of it
// got no response must not be late.
func WithReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(end)*9/10)
}

// Addresses returns the addresses of a host that may be used, at least one, in the order in which to try them. An error is an
// *Error.
func (d *Dialer) Addresses(ctx context.Context, host string, port uint16, took *probe.Timings) ([]netip.Addr, error) {
	if p, ok := ctx.Value(pinKey{}).(pin); ok && strings.EqualFold(p.host, host) {
		return Allowed(ctx, host, []netip.Addr{p.ip}, port) // a redirect may lead to another port
	}
	ips, err := d.Resolve(ctx, host, took)
	if err != nil {
		return nil, err
	}
	if ips, err = d.usable(host, ips); err != nil {
		return nil, err
	}
	return Allowed(ctx, host, ips, port)
}

// joint combines the results at several addresses; results must not be empty.
func joint(ips []netip.Addr, results []probe.Result, isSome bool) probe.Result {
	order := []probe.Outcome{probe.Success, probe.Warning, probe.Unknown, probe.Failure}
	best, worst, expiry := results[0], results[0], int64(0)
	var texts []string
	for i, r := range results {
		if slices.Index(order, r.Outcome) > slices.Index(order, worst.Outcome) {
			worst = r
		}
		if slices.Index(order, r.Outcome) < slices.Index(order, best.Outcome) {
			best = r
		}
		if expiry == 0 || r.CertificateExpiry != 0 && r.CertificateExpiry < expiry {
			expiry = r.CertificateExpiry
		}
		text := fmt.Sprintf("%v %v", ips[i], r.Outcome)
		for _, more := range []string{string(r.Reason), r.Detail} {
			if more != "" {
				text += ": " + more
			}
		}
		texts = append(texts, probe.CleanText(text, maxText))
	}
	r := worst
	if passes := best.Outcome == probe.Success || best.Outcome == probe.Warning; isSome && passes {
		if r = best; worst.Outcome != probe.Unknown { // Unknown says nothing about an address
			r.Outcome, r.Reason = min(worst.Outcome, probe.Warning), worst.Reason
		}
	}
	r.Detail, r.CertificateExpiry = strings.Join(texts, "; "), expiry
	return r
}

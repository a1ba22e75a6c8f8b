package dial

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/sonde-probe/sonde/probe"
)

// allowFunc returns why connections to an address are not allowed, as words that follow the address in a sentence, or nil if they
// are. The address is one of the host's addresses, or the host itself.
type allowFunc func(host string, to netip.AddrPort) error

type allowKey struct{}

// WithAllow returns a context for attempts that connect only where allow permits, wherever a name or a redirect leads. They cannot
// connect to unix sockets.
func WithAllow(ctx context.Context, allow allowFunc) context.Context {
	return context.WithValue(ctx, allowKey{}, allow)
}

// IsRestricted reports whether ctx comes from WithAllow. An attempt with such a context must not use a connection that another
// attempt opened.
func IsRestricted(ctx context.Context) bool { return ctx.Value(allowKey{}) != nil }

// Allowed filters the addresses of a host, in place: it keeps those to which the attempt with that context may connect. If none is
// left, the error is an *Error about the first address.
func Allowed(ctx context.Context, host string, ips []netip.Addr, port uint16) ([]netip.Addr, error) {
	allow, ok := ctx.Value(allowKey{}).(allowFunc)
	if !ok {
		return ips, nil
	}
	allowed := ips[:0]
	var refused error
	for _, ip := range ips {
		to := netip.AddrPortFrom(ip, port)
		switch err := allow(host, to); {
		case err == nil:
			allowed = append(allowed, ip)
		case refused == nil:
			refused = fmt.Errorf("%v %w", to, err)
		}
	}
	if len(allowed) == 0 && refused != nil {
		return nil, failure(probe.ReasonNotAllowed, refused)
	}
	return allowed, nil
}

var errUnixRestricted = errors.New("unix sockets are not allowed in this attempt")

// Package connect dials targets for the plugins in Go.
package connect

import (
	"context"
	"strconv"

	"github.com/sonde-probe/sonde/guest"
)

// Dial connects to a port of the target, over tcp or udp, or over TLS if secure is not nil. Reads and writes
// fail at ctx's deadline.
func Dial[S any](ctx context.Context, t guest.Target[S], network, port string, secure *guest.TLS, alpn ...string) (c *guest.Conn, err error) {
	if secure == nil {
		c, err = t.Dial(ctx, network, ":"+port)
	} else {
		config := *secure
		config.ALPN = alpn
		c, err = t.DialTLS(ctx, ":"+port, config)
	}
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		// An error shows in the first read.
		_ = c.SetDeadline(deadline)
	}
	return c, nil
}

// Port returns the number of a port, which may be the name of one of the target's ports.
func Port[S any](t guest.Target[S], port string) string {
	if n, ok := t.Ports[port]; ok {
		return strconv.Itoa(int(n))
	}
	return port
}

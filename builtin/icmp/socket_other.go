//go:build !linux

package icmpprobe

import (
	"context"
	"errors"
	"net/netip"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

var errUnsupported = errors.New("icmp works on Linux only")

func permission() error { return errUnsupported }

// exchange always returns an error on this system.
func (h *handler) exchange(context.Context, netip.Addr, *probe.Timings) (hopLimit uint8, err error) {
	return 0, &dial.Error{Outcome: probe.Unknown, Reason: probe.ReasonPermission, Err: errUnsupported}
}

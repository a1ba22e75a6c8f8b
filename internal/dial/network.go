package dial

import (
	"context"
	"errors"
	"syscall"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
)

// networkKey is the context key of an attempt's *probe.Network.
type networkKey struct{}

// InNetwork returns a context for attempts that connect from a target's network.
func InNetwork(ctx context.Context, t *probe.Target) context.Context {
	if t.Network == nil {
		return ctx
	}
	return context.WithValue(ctx, networkKey{}, t.Network)
}

// NetworkOf returns the network of an attempt's target, or nil.
func NetworkOf(ctx context.Context) *probe.Network {
	n, _ := ctx.Value(networkKey{}).(*probe.Network)
	return n
}

// NetworkError returns the *Error for an error of nonblock.OpenIn. It says nothing about the target.
func NetworkError(err error) *Error {
	why := probe.ReasonNetwork
	number := syscall.Errno(0)
	lacks := (*nonblock.NetworkError)(nil)
	if errors.As(err, &lacks) {
		number = lacks.Errno
	} else {
		errors.As(err, &number)
	}
	switch {
	case shortage.IsErrno(number):
		why = probe.ReasonResources
	case number == syscall.EPERM, number == syscall.EACCES:
		why = probe.ReasonPermission
	}
	return unknown(why, err)
}

package tcpprobe

import (
	"context"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// reusing makes attempts that send and expect over one connection, which it keeps between attempts. It belongs to one probe: see
// ForProbe. An attempt that Probe makes, for example at a host name, opens its own connection.
type reusing struct {
	*handler
	kept nonblock.Kept
}

var (
	_ probe.StatefulHandler = (*reusing)(nil)
	_ probe.WakingHandler   = (*reusing)(nil)
	_ nonblock.Stepper      = (*reusing)(nil)
)

// ForProbe returns a handler that keeps its own connection.
func (r *reusing) ForProbe() probe.Handler { return &reusing{handler: r.handler} }

// Step is handler.Step over the kept connection.
func (r *reusing) Step(a *nonblock.Attempt) nonblock.Progress {
	a.Kept = &r.kept
	return r.handler.Step(a)
}

// ProbeWaking is Probe: it keeps no connection whose end would have to be reported.
func (r *reusing) ProbeWaking(ctx context.Context, t probe.Target, _ func()) probe.Result {
	return r.Probe(ctx, t)
}

// Close closes the connection.
func (r *reusing) Close() error {
	r.kept.Close()
	return nil
}

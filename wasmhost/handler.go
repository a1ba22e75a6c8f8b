package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// Handler runs attempts of a plugin with one set of settings. Plugin.New creates it. It is safe for
// concurrent use by multiple goroutines.
//
// A handler has the state and the held connections of one probe. If several probes have the same
// settings, each needs its own handler: see ForProbe.
type Handler struct {
	plugin   *Plugin
	settings *settings.Settings
	checked  *settingsCheck
	state    *sandbox.State
	traps    probeTraps
	lane     atomic.Uint32 // the lane of the next attempt
}

// newHandler returns a handler without state; its next attempt is a first attempt.
func newHandler(p *Plugin, s *settings.Settings, checked *settingsCheck) *Handler {
	h := &Handler{plugin: p, settings: s, checked: checked, state: p.tenant.NewState()}
	h.lane.Store(uint32(laneFirst))
	return h
}

var (
	_ probe.EndpointHandler  = (*Handler)(nil)
	_ probe.WakingHandler    = (*Handler)(nil)
	_ probe.PreparingHandler = (*Handler)(nil)
	_ probe.StatefulHandler  = (*Handler)(nil)
)

// ForProbe returns a handler with the same settings for another probe. The settings
// are not checked again.
func (h *Handler) ForProbe() probe.Handler {
	return newHandler(h.plugin, h.settings, h.checked)
}

// Measures returns true for any name: the plugin chooses the numbers that it measures.
func (h *Handler) Measures(string) bool { return true }

// WithoutPrepared returns a handler with the same settings, for tests of the plugin. Its attempts do
// not receive the data that the module prepared during its check of settings, as if this machine
// lacked the memory for it.
func (h *Handler) WithoutPrepared() *Handler {
	c := &settingsCheck{unprepared: true}
	c.result.Store(&checkResult{err: h.checked.state()})
	return newHandler(h.plugin, h.settings, c)
}

// Ready returns a channel that is closed when compilation of the plugin has succeeded or failed.
// Until then Probe returns Unknown with reasonCompiling at once.
func (h *Handler) Ready() <-chan struct{} { return h.plugin.Ready() }

// Check returns an error if a target lacks the port that the setting called port names. It also
// returns an error if the plugin may connect to the target only, the setting has its default, and
// the target does not name that port. The error is a *probe.FieldError.
func (h *Handler) Check(t probe.Target) error {
	s := h.settings
	if s.PortName == "" {
		return nil
	}
	number, err := t.Port(s.PortName)
	if err != nil {
		return err
	}
	if s.Port == 0 && h.plugin.targetOnly && !slices.Contains(slices.Collect(maps.Values(t.Ports)), number) {
		return probe.FieldErrorf("port", "defaults to %d, which is not granted: set port = %q, or add it to the target's ports",
			number, s.PortName)
	}
	return nil
}

// Endpoint returns the target's address with the setting called port, or with all of the
// target's ports if the plugin has no such setting: "10.0.0.7:http=80,metrics=90".
func (h *Handler) Endpoint(t probe.Target) string {
	if h.settings.PortName == "" {
		var ports []string
		for _, name := range slices.Sorted(maps.Keys(t.Ports)) {
			ports = append(ports, fmt.Sprintf("%s=%d", name, t.Ports[name]))
		}
		return net.JoinHostPort(t.Address, strings.Join(ports, ","))
	}
	port, err := t.Port(h.settings.PortName)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(t.Address, strconv.Itoa(int(port)))
}

// Close closes the connections that are held for the probe. Running attempts continue; later
// attempts cannot hold connections. It never returns an error.
func (h *Handler) Close() error {
	h.state.Close()
	h.plugin.breaker.remove(&h.traps)
	return nil
}

// Probe makes one attempt. After ctx is done it returns within abi.Grace, plus the delay described
// under "Time" in the package documentation.
func (h *Handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	return h.ProbeWaking(ctx, t, nil)
}

// ProbeWaking makes one attempt as Probe does. It also arranges that wake is called when a
// connection that is held for the probe is closed by its peer: once for each connection, and at
// most once a second. This works on Linux only; on other systems the next attempt finds the
// connection closed.
func (h *Handler) ProbeWaking(ctx context.Context, t probe.Target, wake func()) probe.Result {
	p := h.plugin
	if err := h.unready(ctx); err != nil {
		return p.notAttempted(err)
	}
	l, err := p.borrow(ctx, lane(h.lane.Load()))
	if err != nil {
		return p.notAttempted(err)
	}
	r := l.Run(dial.InNetwork(ctx, &t), sandbox.Attempt{Target: t, Settings: h.settings, State: h.state, Prepared: h.checked.preparedText(), Wake: wake})
	result, pluginFault := p.resultOf(ctx, r)
	h.lane.Store(uint32(laneAfter(ctx, result, l)))
	p.release(l) // a reset takes time, in which ctx may be done
	p.counters.attempts.Add(1)
	p.counters.fuel.Add(uint64(max(r.Fuel, 0)))
	p.counters.fault(result.Reason)
	if pluginFault {
		p.logger.Warn("plugin error", "target", t.Name, "reason", string(result.Reason), "detail", result.Detail)
	}
	h.record(r, pluginFault, t.Name)
	return result
}

// resizing reports whether the pool may grow or should shrink after a call. A call that returned
// lets it grow, even if it waited for a processor: with many hanging calls that need no processor,
// fewer instances would only keep others waiting. A call that was stopped after it had waited for a
// processor makes it shrink, because calls compete for the processors. A call that was stopped
// through its own fault changes nothing.
func resizing(r sandbox.Report) (more, fewer bool) {
	return r.Ending == sandbox.Returned, r.Ending == sandbox.Stopped && r.Starved && !r.RanAway
}

// laneAfter returns the lane of a probe's next attempt. It is laneFast if this attempt succeeded or
// used less than half of its time, because the next one probably will too.
func laneAfter(ctx context.Context, r probe.Result, l lease) lane {
	end, ok := ctx.Deadline()
	passed := r.Outcome == probe.Success || r.Outcome == probe.Warning
	if passed || !ok || time.Now().Add(time.Since(l.since)).Before(end) {
		return laneFast
	}
	return laneSlow
}

// attemptError is the error of an attempt that could not be made.
type attemptError struct {
	reason probe.Reason
	err    error
}

func (e *attemptError) Error() string { return e.err.Error() }
func (e *attemptError) Unwrap() error { return e.err }

var errCancelled = errors.New("the attempt was cancelled")

// unready returns an error if no attempt can be made now, or nil.
func (h *Handler) unready(ctx context.Context) error {
	if err := h.plugin.state(); err != nil {
		return &attemptError{reasonBroken, err}
	}
	switch plugin, own := h.plugin.breaker.remaining(&h.traps, time.Now()); {
	case plugin > 0:
		return &attemptError{reasonSuspended, fmt.Errorf("plugin is suspended for another %v: it failed at many targets", plugin.Round(time.Second))}
	case own > 0:
		return &attemptError{reasonSuspended, fmt.Errorf("probe is suspended for another %v: too many plugin errors", own.Round(time.Second))}
	}
	return h.accepted(ctx)
}

// notAttempted returns the result of an attempt that could not be made.
func (p *Plugin) notAttempted(err error) probe.Result {
	why := &attemptError{reasonBroken, err}
	errors.As(err, &why)
	switch {
	case errors.Is(err, errCompiling):
		return probe.Broken(reasonCompiling, "%v", err)
	case errors.Is(err, errClosed):
		return probe.Broken(reasonClosed, "%v", err)
	}
	if why.reason != reasonStart { // startFailed has already recorded it
		p.counters.fault(why.reason) // ignores reasons that are not plugin faults
	}
	r := probe.Broken(why.reason, "%s", firstLine(err))
	r.NoRetry = why.reason == ReasonBusy || why.reason == reasonSuspended // a retry would only lengthen the queue
	return r
}

// record adapts the number of instances after a call. If the call returned or the plugin is at
// fault, record counts it, and suspends the probe or the plugin after too many faults. Other calls
// do not count for or against the plugin.
func (h *Handler) record(r sandbox.Report, pluginFault bool, target string) {
	p := h.plugin
	switch more, fewer := resizing(r); {
	case more:
		p.pool.grow()
	case fewer:
		p.pool.shrink()
	}
	if r.Ending != sandbox.Returned && !pluginFault {
		return
	}
	plugin, own := p.breaker.count(&h.traps, pluginFault, time.Now())
	if own > 0 {
		p.logger.Warn("probe suspended: too many plugin errors; it makes no attempts", "target", target, "duration", own)
	}
	p.logSuspension(plugin)
}

// logSuspension logs that the plugin is suspended, unless d is 0.
func (p *Plugin) logSuspension(d time.Duration) {
	if d > 0 {
		p.logger.Error("plugin suspended: too many errors; its probes make no attempts", "duration", d)
	}
}

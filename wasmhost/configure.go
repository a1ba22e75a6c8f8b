package wasmhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/pool"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// settingsCheck is the module's own check of a handler's settings. Handlers with the same
// settings share it.
type settingsCheck struct {
	tried  chan struct{} // closed when there is a result
	result atomic.Pointer[checkResult]
}

// checkResult is the result of a check.
type checkResult struct {
	err      error     // what is wrong with the settings, or an *attemptError: why they could not be checked
	prepared *prepared // for attempts; nil: nothing
}

// set sets the result. Only that of a check that could not be made is replaced.
func (c *settingsCheck) set(r *checkResult) {
	if c.result.Swap(r) == nil {
		close(c.tried)
	}
}

var errUnchecked = &attemptError{ReasonStarting, errors.New("the settings are not checked yet")}

// state returns nil when the settings are accepted, and the reason why no attempt can be made
// otherwise.
func (c *settingsCheck) state() error {
	if r := c.result.Load(); r != nil {
		return r.err
	}
	return errUnchecked
}

// New makes a handler. Its settings have the names and types of the manifest: string,
// int64, float64, bool, time.Duration, []string, map[string]string, and map[string]any
// for a block; those that are absent have their defaults. An error about one setting is a
// *probe.FieldError.
//
// A module that exports sonde_configure checks settings itself, as soon as it is compiled.
// If it rejects them after New has returned, each attempt is Unknown with ReasonSettings;
// to get that error from New, call Wait first. While this machine lacks what the check needs,
// attempts are Unknown with the reason, and the check is made again: see Handler.Unchecked.
func (p *Plugin) New(values map[string]any) (*Handler, error) {
	s, err := settings.New(p.manifest.Settings, values)
	if err != nil {
		return nil, err
	}
	h := newHandler(p, &s, &settingsCheck{tried: make(chan struct{})})
	if p.checkLater(h) {
		return h, nil
	}
	r := p.configure(h, p.limits.Start)
	if r.err != nil && !isTransient(r.err) {
		return nil, r.err
	}
	h.checked.set(r)
	if r.err != nil {
		p.pendingMu.Lock()
		defer p.pendingMu.Unlock()
		p.retrying = true
		p.addPending(h)
	}
	return h, nil
}

// isTransient reports whether a check of settings could not be made, for a reason that is not the
// module's.
func isTransient(err error) bool {
	unchecked := (*attemptError)(nil)
	return errors.As(err, &unchecked) && (unchecked.reason != ReasonStart || errors.Is(err, sandbox.ErrStarved))
}

// Unchecked returns why the module has not checked the settings yet, or nil. It tries again until
// the plugin is closed.
func (h *Handler) Unchecked() error {
	err := h.checked.state()
	if unchecked := (*attemptError)(nil); errors.As(err, &unchecked) {
		return fmt.Errorf("plugin %s: settings could not be checked now, they may be valid: %s", h.plugin.name, firstLine(err))
	}
	return nil
}

// checkLater leaves the check of a handler's settings to checkPending, and returns true, if the module
// is still being compiled, a check could not be made, or one has just exceeded its time: so many
// blocks of a module that hangs do not take that time each.
func (p *Plugin) checkLater(h *Handler) bool {
	p.pendingMu.Lock()
	defer p.pendingMu.Unlock()
	later := p.retrying || time.Since(p.lateCheck) < p.limits.Start || errors.Is(p.compiled.state(), errCompiling)
	if later {
		p.addPending(h)
	}
	return later
}

// addPending leaves a handler to checkPending. The caller holds pendingMu.
func (p *Plugin) addPending(h *Handler) {
	p.pending = append(p.pending, h)
	if !p.checking && p.closing.Err() == nil {
		p.checking = true
		p.workers.Go(p.checkPending)
	}
}

// takePending returns the handlers that wait for a check of their settings, with those of an earlier
// round. Without any, checkPending ends.
func (p *Plugin) takePending(again []*Handler) []*Handler {
	p.pendingMu.Lock()
	defer p.pendingMu.Unlock()
	all := append(again, p.pending...)
	p.pending, p.checking, p.retrying = nil, len(all) > 0, len(again) > 0
	return all
}

// checkPending checks the settings of pending handlers, and again as long as that cannot be done.
// Those whose check takes long do not keep the others waiting. Once the plugin is closed, no check
// takes time.
func (p *Plugin) checkPending() {
	var again []*Handler
	pause := time.Duration(0)
	for pending := p.takePending(nil); len(pending) > 0; pending = p.takePending(again) {
		slow := pending
		if len(pending) > 1 {
			slow = p.checkAll(pending, p.limits.Start/quickPart)
		}
		p.checkAll(slow, p.limits.Start)
		again = slices.DeleteFunc(pending, func(h *Handler) bool { return h.Unchecked() == nil })
		if len(again) == 0 {
			continue
		}
		pause = min(max(2*pause, minRetryPause), maxRetryPause)
		p.logger.Warn("settings of probes could not be checked now, trying again", "pause", pause, "handlers", len(again), "error", again[0].Unchecked())
		p.pause(pause)
	}
}

// quickPart is the part of Limits.Start, one in so many, that each of several checks may take at first.
const quickPart = 10

// checkAll checks the settings of handlers within a limit each, and returns those that need more.
func (p *Plugin) checkAll(handlers []*Handler, limit time.Duration) (slow []*Handler) {
	for _, h := range handlers {
		if r := p.configure(h, limit); r != nil {
			h.checked.set(r)
		} else {
			slow = append(slow, h)
		}
	}
	return slow
}

// pause returns after a time, or when the plugin is closed.
func (p *Plugin) pause(d time.Duration) {
	select {
	case <-p.closing.Done():
	case <-time.After(d):
	}
}

// configure asks the module whether it accepts the settings of a handler. It returns nil if it was
// stopped at a limit below Limits.Start.
func (p *Plugin) configure(h *Handler, limit time.Duration) *checkResult {
	if err := p.state(); err != nil || !p.configures {
		return &checkResult{err: err}
	}
	r, err := p.callConfigure(h, limit)
	for tries := 1; err == nil && isStarved(r, limit) && tries < maxConfigureTries; tries++ {
		r, err = p.callConfigure(h, limit)
	}
	switch {
	case err != nil:
		return &checkResult{err: err}
	case r.NoMemory != nil && (r.Err != nil || r.Value != 0):
		return &checkResult{err: &attemptError{probe.ReasonResources, r.NoMemory}}
	case r.Ending == sandbox.Stopped && limit < p.limits.Start:
		return nil
	case isStarved(r, limit), r.Ending == sandbox.Stopped && r.Stalled:
		return &checkResult{err: &attemptError{ReasonBusy, r.Err}}
	case r.Ending == sandbox.Stopped:
		p.pendingMu.Lock()
		p.lateCheck = time.Now()
		p.pendingMu.Unlock()
	}
	return p.resultOfCheck(r)
}

// isStarved reports whether a check was stopped because others had the processors: it has computed
// for less than half of its limit.
func isStarved(r sandbox.Report, limit time.Duration) bool {
	return r.Ending == sandbox.Stopped && r.Starved && r.Computed < limit/2
}

// resultOfCheck returns what the module says of settings.
func (p *Plugin) resultOfCheck(r sandbox.Report) *checkResult {
	result := &checkResult{}
	switch problem := cmp.Or(probe.CleanText(r.Detail, abi.MaxDetail), "is not accepted by the plugin"); {
	case r.Err != nil:
		_, ending := endingOf(r)
		result.err = fmt.Errorf("plugin %s: %s: %s", p.name, abi.ExportConfigure, ending)
	case r.Value == 0:
		result.prepared = p.keepPrepared(r)
	case hasSetting(p.manifest.Settings, r.Field):
		result.err = &probe.FieldError{Field: r.Field, Problem: problem}
	default:
		result.err = errors.New(problem)
	}
	return result
}

// maxConfigureTries is how often in a row a module may check settings while other calls have the
// processors.
const maxConfigureTries = 5

// callConfigure calls the module's check of settings once. An error is an *attemptError, unless the
// plugin was closed.
func (p *Plugin) callConfigure(h *Handler, limit time.Duration) (sandbox.Report, error) {
	borrowCtx, cancel := context.WithTimeout(p.closing, 3*p.limits.Start) // a start may take a third of it
	defer cancel()
	l, err := p.borrow(borrowCtx, pool.First)
	if err != nil {
		return sandbox.Report{}, err
	}
	ctx, cancel := context.WithTimeout(p.closing, limit)
	defer cancel()
	r := l.Configure(ctx, h.settings)
	p.release(l)
	return r, nil
}

// hasSetting reports whether a name such as "tls.server_name" is in a schema.
func hasSetting(schema []abi.Setting, name string) bool {
	first, rest, inBlock := strings.Cut(name, ".")
	for _, s := range schema {
		if s.Name == first {
			return !inBlock || hasSetting(s.Block, rest)
		}
	}
	return false
}

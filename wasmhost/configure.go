package wasmhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	if p.checksLater() {
		p.checkLater(h)
		return h, nil
	}
	r := p.configure(h)
	if r.err != nil && !isTransient(r.err) {
		return nil, r.err
	}
	h.checked.set(r)
	if r.err != nil {
		p.checkLater(h)
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

// checksLater reports whether settings are not checked at once: the module is being compiled, other settings
// wait for their check, or a check has just exceeded its time, so that many blocks of a module that hangs do
// not take that time each.
func (p *Plugin) checksLater() bool {
	p.pendingMu.Lock()
	defer p.pendingMu.Unlock()
	return len(p.pending) > 0 || time.Since(p.lateCheck) < p.limits.Start || errors.Is(p.compiled.state(), errCompiling)
}

// checkLater leaves the check of a handler's settings to checkPending.
func (p *Plugin) checkLater(h *Handler) {
	p.pendingMu.Lock()
	defer p.pendingMu.Unlock()
	p.pending = append(p.pending, h)
	if len(p.pending) == 1 && p.closing.Err() == nil {
		p.workers.Go(func() { p.checkPending(h) })
	}
}

// checkPending checks the settings of pending handlers, from the first on, once the module is compiled. What
// this machine lacks the resources for is checked again, after the others. Once the plugin is closed, no check
// takes time.
func (p *Plugin) checkPending(h *Handler) {
	<-p.compiled.ended
	for pause := minRetryPause; h != nil; {
		r := p.configure(h)
		h.checked.set(r)
		again := isTransient(r.err) && p.closing.Err() == nil
		if again {
			p.logger.Warn("settings of a probe could not be checked now, trying again", "pause", pause, "error", firstLine(r.err))
			p.pause(pause)
			pause = min(2*pause, maxRetryPause)
		} else {
			pause = minRetryPause
		}
		h = p.nextPending(again)
	}
}

// nextPending removes the first pending handler, or moves it to the end if it is to be checked again, and
// returns the next one; nil if there is none.
func (p *Plugin) nextPending(again bool) *Handler {
	p.pendingMu.Lock()
	defer p.pendingMu.Unlock()
	if again {
		p.pending = append(p.pending, p.pending[0])
	}
	if p.pending = p.pending[1:]; len(p.pending) == 0 {
		p.pending = nil
		return nil
	}
	return p.pending[0]
}

// pause returns after a time, or when the plugin is closed.
func (p *Plugin) pause(d time.Duration) {
	select {
	case <-p.closing.Done():
	case <-time.After(d):
	}
}

// configure asks the module whether it accepts the settings of a handler.
func (p *Plugin) configure(h *Handler) *checkResult {
	if err := p.state(); err != nil || !p.configures {
		return &checkResult{err: err}
	}
	borrowing, cancel := context.WithTimeout(p.closing, 3*p.limits.Start) // a start may take a third of it
	defer cancel()
	l, err := p.borrow(borrowing, pool.First)
	if err != nil {
		return &checkResult{err: err}
	}
	ctx, cancel := context.WithTimeout(p.closing, p.limits.Start)
	defer cancel()
	r := l.Configure(ctx, h.settings)
	p.release(l)
	switch isStarved := r.Starved && r.Computed < p.limits.Start/2; {
	case r.NoMemory != nil && (r.Err != nil || r.Value != 0):
		return &checkResult{err: &attemptError{probe.ReasonResources, r.NoMemory}}
	case r.Ending == sandbox.Stopped && (isStarved || r.Stalled):
		return &checkResult{err: &attemptError{ReasonBusy, r.Err}}
	case r.Ending == sandbox.Stopped:
		p.pendingMu.Lock()
		p.lateCheck = time.Now()
		p.pendingMu.Unlock()
	}
	return p.resultOfCheck(r)
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

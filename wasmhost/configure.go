package wasmhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// settingsCheck is the module's own check of a handler's settings. Handlers with the same
// settings share it.
type settingsCheck struct {
	unprepared bool // attempts do not receive prepared data: see Handler.WithoutPrepared
	running    singleflight.Group
	result     atomic.Pointer[checkResult] // of the latest check; nil before the first one
}

// checkResult is the result of a check.
type checkResult struct {
	err      error     // an error in the settings, or an *attemptError if they could not be checked
	prepared *prepared // data for attempts; nil if there is none
}

var errUnchecked = &attemptError{ReasonStarting, errors.New("the settings are not checked yet")}

// state returns nil if the settings are accepted, or else an error with the reason why no attempt
// can be made.
func (c *settingsCheck) state() error {
	if r := c.result.Load(); r != nil {
		return r.err
	}
	return errUnchecked
}

// isUnchecked reports whether err means that the settings could not be checked, so that they may be
// valid.
func isUnchecked(err error) bool {
	unchecked := (*attemptError)(nil)
	return errors.As(err, &unchecked)
}

// New creates a handler. Its settings have the names and types of the manifest: string, int64,
// float64, bool, time.Duration, []string, map[string]string, and map[string]any for a block; absent
// settings have their defaults. An error about one setting is a *probe.FieldError.
//
// A module that exports sonde_configure checks settings itself. New leaves this check to the first attempt while the
// module is being compiled, while another check runs, or if the latest check timed out: if the module then rejects the
// settings, each attempt is Unknown with reasonSettings. To get that error from New, call Wait first. While this
// machine lacks the resources for the check, attempts are Unknown with the cause, and each of them tries the check
// again: see Handler.Unchecked.
func (p *Plugin) New(values map[string]any) (*Handler, error) {
	s, err := settings.New(p.manifest.Settings, values)
	if err != nil {
		return nil, err
	}
	h := newHandler(p, &s, &settingsCheck{})
	if !p.configures {
		h.checked.result.Store(&checkResult{}) // there is nothing to check
		if err := p.state(); err != nil && !errors.Is(err, errCompiling) {
			return nil, err
		}
		return h, nil
	}
	if errors.Is(p.compiled.state(), errCompiling) || p.checkHangs.Load() || !p.checking.TryAcquire(1) {
		return h, nil
	}
	defer p.checking.Release(1)
	if err := h.check(); err != nil && !isTransient(err) {
		return nil, err
	}
	return h, nil
}

// isTransient reports whether err means that a check of settings could not be made, through no
// fault of the module.
func isTransient(err error) bool {
	unchecked := (*attemptError)(nil)
	return errors.As(err, &unchecked) && (unchecked.reason != reasonStart || errors.Is(err, sandbox.ErrStarved))
}

// Unchecked returns an error if the module could not check the settings yet, or nil.
func (h *Handler) Unchecked() error {
	if err := h.checked.state(); isUnchecked(err) {
		return fmt.Errorf("plugin %s: settings could not be checked, but may be valid: %s", h.plugin.name, firstLine(err))
	}
	return nil
}

// checkInTurn waits for running checks of other settings, then calls check.
func (h *Handler) checkInTurn() (any, error) {
	checking := h.plugin.checking
	if checking.Acquire(h.plugin.closing, 1) != nil {
		return nil, errClosed
	}
	defer checking.Release(1)
	return nil, h.check()
}

// check makes the module check the settings, and stores the result.
func (h *Handler) check() error {
	p := h.plugin
	if !p.inUse.TryRLock() { // Close waits for it
		return errClosed
	}
	defer p.inUse.RUnlock()
	r := p.configure(h)
	if h.checked.unprepared {
		r.prepared = nil
	}
	h.checked.result.Store(r)
	return r.err
}

// accepted returns nil if the module has accepted the settings, or else an error with the reason why no
// attempt can be made. It waits for a check for at most half of the time until ctx's deadline. The check
// itself continues for up to limits.start.
func (h *Handler) accepted(ctx context.Context) error {
	err := h.checked.state()
	if isUnchecked(err) {
		half, cancel := halfOf(ctx, time.Now())
		defer cancel()
		select {
		case checked := <-h.checked.running.DoChan("", h.checkInTurn):
			err = checked.Err
		case <-half.Done():
			return abandoned(half, errUnchecked)
		}
	}
	if err == nil || isUnchecked(err) {
		return err
	}
	return &attemptError{reasonSettings, err}
}

// configure calls the module's sonde_configure with the settings of a handler.
func (p *Plugin) configure(h *Handler) *checkResult {
	if err := p.state(); err != nil {
		return &checkResult{err: err}
	}
	borrowing, cancel := context.WithTimeout(p.closing, 3*p.limits.Start) // a start may take one third of this time
	defer cancel()
	l, err := p.borrow(borrowing, laneFirst)
	if err != nil {
		return &checkResult{err: err}
	}
	ctx, cancel := context.WithTimeout(p.closing, p.limits.Start)
	defer cancel()
	r := l.Configure(ctx, p.tenant, h.settings)
	p.release(l)
	switch isStarved := r.Starved && r.Computed < p.limits.Start/2; {
	case r.NoMemory != nil && (r.Err != nil || r.Value != 0):
		return &checkResult{err: &attemptError{probe.ReasonResources, r.NoMemory}}
	case r.Ending == sandbox.Stopped && (isStarved || r.Stalled):
		return &checkResult{err: &attemptError{ReasonBusy, r.Err}}
	}
	p.checkHangs.Store(r.Ending == sandbox.Stopped)
	return p.resultOfCheck(r)
}

// resultOfCheck converts the report of a sonde_configure call to a result.
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

// hasSetting reports whether a schema has a setting with a name such as "tls.server_name".
func hasSetting(schema []abi.Setting, name string) bool {
	first, rest, inBlock := strings.Cut(name, ".")
	for _, s := range schema {
		if s.Name == first {
			return !inBlock || hasSetting(s.Block, rest)
		}
	}
	return false
}

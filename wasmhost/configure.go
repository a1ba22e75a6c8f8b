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
	unprepared bool // attempts get nothing that the module has prepared: see Handler.WithoutPrepared
	running    singleflight.Group
	result     atomic.Pointer[checkResult] // of the latest check; nil until there was one
}

// checkResult is the result of a check.
type checkResult struct {
	err      error     // what is wrong with the settings, or an *attemptError: why they could not be checked
	prepared *prepared // for attempts; nil: nothing
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

// isUnchecked reports whether an error of a check says nothing about the settings.
func isUnchecked(err error) bool {
	unchecked := (*attemptError)(nil)
	return errors.As(err, &unchecked)
}

// New makes a handler. Its settings have the names and types of the manifest: string,
// int64, float64, bool, time.Duration, []string, map[string]string, and map[string]any
// for a block; those that are absent have their defaults. An error about one setting is a
// *probe.FieldError.
//
// A module that exports sonde_configure checks settings itself. While it is being compiled, New leaves that to
// the first attempt, as it does while another check is made, or when the latest one has taken too long: if the
// module rejects the settings then, each attempt is Unknown with reasonSettings. To get that error from New, call Wait first. While this
// machine lacks what the check needs, attempts are Unknown with the reason, and each of them checks again: see
// Handler.Unchecked.
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

// isTransient reports whether a check of settings could not be made, for a reason that is not the
// module's.
func isTransient(err error) bool {
	unchecked := (*attemptError)(nil)
	return errors.As(err, &unchecked) && (unchecked.reason != reasonStart || errors.Is(err, sandbox.ErrStarved))
}

// Unchecked returns why the module has not checked the settings yet, or nil.
func (h *Handler) Unchecked() error {
	if err := h.checked.state(); isUnchecked(err) {
		return fmt.Errorf("plugin %s: settings could not be checked now, they may be valid: %s", h.plugin.name, firstLine(err))
	}
	return nil
}

// checkInTurn is check after those of other settings.
func (h *Handler) checkInTurn() (any, error) {
	checking := h.plugin.checking
	if checking.Acquire(h.plugin.closing, 1) != nil {
		return nil, errClosed
	}
	defer checking.Release(1)
	return nil, h.check()
}

// check lets the module check the settings.
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

// accepted returns nil if the module has accepted the settings, and the reason why no attempt can be made
// otherwise. It waits for a check until half of the time that ctx leaves has passed, while the check goes on:
// how long it may take is limits.start.
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

// configure asks the module whether it accepts the settings of a handler.
func (p *Plugin) configure(h *Handler) *checkResult {
	if err := p.state(); err != nil {
		return &checkResult{err: err}
	}
	borrowing, cancel := context.WithTimeout(p.closing, 3*p.limits.Start) // a start may take a third of it
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

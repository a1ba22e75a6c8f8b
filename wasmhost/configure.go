package wasmhost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"weak"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/pool"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// settingsCheck is the module's own check of a handler's settings. Handlers with the same
// settings share it.
type settingsCheck struct {
	done     chan struct{}
	err      error     // set before done is closed
	prepared *prepared // likewise; nil: none
}

// prepared is what the module's check of settings has prepared for attempts. Checks with the same
// text share it: it may depend on a few of the settings only.
type prepared struct{ text string }

// keep returns what the module has prepared, if there is memory for it. It is counted as long as a
// check uses it.
func (p *Plugin) keep(text string) *prepared {
	hash := sha256.Sum256([]byte(text))
	p.keptMu.Lock()
	defer p.keptMu.Unlock()
	if k := p.kept[hash].Value(); k != nil {
		return k
	}
	size := int64(len(text))
	if !p.sandbox.Reserve(size) {
		return nil
	}
	k := &prepared{text}
	p.kept[hash] = weak.Make(k)
	runtime.AddCleanup(k, func(hash [sha256.Size]byte) { p.forget(hash, size) }, hash)
	return k
}

// forget frees what no check uses any more.
func (p *Plugin) forget(hash [sha256.Size]byte, size int64) {
	p.keptMu.Lock()
	defer p.keptMu.Unlock()
	if p.kept[hash].Value() == nil { // it was not prepared again since
		delete(p.kept, hash)
	}
	p.sandbox.Unreserve(size)
}

// setPrepared keeps what the module has prepared for attempts, and logs if that is not possible.
func (c *settingsCheck) setPrepared(p *Plugin, r sandbox.Report) {
	const lost = "what the plugin has prepared for its settings is not kept, each attempt prepares it again"
	switch {
	case r.TooLong > 0:
		p.logger.Warn(lost, "bytes", r.TooLong, "max", abi.MaxPrepared)
	case r.Prepared == "":
	default:
		if c.prepared = p.keep(r.Prepared); c.prepared == nil {
			p.logger.Warn(lost, "bytes", len(r.Prepared), "error", sandbox.ErrNoMemory)
		}
	}
}

// preparedText returns what the module has prepared, or "".
func (c *settingsCheck) preparedText() string {
	if c.prepared == nil {
		return ""
	}
	return c.prepared.text
}

func (c *settingsCheck) end(err error) {
	c.err = err
	close(c.done)
}

// state returns errCompiling until the check has ended.
func (c *settingsCheck) state() error {
	select {
	case <-c.done:
		return c.err
	default:
		return errCompiling
	}
}

// New makes a handler. Its settings have the names and types of the manifest: string,
// int64, float64, bool, time.Duration, []string, map[string]string, and map[string]any
// for a block; those that are absent have their defaults. An error about one setting is a
// *probe.FieldError.
//
// A module that exports sonde_configure checks settings itself, as soon as it is compiled.
// If it rejects them after New has returned, each attempt is Unknown with ReasonSettings;
// to get that error from New, call Wait first.
func (p *Plugin) New(values map[string]any) (*Handler, error) {
	s, err := settings.New(p.manifest.Settings, values)
	if err != nil {
		return nil, err
	}
	h := newHandler(p, &s, &settingsCheck{done: make(chan struct{})})
	if p.checkLater(h) {
		return h, nil
	}
	err = p.configure(h)
	h.checked.end(err)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// checkLater leaves the check of a handler's settings to prepare, and reports whether the
// module is still being compiled.
func (p *Plugin) checkLater(h *Handler) bool {
	p.pendingMu.Lock()
	defer p.pendingMu.Unlock()
	select {
	case <-p.ready:
		return false
	default:
		p.pending = append(p.pending, h)
		return true
	}
}

// configure asks the module whether it accepts the settings of a handler.
func (p *Plugin) configure(h *Handler) error {
	if err := p.state(); err != nil || !p.configures {
		return err
	}
	r, err := p.callConfigure(h)
	for tries := 1; err == nil && r.Ending == sandbox.Stopped && r.Starved && tries < maxConfigureTries; tries++ {
		r, err = p.callConfigure(h)
	}
	if err != nil {
		return fmt.Errorf("plugin %s: %s", p.name, firstLine(err))
	}
	switch {
	case r.Err != nil:
		return fmt.Errorf("plugin %s: %s: %s", p.name, abi.ExportConfigure, firstLine(r.Err))
	case r.Value == 0:
		h.checked.setPrepared(p, r)
		return nil
	}
	problem := cmp.Or(probe.CleanText(r.Detail, abi.MaxDetail), "is not accepted by the plugin")
	if hasSetting(p.manifest.Settings, r.Field) {
		return &probe.FieldError{Field: r.Field, Problem: problem}
	}
	return errors.New(problem)
}

// maxConfigureTries is how often a module may check settings while other calls have the
// processors.
const maxConfigureTries = 5

// callConfigure calls the module's check of settings once.
func (p *Plugin) callConfigure(h *Handler) (sandbox.Report, error) {
	borrowCtx, cancel := context.WithTimeout(context.Background(), 3*p.limits.Start) // a start may take a third of it
	defer cancel()
	l, err := p.borrow(borrowCtx, pool.First)
	if err != nil {
		return sandbox.Report{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.limits.Start)
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

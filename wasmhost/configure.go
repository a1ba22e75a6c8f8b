package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/settings"
)

// configured tells whether a module takes a handler's settings. Handlers with the
// same settings share it.
type configured struct {
	done chan struct{}
	err  error // set before done is closed
}

func (c *configured) end(err error) {
	c.err = err
	close(c.done)
}

// state returns errCompiling while it is not known.
func (c *configured) state() error {
	select {
	case <-c.done:
		return c.err
	default:
		return errCompiling
	}
}

// New makes a handler. Its settings have the names and types of the manifest:
// string, int64, float64, bool, time.Duration, []string, map[string]string, and
// map[string]any for a block; those that are not given have their defaults. A setting
// that is wrong is a *probe.FieldError with its name.
//
// A module that checks settings by itself does so at once, or once it is compiled: then
// its refusal makes each attempt Unknown with ReasonSettings. Call Wait before New to
// have it as an error here.
func (p *Plugin) New(values map[string]any) (*Handler, error) {
	s, err := settings.New(p.manifest.Settings, values)
	if err != nil {
		return nil, err
	}
	h := &Handler{plugin: p, settings: s, checked: &configured{done: make(chan struct{})}}
	if p.postpone(h) {
		return h, nil
	}
	err = p.configure(h)
	h.checked.end(err)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// postpone has the settings checked later, if the module is not compiled yet.
func (p *Plugin) postpone(h *Handler) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ready:
		return false
	default:
		p.pending = append(p.pending, h)
		return true
	}
}

// configure asks the module whether it takes the settings of a handler.
func (p *Plugin) configure(h *Handler) error {
	if err := p.state(); err != nil || !p.configures {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.limits.Start)
	defer cancel()
	i, err := p.borrow(ctx)
	if err != nil {
		return fmt.Errorf("plugin %s: %s", p.name, firstLine(err))
	}
	c := &call{ctx: ctx, plugin: p, instance: i, memory: i.module.Memory(), handler: h}
	number, err := c.run(i.configure)
	c.finish()
	p.release(i, err)
	switch {
	case err != nil:
		return fmt.Errorf("plugin %s: %s: %s", p.name, abi.ExportConfigure, firstLine(err))
	case number == 0:
		return nil
	}
	return refusal(p.manifest.Settings, c.field, probe.CleanText(c.detail, abi.MaxDetail))
}

// refusal is the error for settings that a module does not take.
func refusal(schema []abi.Setting, name, problem string) error {
	if problem == "" {
		problem = "is refused by the plugin"
	}
	if hasSetting(schema, name) {
		return &probe.FieldError{Field: name, Problem: problem}
	}
	return errors.New(problem)
}

// hasSetting reports whether a name such as "tls.server_name" is in a schema.
func hasSetting(schema []abi.Setting, name string) bool {
	first, rest, inside := strings.Cut(name, ".")
	for _, s := range schema {
		if s.Name == first {
			return !inside || hasSetting(s.Block, rest)
		}
	}
	return false
}

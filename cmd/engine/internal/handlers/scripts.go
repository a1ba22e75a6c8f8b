package handlers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/embedded"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// sharedScripts is the name, in logs and metrics, of the plugin whose code and instances are shared by all scripts without
// their own grants and limits: a copy of the interpreter takes 50 MB with one instance. Each script is still a plugin with its
// own name. A plugin block cannot have this name.
const sharedScripts = "default scripts"

// Settings of the interpreter that are not arguments of a handler block: the block ScriptBlock, with these arguments.
const (
	ScriptBlock    = "script"
	scriptSource   = "source"
	scriptFile     = "file"
	scriptLine     = "line"
	scriptColumn   = "column"
	scriptMaxSteps = "max_steps"
)

// script implements config.Options.Script. It waits until the interpreter is compiled, which takes a few seconds unless its
// code is cached, so that an error in a script is reported before anything starts.
func (p *Plugins) script(e config.Engine, block config.Script) (config.Handler, error) {
	module, err := embedded.Starlark()
	if err != nil {
		return config.Handler{}, err
	}
	c, _ := block.Settings.(wasmhost.Config)
	shares := reflect.DeepEqual(c, wasmhost.Config{})
	c.Name, c.Module = block.Name, module
	if shares {
		c.Name = sharedScripts
	}
	if p.wait == WaitForChecks { // warnings of the interpreter are collected, to be shown with their positions
		c.Logger = slog.New(&scriptLog{slog.DiscardHandler, &p.notes})
	}
	host, err := p.load(e, c, block.Origin.File)
	if err != nil {
		return config.Handler{}, err
	}
	if shares {
		host = p.share(host, block.Name)
	}
	p.Progress.Step("compiling the interpreter of scripts")
	defer p.Progress.Step(reading)
	if err := host.Wait(p.ctx); err != nil {
		return config.Handler{}, fmt.Errorf("the interpreter of scripts cannot be used: %w", err)
	}
	p.notes = nil
	first, err := host.New(ScriptValues(nil, block))
	if err != nil {
		return config.Handler{}, scriptError(block.Origin.File, err)
	}
	_ = first.Close() // never returns an error
	var warnings []*config.ScriptError
	for _, text := range p.notes {
		if at, ok := inScript(block.Origin.File, text); ok {
			warnings = append(warnings, at)
		}
	}
	m := host.Manifest()
	fields := slices.DeleteFunc(slices.Clone(m.Settings), func(s abi.Setting) bool { return s.Name == ScriptBlock })
	return config.Handler{
		Schema:   schema(m.Doc, fields),
		InScript: warnings,
		// The script's position is not included, so that a probe keeps its state when lines above are changed.
		Revision: host.revision + cli.SHA256([]byte(block.Source)) + strconv.Itoa(block.MaxSteps),
		Make: func(v config.Values, _ config.Context) (probe.Handler, error) {
			h, err := host.New(ScriptValues(v, block))
			if err != nil {
				return nil, scriptError(block.Origin.File, err)
			}
			return h, nil
		},
	}, nil
}

// ScriptValues returns the settings of a handler block together with those of its script.
func ScriptValues(values map[string]any, block config.Script) map[string]any {
	script := map[string]any{
		scriptSource: block.Source, scriptFile: block.Origin.File,
		scriptLine: block.Origin.Line, scriptColumn: block.Origin.Column,
	}
	if block.MaxSteps != 0 {
		script[scriptMaxSteps] = block.MaxSteps
	}
	all := maps.Clone(values)
	if all == nil {
		all = make(map[string]any)
	}
	all[ScriptBlock] = script
	return all
}

// position matches the position in an error, after the name of the file: ":12:5: ".
var position = regexp.MustCompile(`^:([0-9]+):([0-9]+): `)

// scriptError converts an error of the interpreter about a script to an error of the configuration.
func scriptError(file string, err error) error {
	var field *probe.FieldError
	if !errors.As(err, &field) {
		return err
	}
	switch field.Field {
	case ScriptBlock + "." + scriptMaxSteps:
		return &probe.FieldError{Field: scriptMaxSteps, Problem: field.Problem}
	case ScriptBlock + "." + scriptSource:
		if at, ok := inScript(file, field.Problem); ok {
			return at
		}
		return &probe.FieldError{Field: scriptSource, Problem: "is not valid: " + field.Problem}
	}
	return err
}

// inScript parses a text that begins with a position in a file. ok is false if it does not.
func inScript(file, text string) (*config.ScriptError, bool) {
	rest, ok := strings.CutPrefix(text, file)
	at := position.FindStringSubmatch(rest)
	if !ok || at == nil {
		return nil, false
	}
	line, _ := strconv.Atoi(at[1]) // cannot fail: the pattern matches digits only
	column, _ := strconv.Atoi(at[2])
	return &config.ScriptError{Line: line, Column: column, Problem: rest[len(at[0]):]}, true
}

// scriptLog is the log of the interpreter while a configuration is checked. It collects warnings as notes.
type scriptLog struct {
	slog.Handler
	notes *[]string
}

// Handle implements slog.Handler.
func (l *scriptLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Level == slog.LevelWarn && a.Key == "text" {
			*l.notes = append(*l.notes, a.Value.String())
		}
		return true
	})
	return nil
}

// Enabled implements slog.Handler.
func (l *scriptLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs implements slog.Handler.
func (l *scriptLog) WithAttrs(all []slog.Attr) slog.Handler {
	return &scriptLog{l.Handler.WithAttrs(all), l.notes}
}

package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// Plugins holds the modules of one configuration. It must not be used concurrently while
// the configuration is loaded; it does not change afterwards.
type Plugins struct {
	// Previous are the modules of the configuration that is in use; nil for none. A
	// module with the same bytes, grants and limits is reused, unless it is unusable: what
	// it needed may be there now.
	Previous *Plugins

	// Inputs records what the configuration is read from; nil for no record.
	Inputs *accepted.Inputs

	// Describe is config.Options.Describe.
	Describe bool

	// Progress shows what a command waits for; nil: nothing is shown.
	Progress *cli.Progress

	ctx    context.Context // ends the wait for the compiler
	wait   wait
	logger func(config.Engine) *slog.Logger
	loaded map[string]module // by key
	notes  []string          // warnings of the interpreter about the script that is checked
}

// module is a loaded module.
type module struct {
	*wasmhost.Plugin
	revision string // of its handlers
}

// isUnusable reports whether it is known that a module cannot be compiled.
func (m module) isUnusable() bool {
	select {
	case <-m.Ready():
		return m.Wait(context.Background()) != nil
	default:
		return false
	}
}

// wait selects the modules that must be compiled before a configuration is loaded.
type wait uint8

const (
	WaitForNone   wait = iota // no module; those that check their settings do so later
	WaitForChecks             // all modules; those that check their settings must be able to
	WaitForAll                // all modules
)

// NewPlugins returns the plugins of a configuration that is about to be loaded. The
// function logger is called with the engine block of the configuration.
func NewPlugins(ctx context.Context, wait wait, logger func(config.Engine) *slog.Logger) *Plugins {
	return &Plugins{ctx: ctx, wait: wait, logger: logger, loaded: make(map[string]module)}
}

// Silent is the logger of a command that does not show what plugins log.
func Silent(config.Engine) *slog.Logger { return slog.New(slog.DiscardHandler) }

// Warnings returns the logger of a command that shows the warnings of plugins.
func Warnings(c *cobra.Command) func(config.Engine) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn)
	log := cli.NewLogger(c.ErrOrStderr(), "text", level)
	return func(config.Engine) *slog.Logger { return log }
}

// wasmMagic is what every WebAssembly module begins with.
const wasmMagic = "\x00asm"

// open is config.Options.Plugin.
func (p *Plugins) open(e config.Engine, block config.Plugin) (sha256 string, load func() (config.Handler, error), err error) {
	limit := cmp.Or(hostConfig(block, nil).Limits.ModuleSize, wasmhost.DefaultModuleSize)
	read := files.ReadRegular
	if p.Inputs != nil {
		read = p.Inputs.ReadFile
	}
	bytes, err := read(block.Source, limit)
	if err != nil {
		wrong := &probe.FieldError{Field: "source", Problem: fmt.Sprintf("cannot be read: %v", err)}
		if errors.Is(err, os.ErrNotExist) {
			wrong.Hint = "a relative path starts at the folder of the configuration file"
		}
		return "", nil, wrong
	}
	if !strings.HasPrefix(string(bytes[:min(len(bytes), len(wasmMagic))]), wasmMagic) { // whose hash nobody should write down
		return "", nil, probe.FieldErrorf("source", "is not a WebAssembly module")
	}
	return cli.SHA256(bytes), func() (config.Handler, error) { return p.Handler(e, block, bytes) }, nil
}

// Handler loads a module and returns the handler block that it adds.
func (p *Plugins) Handler(e config.Engine, block config.Plugin, bytes []byte) (config.Handler, error) {
	host, err := p.load(e, hostConfig(block, bytes), block.Source)
	if err != nil {
		return config.Handler{}, err
	}
	if p.wait != WaitForNone {
		p.Progress.Step("compiling the plugin " + block.Name)
		defer p.Progress.Step(reading)
		if err := host.Wait(p.ctx); err != nil {
			return config.Handler{}, probe.FieldErrorf("source", "cannot be used: %v", err)
		}
	}
	m := host.Manifest()
	return config.Handler{
		Schema:   schema(m.Doc, m.Settings),
		Revision: host.revision,
		Make: func(v config.Values, _ config.Context) (probe.Handler, error) {
			h, err := host.New(v)
			if err == nil && p.wait == WaitForChecks { // to find what is wrong, and not to attempt
				err = h.Unchecked()
			}
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	}, nil
}

// load returns a module that is loaded already, or loads it. Modules are the same if their
// names, bytes and settings are equal.
func (p *Plugins) load(e config.Engine, c wasmhost.Config, source string) (module, error) {
	sum := cli.SHA256(c.Module)
	settings := []any{c.Name, sum, c.OnTrap, c.Grant, c.Limits, c.Compile}
	if c.KeepAlive != nil { // what earlier engines have stored of plugins without it is still about them
		settings = append(settings, c.KeepAlive)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return module{}, err
	}
	key := cli.SHA256(text)
	revision := key
	m, found := p.loaded[key]
	if !found && p.Previous != nil {
		if m, found = p.Previous.loaded[key]; found && m.isUnusable() {
			found, revision = false, cli.SHA256([]byte(m.revision)) // its handlers must be replaced
		}
	}
	if found {
		p.loaded[key] = m
		return m, nil
	}
	c.Logger = cmp.Or(c.Logger, p.logger(e))
	host, err := LoadModule(c, e.PluginCache)
	if err != nil {
		return module{}, err
	}
	p.loaded[key] = module{host, revision}
	c.Logger.Info("plugin loaded", "plugin", c.Name, "source", source, "sha256", sum)
	return p.loaded[key], nil
}

// share returns a plugin with another name that uses a module's code and instances. It is that of the
// configuration in use if there is one.
func (p *Plugins) share(m module, name string) module {
	key := cli.SHA256([]byte(m.revision + " " + name))
	s, found := p.loaded[key]
	if !found && p.Previous != nil {
		s, found = p.Previous.loaded[key]
	}
	if !found {
		s = module{m.Share(name), key}
	}
	p.loaded[key] = s
	return s
}

// LoadModule loads a module, and caches its compiled code in a directory, by default in
// the user's cache directory. An unusable default is logged; any other is an error.
func LoadModule(c wasmhost.Config, dir *string) (*wasmhost.Plugin, error) {
	c.CacheDir = cacheDir(dir)
	host, err := wasmhost.Load(c)
	var wrong *probe.FieldError
	if !errors.As(err, &wrong) || wrong.Field != "cache_dir" {
		return host, err
	}
	if dir != nil {
		return nil, errors.New("the engine's plugin_cache " + wrong.Problem)
	}
	c.Logger.Warn("plugin cache disabled", "plugin", c.Name, "dir", c.CacheDir, "error", wrong.Problem)
	c.CacheDir = ""
	return wasmhost.Load(c)
}

// LimitMemory puts the engine's limit of the memory of all plugins into use.
func LimitMemory(e config.Engine) {
	wasmhost.SetTotalMemory(cmp.Or(e.PluginMemory, wasmhost.DefaultTotalMemory))
}

// cacheDir returns the directory for compiled code, or "" for none.
func cacheDir(configured *string) string {
	if configured != nil {
		return *configured
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sonde", "plugins")
}

// closeTimeout bounds how long Close waits.
const closeTimeout = 2 * time.Second

// Close closes all modules. It waits for attempts and the compiler for closeTimeout at
// most.
func (p *Plugins) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	p.closeUnused(ctx, nil)
}

// Release closes the modules that other plugins do not use, without waiting for
// attempts and the compiler.
func (p *Plugins) Release(others *Plugins) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.closeUnused(ctx, others)
}

func (p *Plugins) closeUnused(ctx context.Context, others *Plugins) {
	for key, m := range p.loaded {
		if others == nil || others.loaded[key] != m {
			_ = m.Close(ctx) // frees memory only: there is no error to report
		}
	}
}

// Stats returns the numbers of all modules.
func (p *Plugins) Stats() []stats.Plugin {
	var all []stats.Plugin
	for _, m := range p.loaded {
		all = append(all, m.Stats())
	}
	return all
}

// schema returns a manifest's settings as the fields of a block. The manifest has
// been checked.
func schema(doc string, settings []abi.Setting) config.Schema {
	types := map[abi.Type]config.Type{
		abi.TypeString: config.String, abi.TypeInt: config.Int, abi.TypeNumber: config.Float, abi.TypeBool: config.Bool,
		abi.TypeDuration: config.Duration, abi.TypeStrings: config.Strings, abi.TypeMap: config.StringMap, abi.TypeBlock: config.Block,
	}
	s := config.Schema{Doc: doc}
	for _, one := range settings {
		f := config.Field{Name: one.Name, Type: types[one.Type], Required: one.Required, Sensitive: one.Sensitive, Doc: one.Doc}
		f.Default, _ = one.Value() // Check has called it
		if one.Type == abi.TypeBlock {
			inside := schema(one.Doc, one.Block)
			f.Block = &inside
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// hostConfig returns what the host grants a module, and its limits.
func hostConfig(p config.Plugin, module []byte) wasmhost.Config {
	c, _ := p.Settings.(wasmhost.Config)
	c.Name, c.Module = p.Name, module
	return c
}

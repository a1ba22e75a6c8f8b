package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

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
	// module with the same bytes, grants and limits is reused.
	Previous *Plugins

	ctx    context.Context // ends the wait for the compiler
	wait   Wait
	logger func(config.Engine) *slog.Logger
	loaded map[string]*wasmhost.Plugin // by key
}

// Wait selects the modules that must be compiled before a configuration is loaded.
type Wait uint8

const (
	WaitForNone      Wait = iota // no module; those that check their settings do so later
	WaitForConfigure             // modules that check their settings
	WaitForAll                   // all modules
)

// NewPlugins returns the plugins of a configuration that is about to be loaded. The
// function logger is called with the engine block of the configuration.
func NewPlugins(ctx context.Context, wait Wait, logger func(config.Engine) *slog.Logger) *Plugins {
	return &Plugins{ctx: ctx, wait: wait, logger: logger, loaded: make(map[string]*wasmhost.Plugin)}
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

// open is config.Options.Plugin.
func (p *Plugins) open(e config.Engine, block config.Plugin) (config.Module, error) {
	limit := cmp.Or(hostConfig(block, nil).Limits.ModuleSize, wasmhost.DefaultModuleSize)
	bytes, err := files.ReadRegular(block.Source, limit)
	if err != nil {
		return config.Module{}, probe.FieldErrorf("source", "cannot be read: %v", err)
	}
	return config.Module{SHA256: cli.SHA256(bytes), Load: func() (config.Handler, error) { return p.Handler(e, block, bytes) }}, nil
}

// Handler loads a module and returns the handler block that it adds.
func (p *Plugins) Handler(e config.Engine, block config.Plugin, bytes []byte) (config.Handler, error) {
	host, key, err := p.load(e, hostConfig(block, bytes), block.Source)
	if err != nil {
		return config.Handler{}, err
	}
	info, err := wasmhost.Inspect(bytes)
	configures := err == nil && slices.Contains(info.Exports, abi.ExportConfigure)
	if p.wait == WaitForAll || p.wait == WaitForConfigure && configures {
		if err := host.Wait(p.ctx); err != nil {
			return config.Handler{}, probe.FieldErrorf("source", "cannot be used: %v", err)
		}
	}
	m := host.Manifest()
	return config.Handler{
		Schema:   schema(m.Doc, m.Settings),
		Revision: key,
		Make: func(v config.Values, _ config.Context) (probe.Handler, error) {
			h, err := host.New(v)
			if err != nil {
				return nil, err
			}
			return h, nil
		},
	}, nil
}

// load returns a module that is loaded already, or loads it. The key is equal for modules
// with the same name, bytes and settings.
func (p *Plugins) load(e config.Engine, c wasmhost.Config, source string) (host *wasmhost.Plugin, key string, err error) {
	sum := cli.SHA256(c.Module)
	text, err := json.Marshal([]any{c.Name, sum, c.OnTrap, c.Grant, c.Limits, c.Compile})
	if err != nil {
		return nil, "", err
	}
	key = cli.SHA256(text)
	host, found := p.loaded[key]
	if !found && p.Previous != nil {
		host, found = p.Previous.loaded[key]
	}
	if found {
		p.loaded[key] = host
		return host, key, nil
	}
	c.Logger = p.logger(e)
	if host, err = LoadModule(c, e.PluginCache); err != nil {
		return nil, "", err
	}
	p.loaded[key] = host
	c.Logger.Info("plugin loaded", "plugin", c.Name, "source", source, "sha256", sum)
	return host, key, nil
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
	for key, host := range p.loaded {
		if others != nil {
			if _, used := others.loaded[key]; used {
				continue
			}
		}
		_ = host.Close(ctx) // frees memory only: there is no error to report
	}
}

// Stats returns the numbers of all modules.
func (p *Plugins) Stats() []stats.Plugin {
	var all []stats.Plugin
	for _, host := range p.loaded {
		all = append(all, host.Stats())
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
	c.Name, c.Module, c.AllowUnpinned = p.Name, module, true // config has compared the hash
	return c
}
